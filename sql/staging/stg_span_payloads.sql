-- What each span was delivered as: more than one row for a span is a conflict, whatever batch its
-- repeats came in.
-- Grain: one row per (trace_id, span_id, payload_hash).
-- unit: segment
-- key: trace_id, span_id, payload_hash
select distinct
    lower(hex(trace_id)) as trace_id,
    lower(hex(span_id)) as span_id,
    hash(
        name, kind, status_code, start_unix_ns, end_unix_ns, request_id, outcome, output_tokens,
        chunk_gaps_us, chunk_tokens, device_seconds, generated_tokens, attributes
    ) as payload_hash
from segments
where signal = 'span' and trace_id is not null and span_id is not null
