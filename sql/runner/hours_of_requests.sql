-- Hours that the dirty requests' legs, attempts and ends touch, in the rows that now stand.
-- Grain: one row per hour.
with spells as (
    select
        request_key,
        arrived_at as started_at,
        ended_at
    from fct_attempts
    union all
    select
        request_key,
        started_at,
        ended_at
    from fct_legs
)

select distinct
    unnest(
        range(
            date_trunc('hour', spells.started_at),
            spells.ended_at + interval '1 microsecond',
            interval '1 hour'
        )
    ) as hour_at
from spells
inner join dirty_requests on spells.request_key = dirty_requests.request_key
where spells.started_at is not null and spells.ended_at is not null
