-- What a cost unit's hour costs, and how much of it its legs take.
-- Grain: one row per (UTC hour, cost unit) with legs, or with a priced worker. A unit is a worker,
-- or a pool (see int_cost_leg_hours). priced_nano is its capacity and host lines, direct_nano the
-- part for the time legs were busy, idle_nano the rest. Legs busier than the priced time are scaled
-- down to it: idle is 0 and is_over_attributed.
-- NULL: the money, where no card prices the unit.
-- unit: hour
with legs as (
    select * from int_cost_leg_hours
),

pool_units as (
    select distinct
        hour_at,
        pool,
        cost_unit
    from legs
    where allocation_basis = 'pool_sweep_line'
),

-- A worker's components cover the same time; the longest covered counts it.
components as (
    select
        hour_at,
        worker_id,
        pool,
        component,
        sum(nano_usd) as nano_usd,
        sum(duration_ns) as priced_ns
    from fct_cost_lines
    where line in ('capacity', 'host') and is_priced
    group by hour_at, worker_id, pool, component
),

workers as (
    select
        hour_at,
        worker_id,
        pool,
        sum(nano_usd) as nano_usd,
        max(priced_ns) as priced_ns
    from components
    group by hour_at, worker_id, pool
),

money as (
    select
        workers.hour_at,
        coalesce(pool_units.cost_unit, 'worker/' || workers.worker_id) as cost_unit,
        workers.pool,
        sum(workers.nano_usd) as priced_nano,
        sum(workers.priced_ns) as priced_ns
    from workers
    left join pool_units
        on workers.hour_at = pool_units.hour_at and workers.pool = pool_units.pool
    group by all
),

-- A pool is up while any of its workers is.
pool_islands as (
    select
        up.hour_at,
        pool_units.cost_unit,
        up.up_from_ns,
        up.up_to_ns,
        max(up.up_to_ns) over (
            partition by up.hour_at, up.pool
            order by up.up_from_ns, up.up_to_ns
            rows between unbounded preceding and 1 preceding
        ) as reached_ns
    from int_worker_intervals as up
    inner join pool_units on up.hour_at = pool_units.hour_at and up.pool = pool_units.pool
),

pool_time as (
    select
        hour_at,
        cost_unit,
        sum(greatest(0, up_to_ns - greatest(up_from_ns, coalesce(reached_ns, up_from_ns))))
            as up_ns
    from pool_islands
    group by hour_at, cost_unit
),

swept as (
    select
        hour_at,
        cost_unit,
        sum(busy_ns) as busy_ns
    from int_cost_sweep
    group by hour_at, cost_unit
),

busy as (
    select
        legs.hour_at,
        legs.cost_unit,
        any_value(legs.pool) as pool,
        any_value(legs.allocation_basis) as allocation_basis,
        coalesce(any_value(swept.busy_ns), sum(legs.measured_ns)) as busy_ns
    from legs
    left join swept on legs.hour_at = swept.hour_at and legs.cost_unit = swept.cost_unit
    where legs.cost_unit is not null
    group by legs.hour_at, legs.cost_unit
),

units as (
    select
        coalesce(money.hour_at, busy.hour_at) as hour_at,
        coalesce(money.cost_unit, busy.cost_unit) as cost_unit,
        coalesce(money.pool, busy.pool) as pool,
        busy.allocation_basis,
        money.priced_nano,
        coalesce(pool_time.up_ns, money.priced_ns)::hugeint as priced_ns,
        coalesce(busy.busy_ns, 0)::hugeint as busy_ns
    from money
    full outer join busy on money.hour_at = busy.hour_at and money.cost_unit = busy.cost_unit
    left join pool_time
        on money.hour_at = pool_time.hour_at and money.cost_unit = pool_time.cost_unit
),

split as (
    select
        *,
        share_floor(priced_nano, least(busy_ns, priced_ns), priced_ns) as direct_nano
    from units
)

select
    hour_at,
    cost_unit,
    pool,
    allocation_basis,
    priced_nano,
    priced_ns,
    busy_ns,
    direct_nano,
    priced_nano - direct_nano as idle_nano,
    busy_ns > priced_ns as is_over_attributed
from split
