-- The parts of attempts on one worker each: what costs are drawn from.
-- Grain: one row per (request_key, attempt, leg_index); leg_index counts from 0 in order of start.
-- A prefill leg lasts as long as its prefill span, a decode leg from the start of its transfer to
-- the end of decoding, a unified leg from prefill to the end of decoding; a worker that only
-- queued the attempt has no leg. Seconds are of the whole worker.
-- A decode leg that must have run but left no decode span (prefill ended, two chunks or more
-- arrived, the attempt is over for the grace time) is_inferred: it lasts to the attempt's end, on
-- the worker that took the transfer where one is known.
-- NULL: device_seconds, not measured; worker, type and pool, not known; tokens, not said.
-- unit: request
with spans as (
    select * from int_leg_spans
),

seen as (
    select
        request_key,
        request_id,
        tenant_id,
        attempt,
        leg_role as role,
        trace_id,
        worker_id,
        max(worker_type) as worker_type,
        max(worker_pool) as pool,
        coalesce(
            min(started_unix_ns) filter (where leg_role = 'prefill' and name = 'prefill'),
            min(started_unix_ns) filter (where name in ('prefill', 'kv_transfer', 'decode'))
        ) as started_unix_ns,
        coalesce(
            max(ended_unix_ns) filter (where leg_role = 'prefill' and name = 'prefill'),
            max(ended_unix_ns) filter (where name != 'queue')
        ) as ended_unix_ns,
        sum(device_seconds) as device_seconds,
        sum(cpu_seconds) as cpu_seconds,
        max(prompt_tokens) as prompt_tokens,
        sum(computed_tokens)::bigint as computed_tokens,
        max(reused_tokens) as reused_tokens,
        sum(generated_tokens)::bigint as generated_tokens,
        max(block_tokens) as block_tokens,
        max_by(block_hashes, len(block_hashes)) as block_hashes,
        max(foreign_tenant_tokens) as foreign_tenant_tokens
    from spans
    group by request_key, request_id, tenant_id, attempt, leg_role, trace_id, worker_id
    having bool_or(name in ('prefill', 'kv_transfer', 'decode'))
),

-- Attempts that got chunks from a decode nobody reported, waited for long enough.
undecoded as (
    select * from int_missing_decodes
    where is_due
),

completed as (
    select
        seen.* replace (
            case
                when undecoded.request_key is null then seen.ended_unix_ns
                else greatest(seen.ended_unix_ns, undecoded.ended_unix_ns)
            end as ended_unix_ns,
            case when undecoded.request_key is null then seen.device_seconds end
                as device_seconds,
            case when undecoded.request_key is null then seen.cpu_seconds end as cpu_seconds
        ),
        undecoded.request_key is not null as is_inferred
    from seen
    left join undecoded
        on
            seen.request_key = undecoded.request_key
            and seen.attempt = undecoded.attempt
            and seen.role in ('decode', 'unified')
            and seen.worker_id is not distinct from undecoded.decode_worker_id
    union all by name
    select
        request_key,
        request_id,
        tenant_id,
        attempt,
        'decode' as role,
        trace_id,
        prefill_ended_unix_ns as started_unix_ns,
        ended_unix_ns,
        true as is_inferred
    from undecoded
    where not has_decode_leg
)

select
    request_key,
    request_id,
    tenant_id,
    attempt,
    role,
    row_number() over (
        partition by request_key, attempt
        order by started_unix_ns, role = 'decode', trace_id, worker_id
    ) - 1 as leg_index,
    trace_id,
    worker_id,
    worker_type,
    pool,
    at_utc(started_unix_ns) as started_at,
    at_utc(ended_unix_ns) as ended_at,
    started_unix_ns,
    ended_unix_ns,
    device_seconds,
    cpu_seconds,
    prompt_tokens,
    computed_tokens,
    reused_tokens,
    generated_tokens,
    block_tokens,
    block_hashes,
    foreign_tenant_tokens,
    is_inferred
from completed
