-- The workers' spans, each with the attempt it worked for: the one whose root is its parent, else
-- the trace's only one, else the last that had arrived when it started.
-- Grain: one row per span. A span whose trace has no root yet counts as attempt 1 of a request
-- known by its trace id. leg_role: what the worker says it is; where it doesn't, a worker that did
-- both phases is unified.
-- unit: request
with spans as (
    select *
    from int_request_spans
    where name in ('queue', 'prefill', 'kv_transfer', 'decode_wait', 'decode') and not is_root
),

owned as (
    select
        spans.*,
        int_attempts.attempt as owner_attempt,
        int_attempts.request_id as owner_request_id,
        int_attempts.tenant_id as owner_tenant_id
    from spans
    left join int_attempts
        on
            spans.request_key = int_attempts.request_key
            and spans.trace_id = int_attempts.trace_id
    qualify
        row_number() over (
            partition by spans.trace_id, spans.span_id
            order by
                coalesce(
                    spans.parent_span_id
                    in (int_attempts.gateway_span_id, int_attempts.client_span_id),
                    false
                ) desc,
                coalesce(spans.started_unix_ns >= int_attempts.arrived_unix_ns, false) desc,
                int_attempts.arrived_unix_ns desc,
                int_attempts.attempt desc
        ) = 1
)

select
    request_key,
    coalesce(owner_request_id, request_id, trace_id) as request_id,
    coalesce(owner_tenant_id, tenant_id) as tenant_id,
    coalesce(owner_attempt, 1) as attempt,
    trace_id,
    span_id,
    name,
    case
        when worker_role in ('unified', 'prefill', 'decode') then worker_role
        when
            worker_id is not null
            and count(distinct name) filter (where name in ('prefill', 'decode'))
                over (partition by request_key, owner_attempt, trace_id, worker_id)
            = 2
            then 'unified'
        when name in ('queue', 'prefill') then 'prefill'
        else 'decode'
    end as leg_role,
    worker_id,
    worker_type,
    worker_pool,
    started_unix_ns,
    ended_unix_ns,
    device_seconds,
    cpu_seconds,
    first_token_us,
    prompt_tokens,
    computed_tokens,
    generated_tokens,
    reused_tokens,
    block_tokens,
    block_hashes,
    foreign_tenant_tokens,
    kv_bytes,
    kv_setup_s,
    kv_overlapped_s,
    kv_src_dtype,
    kv_dst_dtype,
    kv_src_worker_id,
    kv_outcome
from owned
