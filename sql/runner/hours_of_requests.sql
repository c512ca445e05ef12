-- Hours that the dirty requests' legs, attempts and ends touch, in the rows that now stand. A leg
-- is a sign of its worker's life: it bridges gaps of less than three report intervals, may move
-- the start of a later up interval, and what it says of its worker holds for all its hours.
-- Grain: one row per hour.
with legs as (
    select fct_legs.*
    from fct_legs
    inner join dirty_requests on fct_legs.request_key = dirty_requests.request_key
    where fct_legs.started_unix_ns is not null and fct_legs.ended_unix_ns is not null
),

reaches as (
    select
        worker_id,
        (3e9 * max(report_interval_s))::bigint as reach_ns
    from int_worker_intervals
    group by worker_id
),

spells as (
    select
        attempts.arrived_unix_ns as from_ns,
        attempts.ended_unix_ns as to_ns
    from fct_attempts as attempts
    inner join dirty_requests on attempts.request_key = dirty_requests.request_key
    union all
    select
        legs.started_unix_ns - coalesce(reaches.reach_ns, 180000000000) as from_ns,
        legs.ended_unix_ns + coalesce(reaches.reach_ns, 180000000000) as to_ns
    from legs
    left join reaches on legs.worker_id = reaches.worker_id
)

select
    unnest(
        range(
            hour_of_ns(from_ns), at_utc(to_ns) + interval '1 microsecond', interval '1 hour'
        )
    ) as hour_at
from spells
where from_ns is not null and to_ns is not null
union
select known.hour_at
from int_worker_intervals as known
inner join legs on known.worker_id = legs.worker_id
where
    known.started_unix_ns >= legs.started_unix_ns
    or is_news(known.worker_type, legs.worker_type)
    or is_news(known.pool, legs.pool)
    or is_news(known.role, legs.role)
