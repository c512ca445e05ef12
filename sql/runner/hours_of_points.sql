-- Hours that worker telemetry touches: a point bridges to its neighbours over gaps of less than
-- three report intervals, so the hours just before and after it may change with it.
-- Grain: one row per hour.
with reaches as (
    select
        point_unix_ns,
        (3e9 * coalesce(report_interval_s, 60))::bigint as reach_ns
    from stg_worker_points
)

select distinct
    unnest(
        range(
            date_trunc('hour', make_timestamp((point_unix_ns - reach_ns) // 1000)),
            make_timestamp((point_unix_ns + reach_ns) // 1000) + interval '1 microsecond',
            interval '1 hour'
        )
    ) as hour_at
from reaches
