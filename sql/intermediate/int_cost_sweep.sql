-- The sweep line over a cost unit's legs: while k of them run, each gets 1/k of the time.
-- Grain: one row per (UTC hour, cost unit not measured, instant at which a leg starts or ends).
-- share_before is one leg's share of the time until the instant had it run all along, in 10^-6 ns,
-- so a leg's weight is the difference between its two ends; busy_ns is the time after the instant,
-- until the next, in which any leg runs.
-- unit: hour
with legs as (
    select *
    from int_cost_leg_hours
    where allocation_basis in ('sweep_line', 'pool_sweep_line')
),

instants as (
    select
        hour_at,
        cost_unit,
        from_ns as at_ns,
        1 as delta
    from legs
    union all
    select
        hour_at,
        cost_unit,
        to_ns as at_ns,
        -1 as delta
    from legs
),

changes as (
    select
        hour_at,
        cost_unit,
        at_ns,
        sum(delta) as delta
    from instants
    group by hour_at, cost_unit, at_ns
),

steps as (
    select
        hour_at,
        cost_unit,
        at_ns,
        sum(delta) over until_now as n_running,
        lead(at_ns, 1, at_ns) over in_order - at_ns as step_ns
    from changes
    window
        in_order as (partition by hour_at, cost_unit order by at_ns),
        until_now as (
            partition by hour_at, cost_unit
            order by at_ns
            rows between unbounded preceding and current row
        )
),

shares as (
    select
        *,
        case
            when n_running > 0 then step_ns::hugeint * 1000000 // n_running
            else 0
        end as step_share
    from steps
)

select
    hour_at,
    cost_unit,
    at_ns,
    n_running,
    case when n_running > 0 then step_ns else 0 end as busy_ns,
    coalesce(
        sum(step_share) over (
            partition by hour_at, cost_unit
            order by at_ns
            rows between unbounded preceding and 1 preceding
        ),
        0
    ) as share_before
from shares
