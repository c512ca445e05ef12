-- Direct cost: each unit-hour's busy money over its legs, by largest remainder.
-- Grain: one row per (UTC hour, request, attempt, leg). Ties go to the smaller (request, attempt,
-- leg). NULL: direct_nano where the unit is unknown or unpriced.
-- unit: hour
with weighed as (
    select
        legs.*,
        units.direct_nano as unit_nano,
        coalesce(units.is_over_attributed, false) as is_over_attributed,
        case legs.allocation_basis
            when 'measured' then legs.measured_ns
            else closing.share_before - opening.share_before
        end as weight
    from int_cost_leg_hours as legs
    left join int_cost_units as units
        on legs.hour_at = units.hour_at and legs.cost_unit = units.cost_unit
    left join int_cost_sweep as opening
        on
            legs.hour_at = opening.hour_at
            and legs.cost_unit = opening.cost_unit
            and legs.from_ns = opening.at_ns
    left join int_cost_sweep as closing
        on
            legs.hour_at = closing.hour_at
            and legs.cost_unit = closing.cost_unit
            and legs.to_ns = closing.at_ns
),

summed as (
    select
        *,
        sum(weight) over (partition by hour_at, cost_unit) as weights
    from weighed
),

floored as (
    select
        *,
        case
            when unit_nano is not null then coalesce(share_floor(unit_nano, weight, weights), 0)
        end as nano,
        row_number() over (
            partition by hour_at, cost_unit
            order by
                share_remainder(unit_nano, weight, weights) desc nulls last,
                request_key asc,
                attempt asc,
                leg_index asc,
                trace_id asc
        ) as place
    from summed
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
    allocation_basis,
    is_over_attributed,
    nano
    + (place <= unit_nano - sum(nano) over (partition by hour_at, cost_unit))::integer
        as direct_nano
from floored
