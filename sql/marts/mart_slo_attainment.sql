-- How often each promise was kept, with a 95 % Wilson score interval (Wilson, 1927).
-- Grain: one row per (UTC hour in which requests ended, model, class). n_requests is the
-- denominator: all that ended, failures of every kind too, but for the excluded and the unknown.
-- NULL: model and class, not known; the ratio and its bounds over no request.
-- unit: hour
with counts as (
    select
        *,
        n_requests - n_excluded - n_unknown as n_judged
    from int_ended_hours
    where n_requests > 0
),

ratios as (
    select
        *,
        n_accepted / nullif(n_judged, 0) as attainment_ratio
    from counts
)

select
    slo_class,
    model,
    hour_at,
    n_judged as n_requests,
    n_accepted,
    n_excluded,
    n_unknown,
    attainment_ratio,
    wilson_low(attainment_ratio, n_judged) as wilson_low,
    wilson_high(attainment_ratio, n_judged) as wilson_high
from ratios
