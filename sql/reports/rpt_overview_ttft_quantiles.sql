-- Time to first token of the requests that ended in the window.
-- Grain: one row per viewpoint (whose clock). Seconds, exact quantiles of the raw values.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
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
