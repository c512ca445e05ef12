-- Which requests the new rows say a trace may hold: all of them will be computed anew.
-- Grain: one row per (trace, request key) of the new spans and scores, and of attempts whose
-- missing decode is no longer waited for. Keys are tenant/request of each root span that names a
-- request, and always the trace's own, trace/<trace id>, for what no request claims.
-- unit: segment
-- key: trace_id, request_key
with named as (
    select
        trace_id,
        request_key_of(tenant_id, request_id) as request_key
    from stg_spans
    where is_root and request_id is not null
),

touched as (
    select trace_id
    from stg_spans
    union
    select coalesce(stg_scores.trace_id, request_map.trace_id) as trace_id
    from stg_scores
    left join request_map on stg_scores.request_key = request_map.request_key
    union
    select trace_id
    from int_missing_decodes
    where not is_due and due_unix_ns <= (select max(segments.received_unix_ns) from segments)
)

select
    trace_id,
    request_key
from named
union
select
    trace_id,
    trace_key_of(trace_id) as request_key
from touched
where trace_id is not null
