-- Legs cut at the hours, and what each piece's cost is a share of.
-- Grain: one row per (UTC hour, request, attempt, leg). cost_unit is the worker, or the whole pool
-- in a pool-hour where some leg knows its pool and not its worker. allocation_basis is measured |
-- sweep_line | pool_sweep_line. measured_ns is the leg's device time that falls into the hour, by
-- wall overlap.
-- NULL: measured_ns where the leg has no device_seconds; cost_unit and allocation_basis where
-- neither worker nor pool is known, so that nobody can say what the leg cost.
-- unit: hour
with legs as (
    select *
    from fct_legs
    where started_unix_ns is not null and ended_unix_ns is not null
),

workers as (
    select distinct
        hour_at,
        worker_id,
        worker_type,
        pool
    from int_worker_intervals
),

cut as (
    select
        dirty_hours.hour_at,
        legs.*,
        round(legs.device_seconds * 1e9)::hugeint as device_ns,
        legs.ended_unix_ns - legs.started_unix_ns as wall_ns,
        greatest(legs.started_unix_ns, hour_start_ns(dirty_hours.hour_at)) as from_ns,
        least(legs.ended_unix_ns, hour_end_ns(dirty_hours.hour_at)) as to_ns
    from legs
    inner join dirty_hours
        on
            legs.started_unix_ns < hour_end_ns(dirty_hours.hour_at)
            and legs.ended_unix_ns >= hour_start_ns(dirty_hours.hour_at)
    where
        legs.ended_unix_ns > hour_start_ns(dirty_hours.hour_at)
        or legs.started_unix_ns = legs.ended_unix_ns
),

placed as (
    select
        cut.* exclude (worker_type, pool),
        coalesce(workers.worker_type, cut.worker_type) as worker_type,
        coalesce(workers.pool, cut.pool) as pool,
        case
            when cut.wall_ns = 0 then cut.device_ns
            else
                cut.device_ns * (cut.to_ns - cut.started_unix_ns) // cut.wall_ns
                - cut.device_ns * (cut.from_ns - cut.started_unix_ns) // cut.wall_ns
        end as measured_ns
    from cut
    left join workers on cut.hour_at = workers.hour_at and cut.worker_id = workers.worker_id
),

units as (
    select
        *,
        case
            when pool is not null and bool_or(worker_id is null) over (partition by hour_at, pool)
                then 'pool/' || pool
            when worker_id is not null then 'worker/' || worker_id
        end as cost_unit
    from placed
)

select
    hour_at,
    request_key,
    request_id,
    attempt,
    leg_index,
    role,
    trace_id,
    worker_id,
    worker_type,
    pool,
    is_inferred,
    from_ns,
    to_ns,
    measured_ns,
    cost_unit,
    case
        when cost_unit like 'pool/%' then 'pool_sweep_line'
        when bool_and(measured_ns is not null) over (partition by hour_at, cost_unit)
            then 'measured'
        when cost_unit is not null then 'sweep_line'
    end as allocation_basis
from units
