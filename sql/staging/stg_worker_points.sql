-- Worker telemetry as delivered: one value of one metric of one worker at one instant.
-- Grain: one row per (worker, metric, phase, KV state, instant); of repeats the earliest received
-- stays. Times are unix nanoseconds. NULL: the source did not say.
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
        and point_unix_ns is not null
)

select
    worker_id,
    worker_role,
    worker_type,
    worker_pool,
    n_accelerators,
    report_interval_s,
    metric_name,
    phase,
    kv_state,
    point_unix_ns,
    point_value,
    received_unix_ns
from points
qualify
    row_number() over (
        partition by worker_id, metric_name, phase, kv_state, point_unix_ns
        order by received_unix_ns, point_value
    ) = 1
