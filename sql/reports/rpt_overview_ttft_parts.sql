-- Where time to first token goes: mean seconds of each part, for bands of requests from the
-- fastest to the slowest. Parts of a quantile don't add up; parts of a band's mean do.
-- Grain: one row per band. Seconds; NULL: the part is unknown in the whole band (it lies in other).
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

delivered as (
    select
        attempts.queue_s,
        attempts.prefill_s,
        attempts.handoff_s,
        attempts.decode_wait_s,
        attempts.first_step_s,
        attempts.other_s,
        coalesce(attempts.ttft_gateway_s, attempts.ttft_engine_s) as ttft_s
    from attempts
    inner join ended on attempts.request_key = ended.request_key
    where
        attempts.is_delivered
        and coalesce(attempts.ttft_gateway_s, attempts.ttft_engine_s) is not null
),

ranked as (
    select
        *,
        percent_rank() over (order by ttft_s) as rank_ratio
    from delivered
),

banded as (
    select
        *,
        case
            when rank_ratio < 0.25 then 0
            when rank_ratio < 0.5 then 1
            when rank_ratio < 0.75 then 2
            when rank_ratio < 0.95 then 3
            else 4
        end as place
    from ranked
)

select
    ['fastest 25 %', '25–50 %', '50–75 %', '75–95 %', 'slowest 5 %'][place + 1] as band,
    count(*) as n_requests,
    sum(ttft_s) / count(*) as ttft_s,
    sum(queue_s) / count(*) as queue_s,
    sum(prefill_s) / count(*) as prefill_s,
    sum(handoff_s) / count(*) as handoff_s,
    sum(decode_wait_s) / count(*) as decode_wait_s,
    sum(first_step_s) / count(*) as first_step_s,
    sum(other_s) / count(*) as other_s
from banded
group by place
order by place
