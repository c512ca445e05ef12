-- Spans as delivered, read: hex ids, words for the OTLP enums, impossible values unknown.
-- Grain: one row per (trace_id, span_id); of repeats the earliest received stays.
-- Times are unix nanoseconds; an end before its start counts as the start, and is flagged.
-- NULL: the source did not say, or said what can't be (a negative count, an infinite duration).
-- unit: segment
-- key: trace_id, span_id
with spans as (
    select
        *,
        known_time(start_unix_ns, received_unix_ns) as started_unix_ns,
        case
            when end_unix_ns - start_unix_ns <= longest_span_ns()
                then known_time(end_unix_ns, received_unix_ns)
        end as said_ended_unix_ns
    from segments
    where signal = 'span' and trace_id is not null and span_id is not null
)

select
    lower(hex(trace_id)) as trace_id,
    lower(hex(span_id)) as span_id,
    lower(hex(parent_span_id)) as parent_span_id,
    received_unix_ns,
    dialect,
    service_name,
    name,
    case kind
        when 1 then 'internal'
        when 2 then 'server'
        when 3 then 'client'
        when 4 then 'producer'
        when 5 then 'consumer'
    end as kind,
    case status_code when 1 then 'ok' when 2 then 'error' else 'unset' end as status,
    status_message,
    started_unix_ns,
    case
        when said_ended_unix_ns is not null then greatest(started_unix_ns, said_ended_unix_ns)
    end as ended_unix_ns,
    is_attempt_root(
        case kind when 2 then 'server' when 3 then 'client' end, operation_name, request_id
    ) as is_root,
    tenant_id,
    operation_name,
    provider_name,
    coalesce(request_model, response_model) as model,
    response_model,
    response_id,
    conversation_id,
    coalesce(is_stream, chunk_gaps_us is not null) as is_stream,
    known_count(max_tokens) as max_tokens,
    known_count(n_choices) as n_choices,
    known_count(input_tokens) as input_tokens,
    known_count(output_tokens) as output_tokens,
    known_count(cache_read_tokens) as cache_read_tokens,
    known_count(reasoning_tokens) as reasoning_tokens,
    list_transform(finish_reasons, lambda reason: known_finish(reason)) as finish_reasons,
    known_amount(time_to_first_chunk_s) as time_to_first_chunk_s,
    error_type,
    http_status,
    http_route,
    request_id,
    case when attempt >= 1 then attempt end as attempt,
    slo_class,
    outcome,
    known_time(intended_start_unix_ns, received_unix_ns) as intended_start_unix_ns,
    known_count(first_message_us) as first_message_us,
    chunk_gaps_us,
    chunk_tokens,
    chunk_choices,
    worker_id,
    worker_role,
    worker_type,
    worker_pool,
    known_amount(device_seconds) as device_seconds,
    known_amount(cpu_seconds) as cpu_seconds,
    known_count(first_token_us) as first_token_us,
    known_count(prompt_tokens) as prompt_tokens,
    known_count(computed_tokens) as computed_tokens,
    known_count(generated_tokens) as generated_tokens,
    known_count(reused_tokens) as reused_tokens,
    known_count(block_tokens) as block_tokens,
    block_hashes,
    known_count(foreign_tenant_tokens) as foreign_tenant_tokens,
    known_count(kv_bytes) as kv_bytes,
    known_amount(kv_setup_s) as kv_setup_s,
    known_amount(kv_overlapped_s) as kv_overlapped_s,
    kv_src_dtype,
    kv_dst_dtype,
    kv_src_worker_id,
    kv_outcome,
    kept_flags([
        case when end_unix_ns < start_unix_ns then 'negative_duration' end,
        case
            when
                (start_unix_ns is not null and started_unix_ns is null)
                or (end_unix_ns is not null and said_ended_unix_ns is null)
                then 'impossible_time'
        end,
        case when dropped_attributes > 0 then 'dropped_attributes' end,
        case when dropped_events > 0 then 'dropped_events' end,
        case
            when
                list_contains(
                    attributes, { 'key': 'tokenmill.ingest.flag', 'value': 'gap_clamped' }
                )
                then 'gap_clamped'
        end
    ]) as flags,
    attributes,
    hash(
        name, kind, status_code, start_unix_ns, end_unix_ns, request_id, outcome, output_tokens,
        chunk_gaps_us, chunk_tokens, device_seconds, generated_tokens, attributes
    ) as payload_hash
from spans
qualify
    row_number() over (
        partition by trace_id, span_id
        order by received_unix_ns, payload_hash
    ) = 1
