-- Every upstream try: how it ended, what it used, when its first token and each chunk came.
-- Grain: one row per (request_key, attempt). Durations are seconds from this attempt's own
-- arrival, gaps integer microseconds, one less than chunks. Where both saw the chunks, chunk
-- columns are the gateway's.
-- is_delivered: the attempt whose output reached the caller. NULL: unknown, or does not apply
-- (nothing streamed). reused_tokens are the prefill side's.
-- unit: request
with attempts as (
    select * from int_attempts
),

legs as (
    select
        request_key,
        attempt,
        max(prompt_tokens) filter (where role in ('prefill', 'unified')) as prompt_tokens,
        max(reused_tokens) filter (where role in ('prefill', 'unified')) as reused_tokens,
        sum(generated_tokens)::bigint as generated_tokens,
        bool_or(is_inferred) as has_inferred
    from fct_legs
    group by request_key, attempt
),

gateway_streams as (
    select * from int_streams
    where viewpoint = 'gateway'
),

client_streams as (
    select * from int_streams
    where viewpoint = 'client'
),

-- The viewpoint whose chunks are shown: the gateway's where it has their times.
streams as (
    select *
    from int_streams
    qualify
        row_number() over (
            partition by request_key, attempt
            order by chunk_gaps_us is null, viewpoint desc
        ) = 1
),

-- Completed attempts that overlap are hedges of each other: the first to complete was delivered.
completed as (
    select
        request_key,
        attempt,
        arrived_unix_ns,
        ended_unix_ns,
        coalesce(
            arrived_unix_ns >= max(ended_unix_ns) over (
                partition by request_key
                order by arrived_unix_ns, ended_unix_ns, attempt
                rows between unbounded preceding and 1 preceding
            ),
            true
        ) as is_new_group
    from attempts
    where outcome = 'completed'
),

completed_groups as (
    select
        *,
        sum(is_new_group::integer) over (
            partition by request_key
            order by arrived_unix_ns, ended_unix_ns, attempt
            rows between unbounded preceding and current row
        ) as group_index
    from completed
),

ranked as (
    select
        attempts.request_key,
        attempts.attempt,
        row_number() over (
            partition by attempts.request_key
            order by
                completed_groups.group_index desc nulls last,
                completed_groups.ended_unix_ns asc nulls last,
                attempts.arrived_unix_ns desc,
                attempts.attempt desc
        ) as delivery_rank
    from attempts
    left join completed_groups
        on
            attempts.request_key = completed_groups.request_key
            and attempts.attempt = completed_groups.attempt
)

select
    attempts.request_key,
    attempts.request_id,
    attempts.tenant_id,
    attempts.attempt,
    attempts.trace_id,
    attempts.dialect,
    attempts.model,
    attempts.outcome,
    ranked.delivery_rank = 1 as is_delivered,
    attempts.is_stream,
    attempts.slo_class_requested,
    attempts.conversation_id,
    attempts.http_route,
    at_utc(attempts.arrived_unix_ns) as arrived_at,
    at_utc(attempts.ended_unix_ns) as ended_at,
    attempts.arrived_unix_ns,
    attempts.ended_unix_ns,
    attempts.client_started_unix_ns,
    attempts.intended_start_unix_ns,
    client_streams.ttft_s as ttft_client_s,
    gateway_streams.ttft_s as ttft_gateway_s,
    parts.ttft_engine_s,
    case
        when streams.chunk_gaps_us is not null then stats.last_us / 1e6
        when attempts.outcome = 'completed'
            then seconds_between(attempts.arrived_unix_ns, attempts.ended_unix_ns)
    end as e2e_s,
    parts.queue_s,
    parts.prefill_s,
    parts.handoff_s,
    parts.decode_wait_s,
    parts.first_step_s,
    parts.other_s,
    streams.chunk_gaps_us[2:] as gaps_us,
    streams.chunk_tokens,
    case when streams.chunk_gaps_us is not null then streams.chunk_choices end as chunk_choices,
    stats.tpot_s,
    streams.n_chunks,
    coalesce(stats.n_stalls, case when streams.n_chunks = 0 then 0 end) as n_stalls,
    coalesce(stats.stall_us, case when streams.n_chunks = 0 then 0 end) / 1e6 as stall_s,
    stats.worst_gap_us / 1e6 as worst_gap_s,
    attempts.finish_reason,
    attempts.error_type,
    attempts.http_status,
    coalesce(attempts.input_tokens, legs.prompt_tokens) as input_tokens,
    coalesce(attempts.cache_read_tokens, legs.reused_tokens) as reused_tokens,
    coalesce(attempts.output_tokens, streams.output_tokens) as output_tokens,
    attempts.reasoning_tokens,
    list_sort(list_distinct(list_concat(
        attempts.flags,
        streams.flags,
        kept_flags([
            case
                when
                    coalesce(attempts.output_tokens, streams.output_tokens) is null
                    and (attempts.outcome = 'completed' or streams.n_chunks > 0)
                    then 'usage_missing'
            end,
            case
                when attempts.input_tokens is null and legs.prompt_tokens is not null
                    then 'input_tokens_from_engine'
            end,
            case
                when
                    attempts.input_tokens != legs.prompt_tokens
                    or attempts.cache_read_tokens != legs.reused_tokens
                    or (
                        attempts.output_tokens != legs.generated_tokens
                        and attempts.outcome = 'completed'
                        and not legs.has_inferred
                    )
                    then 'token_mismatch'
            end,
            case when stats.is_first_chunk_unknown then 'tpot_first_chunk_unknown' end,
            case
                when
                    streams.chunk_gaps_us is null
                    and attempts.is_stream
                    and attempts.outcome = 'completed'
                    then 'e2e_from_span_end'
            end,
            case when parts.is_clipped then 'clock_cross_host' end,
            case when legs.has_inferred then 'leg_inferred' end
        ])
    ))) as flags
from attempts
inner join ranked
    on attempts.request_key = ranked.request_key and attempts.attempt = ranked.attempt
left join gateway_streams
    on
        attempts.request_key = gateway_streams.request_key
        and attempts.attempt = gateway_streams.attempt
left join client_streams
    on
        attempts.request_key = client_streams.request_key
        and attempts.attempt = client_streams.attempt
left join streams
    on attempts.request_key = streams.request_key and attempts.attempt = streams.attempt
left join int_stream_stats as stats
    on
        streams.request_key = stats.request_key
        and streams.attempt = stats.attempt
        and streams.viewpoint = stats.viewpoint
left join int_ttft_parts as parts
    on attempts.request_key = parts.request_key and attempts.attempt = parts.attempt
left join legs
    on attempts.request_key = legs.request_key and attempts.attempt = legs.attempt
