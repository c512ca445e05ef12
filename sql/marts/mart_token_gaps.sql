-- How long readers waited between chunks and between tokens.
-- Grain: one row per (model, pool, viewpoint, kind, minute_at, bin). kind: chunk | token. bin is
-- logarithmic (g = 1.02): gap_bin_us(bin) reads it back within 1 %; n gaps fell in it. Add n over
-- any set of rows, never average. NULL pool: the leg's worker is not known.
-- unit: all
select
    model,
    pool,
    viewpoint,
    kind,
    minute_at,
    bin,
    sum(n)::bigint as n
from int_token_gaps
group by model, pool, viewpoint, kind, minute_at, bin
