-- Traces of the new spans with the request they belonged to and the one they belong to now.
-- Grain: one row per trace of int_trace_keys. old_key is NULL for a trace not seen before. A key
-- from a root span is never given up for the trace's own.
select
    arrivals.trace_id,
    known.request_key as old_key,
    case
        when known.request_key is null or arrivals.request_key not like 'trace/%'
            then arrivals.request_key
        else known.request_key
    end as new_key
from int_trace_keys as arrivals
left join request_map as known on arrivals.trace_id = known.trace_id
