-- The legs of one request: what each worker did and what it cost.
-- Grain: one row per leg. Seconds, tokens, USD; device_seconds NULL: not measured.
-- Parameters: request_key.
with costs as (
    select
        attempt,
        leg_index,
        sum(direct_usd) as direct_usd,
        sum(idle_usd) as idle_usd,
        sum(shared_usd) as shared_usd
    from cost_slices
    where request_key = $request_key::varchar
    group by attempt, leg_index
),

worked as (
    select * from legs
    where request_key = $request_key::varchar
)

select
    worked.attempt,
    worked.role,
    worked.worker_id,
    worked.worker_type,
    worked.started_at,
    (worked.ended_unix_ns - worked.started_unix_ns) / 1e9 as wall_s,
    worked.device_seconds,
    worked.computed_tokens,
    worked.reused_tokens,
    worked.generated_tokens,
    costs.direct_usd,
    costs.idle_usd,
    costs.shared_usd,
    worked.is_inferred
from worked
left join costs
    on
        worked.attempt = costs.attempt
        and worked.leg_index = costs.leg_index
order by worked.attempt, worked.leg_index
