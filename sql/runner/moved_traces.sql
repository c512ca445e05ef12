-- Traces of the new spans with the request they belonged to and the one they belong to now: the
-- root that started first decides, in whatever order roots arrive.
-- Grain: one row per trace of int_trace_keys. old_key is NULL for a trace not seen before.
select
    arrivals.trace_id,
    known.request_key as old_key,
    case
        -- In a row comparison NULL comes last: a trace without a root gives way to any root.
        when
            known.trace_id is null
            or (arrivals.root_started_unix_ns, arrivals.request_key)
            < (known.root_started_unix_ns, known.request_key)
            then arrivals.request_key
        else known.request_key
    end as new_key,
    least(known.root_started_unix_ns, arrivals.root_started_unix_ns) as root_started_unix_ns
from int_trace_keys as arrivals
left join request_map as known on arrivals.trace_id = known.trace_id
