-- Service-level attainment of the requests that ended in the window.
-- Grain: one row per SLO class. Ratios 0..1 of the judged (excluded and unknown are left out and
-- counted beside); wilson_*: 95 % score interval (Wilson, 1927). NULL: nobody judged.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

classes as (
    select
        coalesce(slo_class, '(no class)') as slo_class,
        count(*) as n_requests,
        count(*) filter (where is_accepted) as n_accepted,
        count(*) filter (where reject_reason = 'excluded') as n_excluded,
        count(*) filter (where reject_reason = 'unknown') as n_unknown,
        count(*) filter (
            where reject_reason is null or reject_reason not in ('excluded', 'unknown')
        ) as n_judged
    from ended
    group by slo_class
),

ratios as (
    select
        *,
        n_accepted / nullif(n_judged, 0) as p,
        nullif(n_judged, 0)::double as n,
        1.96 * 1.96 as z2
    from classes
)

select
    slo_class,
    n_requests,
    n_accepted,
    n_excluded,
    n_unknown,
    n_judged,
    p as attainment_ratio,
    (p + z2 / (2 * n) - 1.96 * sqrt((p * (1 - p) + z2 / (4 * n)) / n)) / (1 + z2 / n)
        as wilson_low,
    (p + z2 / (2 * n) + 1.96 * sqrt((p * (1 - p) + z2 / (4 * n)) / n)) / (1 + z2 / n)
        as wilson_high
from ratios
order by slo_class
