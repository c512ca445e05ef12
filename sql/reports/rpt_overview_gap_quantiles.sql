-- Quantiles of gaps between tokens and between chunks, from the stored histogram: within 1 %.
-- Grain: one row per viewpoint and kind. Seconds.
-- Parameters: since, as_of (UTC), model; NULL: all. Class and tenant aren't in this histogram.
with bins as (
    select
        viewpoint,
        kind,
        bin,
        sum(n) as n
    from gaps_in($since, $as_of, $model)
    group by viewpoint, kind, bin
),

ranked as (
    select
        viewpoint,
        kind,
        if(bin < 0, 0.0, 1e-6 * 2 * pow(1.02, bin) / (1 + 1.02)) as gap_s,
        sum(n) over (partition by viewpoint, kind order by bin) as n_up_to,
        sum(n) over (partition by viewpoint, kind) as n_gaps
    from bins
)

select
    viewpoint,
    kind,
    max(n_gaps)::bigint as n_gaps,
    min(gap_s) filter (where n_up_to >= 0.5 * n_gaps) as p50_s,
    min(gap_s) filter (where n_up_to >= 0.95 * n_gaps) as p95_s,
    min(gap_s) filter (where n_up_to >= 0.99 * n_gaps) as p99_s
from ranked
group by viewpoint, kind
order by viewpoint, kind
