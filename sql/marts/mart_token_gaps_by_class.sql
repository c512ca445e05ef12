-- How long readers waited between chunks and between tokens, by tenant and promise.
-- Grain: one row per (model, pool, viewpoint, kind, tenant_id, slo_class, hour_at, bin). Bins as
-- in token_gaps. NULL slo_class: no class admits the request.
-- unit: all
select
    gaps.model,
    gaps.pool,
    gaps.viewpoint,
    gaps.kind,
    requests.tenant_id,
    requests.slo_class,
    date_trunc('hour', gaps.minute_at) as hour_at,
    gaps.bin,
    sum(gaps.n)::bigint as n
from int_token_gaps as gaps
inner join fct_requests as requests on gaps.request_key = requests.request_key
group by
    gaps.model,
    gaps.pool,
    gaps.viewpoint,
    gaps.kind,
    requests.tenant_id,
    requests.slo_class,
    hour_at,
    gaps.bin
