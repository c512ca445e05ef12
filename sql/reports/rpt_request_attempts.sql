-- The attempts of one request, with the parts of each one's time to first token and its cost.
-- Grain: one row per attempt. Durations in seconds, money in USD; NULL: not known.
-- Parameters: request_key.
with costs as (
    select * from request_costs
    where request_key = $request_key::varchar
),

tries as (
    select * from attempts
    where request_key = $request_key::varchar
)

select
    tries.attempt,
    tries.outcome,
    tries.is_delivered,
    tries.arrived_at,
    tries.ended_at,
    tries.finish_reason,
    tries.error_type,
    tries.http_status,
    coalesce(tries.ttft_gateway_s, tries.ttft_engine_s, tries.ttft_client_s) as ttft_s,
    tries.queue_s,
    tries.prefill_s,
    tries.handoff_s,
    tries.decode_wait_s,
    tries.first_step_s,
    tries.other_s,
    tries.input_tokens,
    tries.reused_tokens,
    tries.output_tokens,
    costs.direct_usd,
    costs.idle_usd,
    costs.shared_usd,
    costs.fully_loaded_usd,
    tries.trace_id
from tries
left join costs on tries.attempt = costs.attempt
order by tries.attempt
