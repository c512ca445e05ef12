-- Distribution of gaps between tokens and between chunks in the window's whole minutes.
-- Grain: one row per viewpoint, kind and bin; five of the stored bins (g = 1.02, in microseconds)
-- make one. low_s, high_s: edges in seconds; gaps of zero and less are in the lowest bin drawn.
-- Parameters: since, as_of (UTC), model; NULL: all. Class and tenant aren't in this histogram.
with seen as (
    select
        viewpoint,
        kind,
        n,
        greatest(ceil(bin / 5)::integer, 0) as wide_bin
    from gaps_in($since, $as_of, $model)
)

select
    viewpoint,
    kind,
    1e-6 * pow(1.02, 5 * wide_bin - 5) as low_s,
    1e-6 * pow(1.02, 5 * wide_bin) as high_s,
    sum(n)::bigint as n
from seen
group by viewpoint, kind, wide_bin
order by viewpoint, kind, wide_bin
