-- Time to first token of the requests that ended in the window.
-- Grain: one row per viewpoint (whose clock). Seconds, exact quantiles of the raw values.
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

timed as (
    select * from ended
    where ttft_s is not null
)

select
    ttft_viewpoint as viewpoint,
    count(*) as n_requests,
    quantile_cont(ttft_s, 0.5) as p50_s,
    quantile_cont(ttft_s, 0.95) as p95_s,
    quantile_cont(ttft_s, 0.99) as p99_s
from timed
group by ttft_viewpoint
order by ttft_viewpoint
