-- Distribution of time to first token of the requests that ended in the window.
-- Grain: one row per viewpoint and logarithmic bin (each 1.15 times the one before).
-- low_s, high_s: the bin's edges in seconds.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

binned as (
    select
        ttft_viewpoint as viewpoint,
        floor(ln(greatest(ttft_s, 1e-4)) / ln(1.15))::integer as bin
    from ended
    where ttft_s is not null
)

select
    viewpoint,
    pow(1.15, bin) as low_s,
    pow(1.15, bin + 1) as high_s,
    count(*) as n_requests
from binned
group by viewpoint, bin
order by viewpoint, bin
