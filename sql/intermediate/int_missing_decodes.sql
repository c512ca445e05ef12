-- Attempts whose decode must have run but was not reported: prefill ended, two chunks or more
-- arrived, and there is no decode span.
-- Grain: one row per such (request_key, attempt). is_due: the record reaches the grace time past
-- the attempt's end, so the span is not waited for any longer. decode_worker_id: where a transfer
-- or a unified worker's prefill says it would run; NULL: not known.
-- unit: request
with work as (
    select
        request_key,
        attempt,
        max(ended_unix_ns) filter (where name = 'prefill') as prefill_ended_unix_ns,
        max_by(worker_id, started_unix_ns)
        filter (where leg_role in ('decode', 'unified')) as decode_worker_id,
        bool_or(leg_role in ('decode', 'unified')) as has_decode_leg
    from int_leg_spans
    where name in ('prefill', 'kv_transfer', 'decode')
    group by request_key, attempt
    having not bool_or(name = 'decode')
),

chunk_counts as (
    select
        request_key,
        attempt,
        max(n_chunks) as n_chunks
    from int_streams
    group by request_key, attempt
)

select
    attempts.request_key,
    attempts.request_id,
    attempts.tenant_id,
    attempts.attempt,
    attempts.trace_id,
    attempts.ended_unix_ns,
    work.prefill_ended_unix_ns,
    work.decode_worker_id,
    work.has_decode_leg,
    attempts.ended_unix_ns + missing_leg_grace_ns() as due_unix_ns,
    not exists (
        from watermark
        where received_unix_ns < attempts.ended_unix_ns + missing_leg_grace_ns()
    ) as is_due
from int_attempts as attempts
inner join work
    on attempts.request_key = work.request_key and attempts.attempt = work.attempt
inner join chunk_counts
    on
        attempts.request_key = chunk_counts.request_key
        and attempts.attempt = chunk_counts.attempt
where chunk_counts.n_chunks >= 2 and work.prefill_ended_unix_ns < attempts.ended_unix_ns
