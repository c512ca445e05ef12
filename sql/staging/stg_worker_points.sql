-- Worker telemetry as delivered: one value of one metric of one worker at one instant.
-- Grain: one row per (worker, metric, phase, KV state, instant); of repeats the earliest received
-- stays. Times are unix nanoseconds. NULL: the source did not say, or said what can't be.
-- unit: segment
-- key: worker_id, metric_name, phase, kv_state, point_unix_ns
with points as (
    select
        *,
        attribute_of(point_attributes, 'tokenmill.phase') as phase,
        attribute_of(point_attributes, 'tokenmill.kv.state') as kv_state
    from segments
    where
        signal = 'metric'
        and worker_id is not null
        and metric_name is not null
        and known_time(point_unix_ns, received_unix_ns) is not null
)

select
    worker_id,
    worker_role,
    worker_type,
    worker_pool,
    case when n_accelerators between 0 and 1000000 then n_accelerators end as n_accelerators,
    case when report_interval_s between 0.001 and 86400 then report_interval_s end
        as report_interval_s,
    metric_name,
    phase,
    kv_state,
    point_unix_ns,
    case when isfinite(point_value) and point_value between 0 and 1e18 then point_value end
        as point_value,
    received_unix_ns
from points
qualify
    row_number() over (
        partition by worker_id, metric_name, phase, kv_state, point_unix_ns
        order by received_unix_ns, point_value
    ) = 1
