-- Where the time to the first token went, on the gateway's clock chain.
-- Grain: one row per (request_key, attempt) with a known TTFT (gateway, else engine). Seconds; the
-- five parts and other_s sum to that TTFT.
-- Every point is clipped to [arrival, first token out] and none comes before the one before it.
-- Where the prefill or unified leg gave token 1 there is no handoff and no wait for a decode slot
-- on this path: 0. NULL: the source can't see the phase; its time is in other_s.
-- unit: request
with phases as (
    select
        request_key,
        attempt,
        min_by(started_unix_ns, (first_token_us is null, started_unix_ns))
        filter (where name = 'prefill') as prefill_started_ns,
        min_by(ended_unix_ns, (first_token_us is null, started_unix_ns))
        filter (where name = 'prefill') as prefill_ended_ns,
        max(ended_unix_ns) filter (where name = 'queue') as queue_ended_ns,
        max(ended_unix_ns)
        filter (where name = 'kv_transfer' and coalesce(kv_outcome, 'done') = 'done')
            as kv_ready_ns,
        min(started_unix_ns) filter (where name = 'decode') as decode_started_ns,
        min(started_unix_ns + first_token_us * 1000) as first_token_ns,
        min_by(name, started_unix_ns + first_token_us * 1000) as first_token_phase,
        bool_or(leg_role = 'unified') as is_unified
    from int_leg_spans
    group by request_key, attempt
),

seen as (
    select
        int_attempts.request_key,
        int_attempts.attempt,
        int_attempts.arrived_unix_ns as arrived_ns,
        gateway_streams.ttft_s as ttft_gateway_s,
        case
            when phases.first_token_ns >= int_attempts.arrived_unix_ns
                then seconds_between(int_attempts.arrived_unix_ns, phases.first_token_ns)
        end as ttft_engine_s,
        coalesce(phases.prefill_started_ns, phases.queue_ended_ns) as prefill_started_ns,
        phases.prefill_ended_ns,
        coalesce(phases.is_unified or phases.first_token_phase in ('queue', 'prefill'), false)
            as is_without_handoff,
        phases.kv_ready_ns,
        phases.decode_started_ns,
        phases.first_token_ns
    from int_attempts
    left join int_streams as gateway_streams
        on
            int_attempts.request_key = gateway_streams.request_key
            and int_attempts.attempt = gateway_streams.attempt
            and gateway_streams.viewpoint = 'gateway'
    left join phases
        on
            int_attempts.request_key = phases.request_key
            and int_attempts.attempt = phases.attempt
),

bounded as (
    select
        *,
        coalesce(ttft_gateway_s, ttft_engine_s) as ttft_s,
        arrived_ns + round(coalesce(ttft_gateway_s, ttft_engine_s) * 1e9)::bigint as t1_ns
    from seen
    where coalesce(ttft_gateway_s, ttft_engine_s) is not null
),

-- least and greatest skip NULL, so each point asks first whether it is known at all.
prefill_started as (
    select
        *,
        case
            when prefill_started_ns is not null
                then least(greatest(prefill_started_ns, arrived_ns), t1_ns)
        end as prefill_start
    from bounded
),

prefill_ended as (
    select
        *,
        case
            when prefill_ended_ns is not null
                then least(greatest(prefill_ended_ns, prefill_start, arrived_ns), t1_ns)
        end as prefill_end
    from prefill_started
),

handed_off as (
    select
        *,
        case
            when is_without_handoff then prefill_end
            when kv_ready_ns is not null
                then least(greatest(kv_ready_ns, prefill_end, prefill_start, arrived_ns), t1_ns)
        end as kv_ready
    from prefill_ended
),

scheduled as (
    select
        *,
        case
            when is_without_handoff then prefill_end
            when decode_started_ns is not null
                then
                    least(
                        greatest(
                            decode_started_ns, kv_ready, prefill_end, prefill_start, arrived_ns
                        ),
                        t1_ns
                    )
        end as decode_scheduled
    from handed_off
),

token_out as (
    select
        *,
        case
            when first_token_ns is not null
                then
                    least(
                        greatest(
                            first_token_ns, decode_scheduled, kv_ready, prefill_end,
                            prefill_start, arrived_ns
                        ),
                        t1_ns
                    )
        end as first_token_out
    from scheduled
),

parts as (
    select
        *,
        seconds_between(arrived_ns, prefill_start) as queue_s,
        seconds_between(prefill_start, prefill_end) as prefill_s,
        case
            when is_without_handoff then 0.0 else seconds_between(prefill_end, kv_ready)
        end as handoff_s,
        case
            when is_without_handoff then 0.0 else seconds_between(kv_ready, decode_scheduled)
        end as decode_wait_s,
        seconds_between(decode_scheduled, first_token_out) as first_step_s
    from token_out
)

select
    request_key,
    attempt,
    ttft_engine_s,
    queue_s,
    prefill_s,
    handoff_s,
    decode_wait_s,
    first_step_s,
    ttft_s - coalesce(queue_s, 0) - coalesce(prefill_s, 0) - coalesce(handoff_s, 0)
    - coalesce(decode_wait_s, 0) - coalesce(first_step_s, 0) as other_s,
    coalesce(
        prefill_started_ns < arrived_ns - 1000000 or first_token_ns > t1_ns + 1000000, false
    ) as is_clipped
from parts
