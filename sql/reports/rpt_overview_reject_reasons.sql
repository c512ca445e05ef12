-- Why requests that ended in the window were not accepted.
-- Grain: one row per reject_reason; n_requests, and the output tokens they had cost to make.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

rejected as (
    select * from ended
    where reject_reason is not null
)

select
    reject_reason,
    count(*) as n_requests,
    sum(output_tokens) as output_tokens
from rejected
group by reject_reason
order by n_requests desc, reject_reason asc
