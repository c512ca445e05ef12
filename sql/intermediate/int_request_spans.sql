-- The spans of the requests that are computed now.
-- Grain: one row per span. Units and NULL as in stg_spans. has_conflict: the span was delivered
-- with more than one content.
-- unit: request
with spans as (
    select
        dirty_requests.request_key,
        stg_spans.*
    from dirty_requests
    inner join request_map on dirty_requests.request_key = request_map.request_key
    inner join stg_spans on request_map.trace_id = stg_spans.trace_id
),

conflicts as (
    select
        stg_span_payloads.trace_id,
        stg_span_payloads.span_id
    from dirty_requests
    inner join request_map on dirty_requests.request_key = request_map.request_key
    inner join stg_span_payloads on request_map.trace_id = stg_span_payloads.trace_id
    group by stg_span_payloads.trace_id, stg_span_payloads.span_id
    having count(*) > 1
)

select
    spans.*,
    conflicts.span_id is not null as has_conflict
from spans
left join conflicts
    on spans.trace_id = conflicts.trace_id and spans.span_id = conflicts.span_id
