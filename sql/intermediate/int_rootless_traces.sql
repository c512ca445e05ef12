-- Traces of which only parts have come: the attempt's own span is late, lost, or never was.
-- Grain: one row per trace_id without a root span.
-- unit: request
select
    request_key,
    trace_id,
    count(*) as n_spans,
    max(received_unix_ns) as received_unix_ns
from int_request_spans
group by request_key, trace_id
having not bool_or(is_root)
