-- Why requests that ended in the window were not accepted.
-- Grain: one row per reject_reason; n_requests, and the output tokens they had cost to make.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with scope as (
    select
        $since::timestamp as since,
        $as_of::timestamp as as_of,
        $model::varchar as model,
        $slo_class::varchar as slo_class,
        $tenant_id::varchar as tenant_id
),

ended as (
    select requests.*
    from requests
    cross join scope
    where
        requests.ended_at > scope.since
        and requests.ended_at <= scope.as_of
        and (scope.model is null or requests.model = scope.model)
        and (scope.slo_class is null or requests.slo_class = scope.slo_class)
        and (scope.tenant_id is null or requests.tenant_id = scope.tenant_id)
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
