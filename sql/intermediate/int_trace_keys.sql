-- Which request the new rows say their trace belongs to: it will be computed anew.
-- Grain: one row per trace of the new spans and scores, and of attempts whose missing decode is no
-- longer waited for. The key is tenant/request where a root span names a request, else
-- trace/<trace id>; of several roots in one trace the first to start decides, which is the
-- outermost where one stands before another. root_started_unix_ns is its start, NULL without one.
-- unit: segment
-- key: trace_id, request_key
with span_traces as (
    select
        trace_id,
        min_by(request_key_of(tenant_id, request_id), (started_unix_ns, span_id))
        filter (where is_root and request_id is not null) as root_key,
        min(started_unix_ns) filter (where is_root and request_id is not null)
            as root_started_unix_ns
    from stg_spans
    group by trace_id
),

scored_traces as (
    select
        coalesce(stg_scores.trace_id, request_map.trace_id) as trace_id,
        null::varchar as root_key,
        null::bigint as root_started_unix_ns
    from stg_scores
    left join request_map on stg_scores.request_key = request_map.request_key
),

due_traces as (
    select
        trace_id,
        null::varchar as root_key,
        null::bigint as root_started_unix_ns
    from int_missing_decodes
    where not is_due and due_unix_ns <= (select max(segments.received_unix_ns) from segments)
),

traces as (
    select * from span_traces
    union all
    select * from scored_traces
    union all
    select * from due_traces
)

select
    trace_id,
    coalesce(max(root_key), trace_key_of(trace_id)) as request_key,
    min(root_started_unix_ns) as root_started_unix_ns
from traces
where trace_id is not null
group by trace_id
