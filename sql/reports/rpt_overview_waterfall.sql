-- The bill, step by step, over the whole UTC hours that the window touches.
-- Grain: one row per step, in the order of the waterfall. usd: USD; share_ratio: of the bill.
-- The steps sum to the bill. Model, class and tenant don't apply: a bill is the fleet's.
-- Parameters: since, as_of (UTC).
with steps as (
    select
        unnest([
            'useful', 'recomputed', 'quality', 'slo', 'failed', 'excluded', 'unknown',
            'in_flight', 'unobserved', 'idle', 'unused_commitments', 'shared'
        ]) as step,
        unnest(range(12)) as place
),

spent as (
    select
        step,
        sum(usd) as usd
    from cost_waterfall
    where
        grain = 'hour'
        and window_start >= date_trunc('hour', $since::timestamp)
        and window_start <= $as_of::timestamp
    group by step
)

select
    steps.step,
    spent.usd,
    spent.usd::double / nullif(sum(spent.usd) over (), 0)::double as share_ratio
from steps
inner join spent on steps.step = spent.step
order by steps.place
