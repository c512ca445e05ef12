-- When each worker was up: from a first sign of life to the last one plus one report interval,
-- gaps of less than three intervals being up. A sign is a metric point or a leg that it ran.
-- Grain: one row per (UTC hour, worker, interval that overlaps the hour). started_ and
-- ended_unix_ns are the whole interval's, also where it reaches beyond the hour.
-- A worker without a report interval has 60 s, the OpenTelemetry SDKs' default export interval.
-- NULL: nobody said. Of a worker's changing attributes the latest said by the hour's end hold in
-- the hour, and the first said in hours before any: a worker that comes back as another type
-- changes no bill of before. The report interval is the latest said, throughout.
-- unit: hour
with signs as (
    select
        worker_id,
        point_unix_ns as from_ns,
        point_unix_ns as to_ns,
        worker_type,
        worker_pool as pool,
        worker_role as role,
        n_accelerators,
        report_interval_s
    from stg_worker_points
    where metric_name <> 'tokenmill.worker.up' or point_value > 0
    union all by name
    select
        worker_id,
        started_unix_ns as from_ns,
        ended_unix_ns as to_ns,
        worker_type,
        pool,
        role
    from fct_legs
    where worker_id is not null and started_unix_ns is not null and ended_unix_ns is not null
),

workers as (
    select
        worker_id,
        coalesce(
            arg_max(report_interval_s, (from_ns, report_interval_s))
            filter (where report_interval_s > 0),
            60
        ) as report_interval_s
    from signs
    group by worker_id
),

said as (
    select
        worker_id,
        hour_of_ns(from_ns) as hour_at,
        arg_max(worker_type, (from_ns, worker_type)) as worker_type,
        arg_max(pool, (from_ns, pool)) as pool,
        arg_max(role, (from_ns, role)) as role,
        arg_max(n_accelerators, (from_ns, n_accelerators)) as n_accelerators
    from signs
    group by worker_id, hour_of_ns(from_ns)
),

described as (
    select
        worker_id,
        hour_at,
        coalesce(
            last_value(worker_type ignore nulls) over until_now,
            first_value(worker_type ignore nulls) over ever
        ) as worker_type,
        coalesce(
            last_value(pool ignore nulls) over until_now,
            first_value(pool ignore nulls) over ever
        ) as pool,
        coalesce(
            last_value(role ignore nulls) over until_now,
            first_value(role ignore nulls) over ever
        ) as role,
        coalesce(
            last_value(n_accelerators ignore nulls) over until_now,
            first_value(n_accelerators ignore nulls) over ever
        ) as n_accelerators
    from said
    window
        until_now as (
            partition by worker_id
            order by hour_at
            rows between unbounded preceding and current row
        ),
        ever as (
            partition by worker_id
            order by hour_at
            rows between unbounded preceding and unbounded following
        )
),

spells as (
    select distinct
        signs.worker_id,
        signs.from_ns,
        signs.to_ns,
        (workers.report_interval_s * 1e9)::bigint as interval_ns
    from signs
    inner join workers on signs.worker_id = workers.worker_id
),

breaks as (
    select
        *,
        coalesce(
            from_ns - max(to_ns) over (
                partition by worker_id
                order by from_ns, to_ns
                rows between unbounded preceding and 1 preceding
            ) >= 3 * interval_ns,
            false
        ) as is_after_gap
    from spells
),

numbered as (
    select
        *,
        count_if(is_after_gap) over (
            partition by worker_id
            order by from_ns, to_ns
            rows between unbounded preceding and current row
        ) as interval_index
    from breaks
),

intervals as (
    select
        worker_id,
        interval_index,
        min(from_ns) as started_unix_ns,
        max(to_ns) + any_value(interval_ns) as ended_unix_ns
    from numbered
    group by worker_id, interval_index
),

pieces as (
    select
        dirty_hours.hour_at,
        intervals.worker_id,
        intervals.started_unix_ns,
        intervals.ended_unix_ns,
        greatest(intervals.started_unix_ns, hour_start_ns(dirty_hours.hour_at)) as up_from_ns,
        least(intervals.ended_unix_ns, hour_end_ns(dirty_hours.hour_at)) as up_to_ns
    from intervals
    inner join dirty_hours
        on
            intervals.started_unix_ns < hour_end_ns(dirty_hours.hour_at)
            and intervals.ended_unix_ns > hour_start_ns(dirty_hours.hour_at)
)

select
    pieces.hour_at,
    pieces.worker_id,
    described.worker_type,
    described.pool,
    described.role,
    described.n_accelerators,
    workers.report_interval_s,
    pieces.started_unix_ns,
    pieces.ended_unix_ns,
    pieces.up_from_ns,
    pieces.up_to_ns
from pieces
inner join workers on pieces.worker_id = workers.worker_id
asof left join described
    on pieces.worker_id = described.worker_id and pieces.hour_at >= described.hour_at
