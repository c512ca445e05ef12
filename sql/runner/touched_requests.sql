-- Requests that new rows touch: every one that their traces may hold.
-- Grain: one row per request key.
select request_key
from int_trace_keys
union
select request_map.request_key
from request_map
inner join int_trace_keys on request_map.trace_id = int_trace_keys.trace_id
