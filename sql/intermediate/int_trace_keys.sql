-- Which request the new rows say their trace belongs to.
-- Grain: one row per trace of the new spans and scores. The key is tenant/request where a root
-- span names a request, else trace/<trace id>; of several roots in one trace the latest to start
-- decides.
-- unit: segment
-- key: trace_id, request_key
with span_traces as (
    select
        trace_id,
        max_by(request_key_of(tenant_id, request_id), (started_unix_ns, span_id))
        filter (where is_root and request_id is not null)
            as root_key
    from stg_spans
    group by trace_id
),

score_traces as (
    select distinct
        trace_id,
        null::varchar as root_key
    from stg_scores
    where trace_id is not null
),

traces as (
    select * from span_traces
    union all
    select * from score_traces
)

select
    trace_id,
    coalesce(max(root_key), trace_key_of(trace_id)) as request_key
from traces
group by trace_id
