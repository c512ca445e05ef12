-- KV transfers from a prefill worker to a decode worker: what each cost the caller's wait.
-- Grain: one row per transfer; handoff_index counts an attempt's from 0 in order of start.
-- transfer_s is the moving itself, after setup_s; overlapped_s ran while prefill still did;
-- residue_s is what the critical path waited after prefill's end until the KV was ready;
-- decode_wait_s from then to the first decode step. Bandwidth is kv_bytes over transfer_s.
-- outcome: done, failed, expired, recomputed or incompatible. NULL: the source can't see it.
-- unit: request
with spans as (
    select * from int_leg_spans
),

transfers as (
    select
        *,
        row_number() over (
            partition by request_key, attempt
            order by started_unix_ns, span_id
        ) - 1 as handoff_index,
        seconds_between(started_unix_ns, ended_unix_ns) - coalesce(kv_setup_s, 0) as moving_s
    from spans
    where name = 'kv_transfer'
),

-- The prefill that had ended, or ended last, when the KV was ready.
prefills as (
    select
        transfers.request_key,
        transfers.attempt,
        transfers.handoff_index,
        max_by(
            spans.ended_unix_ns,
            (spans.started_unix_ns <= transfers.ended_unix_ns, spans.started_unix_ns)
        ) as prefill_ended_unix_ns,
        max_by(
            spans.worker_id,
            (spans.started_unix_ns <= transfers.ended_unix_ns, spans.started_unix_ns)
        ) as prefill_worker_id
    from transfers
    inner join spans
        on
            transfers.request_key = spans.request_key
            and transfers.attempt = spans.attempt
    where spans.name = 'prefill'
    group by transfers.request_key, transfers.attempt, transfers.handoff_index
),

decodes as (
    select
        transfers.request_key,
        transfers.attempt,
        transfers.handoff_index,
        min(spans.started_unix_ns) as decode_started_unix_ns
    from transfers
    inner join spans
        on
            transfers.request_key = spans.request_key
            and transfers.attempt = spans.attempt
            and transfers.worker_id = spans.worker_id
            and transfers.ended_unix_ns <= spans.started_unix_ns
    where spans.name = 'decode'
    group by transfers.request_key, transfers.attempt, transfers.handoff_index
)

select
    transfers.request_key,
    transfers.request_id,
    transfers.tenant_id,
    transfers.attempt,
    transfers.handoff_index,
    transfers.trace_id,
    coalesce(transfers.kv_src_worker_id, prefills.prefill_worker_id) as src_worker_id,
    transfers.worker_id as dst_worker_id,
    transfers.worker_pool as dst_pool,
    at_utc(transfers.started_unix_ns) as started_at,
    at_utc(transfers.ended_unix_ns) as ended_at,
    transfers.started_unix_ns,
    transfers.ended_unix_ns,
    transfers.kv_setup_s as setup_s,
    transfers.kv_bytes,
    case when transfers.moving_s >= 0 then transfers.moving_s end as transfer_s,
    case
        when transfers.kv_overlapped_s is not null then transfers.kv_overlapped_s
        when prefills.prefill_ended_unix_ns is not null
            then
                greatest(
                    0.0,
                    seconds_between(
                        transfers.started_unix_ns,
                        least(transfers.ended_unix_ns, prefills.prefill_ended_unix_ns)
                    )
                )
    end as overlapped_s,
    case
        when prefills.prefill_ended_unix_ns is not null
            then
                greatest(
                    0.0,
                    seconds_between(prefills.prefill_ended_unix_ns, transfers.ended_unix_ns)
                )
    end as residue_s,
    seconds_between(transfers.ended_unix_ns, decodes.decode_started_unix_ns) as decode_wait_s,
    case when transfers.moving_s > 0 then transfers.kv_bytes / transfers.moving_s end
        as bandwidth_bytes_per_s,
    transfers.kv_src_dtype as src_dtype,
    transfers.kv_dst_dtype as dst_dtype,
    transfers.kv_outcome as outcome
from transfers
left join prefills
    on
        transfers.request_key = prefills.request_key
        and transfers.attempt = prefills.attempt
        and transfers.handoff_index = prefills.handoff_index
left join decodes
    on
        transfers.request_key = decodes.request_key
        and transfers.attempt = decodes.attempt
        and transfers.handoff_index = decodes.handoff_index
