-- The bill laid over the legs: what each took (direct), its part of its pool's idle time, and of
-- what all share. In every hour the slices and what is unallocated add up to the bill exactly.
-- Grain: one row per (UTC hour, request, attempt, leg). *_nano are whole nano-USD, *_usd the same.
-- allocation_basis is measured | sweep_line | pool_sweep_line.
-- NULL: the money of a leg whose worker has no price, or is unknown with its pool
-- (allocation_basis NULL).
-- unit: hour
with direct as (
    select * from int_cost_direct
),

idle_pots as (
    select *
    from int_cost_pots
    where kind = 'idle' and not is_unallocated
),

shared_pots as (
    select
        hour_at,
        sum(nano_usd) as nano_usd,
        any_value(direct_nano) as direct_nano
    from int_cost_pots
    where kind <> 'idle' and not is_unallocated
    group by hour_at
),

floored as (
    select
        direct.*,
        idle_pots.nano_usd as idle_pot,
        shared_pots.nano_usd as shared_pot,
        coalesce(
            share_floor(idle_pots.nano_usd, direct.direct_nano, idle_pots.direct_nano), 0
        ) as idle_floor,
        share_remainder(idle_pots.nano_usd, direct.direct_nano, idle_pots.direct_nano)
            as idle_remainder,
        coalesce(
            share_floor(shared_pots.nano_usd, direct.direct_nano, shared_pots.direct_nano), 0
        ) as shared_floor,
        share_remainder(shared_pots.nano_usd, direct.direct_nano, shared_pots.direct_nano)
            as shared_remainder
    from direct
    left join idle_pots
        on direct.hour_at = idle_pots.hour_at and direct.pool is not distinct from idle_pots.pool
    left join shared_pots on direct.hour_at = shared_pots.hour_at
),

placed as (
    select
        *,
        row_number() over (
            partition by hour_at, pool
            order by
                idle_remainder desc nulls last,
                request_key asc,
                attempt asc,
                leg_index asc,
                trace_id asc
        ) as idle_place,
        row_number() over (
            partition by hour_at
            order by
                shared_remainder desc nulls last,
                request_key asc,
                attempt asc,
                leg_index asc,
                trace_id asc
        ) as shared_place,
        coalesce(idle_pot, 0) - sum(idle_floor) over (partition by hour_at, pool) as idle_rest,
        coalesce(shared_pot, 0) - sum(shared_floor) over (partition by hour_at) as shared_rest
    from floored
),

nanos as (
    select
        *,
        direct_nano::bigint as direct,
        case
            when direct_nano is not null
                then (idle_floor + (idle_place <= idle_rest)::integer)::bigint
        end as idle,
        case
            when direct_nano is not null
                then (shared_floor + (shared_place <= shared_rest)::integer)::bigint
        end as shared
    from placed
)

select
    request_key,
    request_id,
    attempt,
    leg_index,
    role,
    trace_id,
    worker_id,
    worker_type,
    pool,
    hour_at,
    allocation_basis,
    direct as direct_nano,
    idle as idle_nano,
    shared as shared_nano,
    nano_to_usd(direct) as direct_usd,
    nano_to_usd(idle) as idle_usd,
    nano_to_usd(shared) as shared_usd,
    case when is_over_attributed then ['over_attributed'] else []::varchar[] end as flags
from nanos
