-- The newest requests of the window, with what each cost.
-- Grain: one row per request, at most max_rows. Durations in seconds, money in USD.
-- fully_loaded_usd: all attempts of the request; NULL: a worker without a price.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
-- max_rows: how many.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

newest as (
    select * from ended
    order by ended_at desc, request_key asc
    limit $max_rows::bigint
),

costs as (
    select
        request_key,
        sum(fully_loaded_usd) as fully_loaded_usd
    from request_costs
    where request_key in (from newest select newest.request_key)
    group by request_key
)

select
    newest.request_key,
    newest.request_id,
    newest.ended_at,
    newest.tenant_id,
    newest.model,
    newest.slo_class,
    newest.is_accepted,
    newest.reject_reason,
    newest.ttft_s,
    newest.ttft_viewpoint,
    newest.tpot_s,
    newest.worst_gap_s,
    newest.e2e_s,
    newest.input_tokens,
    newest.reused_tokens,
    newest.output_tokens,
    newest.n_attempts,
    costs.fully_loaded_usd
from newest
left join costs on newest.request_key = costs.request_key
order by newest.ended_at desc, newest.request_key asc
