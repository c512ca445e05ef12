-- Hours that worker telemetry touches: a point bridges to its neighbours over gaps of less than
-- three report intervals, so the hours just before and after it may change with it. A point before
-- an up interval may move the start that its lines are counted from, and what it says of its worker
-- holds for all the worker's hours.
-- Grain: one row per hour.
with reaches as (
    select
        point_unix_ns,
        (3e9 * coalesce(report_interval_s, 60))::bigint as reach_ns
    from stg_worker_points
),

news as (
    select
        worker_id,
        worker_type,
        worker_pool,
        worker_role,
        n_accelerators,
        report_interval_s,
        min(point_unix_ns) as first_ns
    from stg_worker_points
    group by all
)

select
    unnest(
        range(
            date_trunc('hour', make_timestamp((point_unix_ns - reach_ns) // 1000)),
            make_timestamp((point_unix_ns + reach_ns) // 1000) + interval '1 microsecond',
            interval '1 hour'
        )
    ) as hour_at
from reaches
union
select known.hour_at
from int_worker_intervals as known
inner join news on known.worker_id = news.worker_id
where
    known.started_unix_ns > news.first_ns
    or is_news(known.worker_type, news.worker_type)
    or is_news(known.pool, news.worker_pool)
    or is_news(known.role, news.worker_role)
    or is_news(known.n_accelerators, news.n_accelerators)
    or is_news(known.report_interval_s, news.report_interval_s)
