-- Which request the new spans say their trace belongs to.
-- Grain: one row per trace of the new spans. The key is tenant/request where a root span names a
-- request, else trace/<trace id>; of several roots in one trace the latest to start decides.
-- unit: segment
-- key: trace_id, request_key
select
    trace_id,
    coalesce(
        max_by(
            request_key_of(tenant_id, request_id), (started_unix_ns, span_id)
        ) filter (where is_root and request_id is not null),
        trace_key_of(trace_id)
    ) as request_key
from stg_spans
group by trace_id
