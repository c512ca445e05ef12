-- What the prefix cache saves: three hit ratios, and the seconds and money of prefill not done.
-- Grain: one row per (model, worker type) with a prefill-side leg of a delivered attempt.
-- token_hit_ratio weighs by tokens, mean_request_hit_ratio by requests, request_hit_ratio counts
-- any reuse. They are over requests whose reuse is known, known_ratio of all.
-- saved_prefill_s is what T(n, 0) - T(n - r, r) = b*r + c*r^2/2 gives by the day's prefill_curve,
-- with a 95 % interval; gross_saved_usd prices it as freed capacity and is no part of the bill.
-- retention_usd is what the resident cache's memory cost; net_saved_usd = gross - retention.
-- NULL: savings without a curve (saved_null_reason); dollars without a price; retention and net
-- without a memory price, or where a worker served several models.
-- unit: all
with legs as (
    select
        attempts.model,
        legs.*,
        date_trunc('day', legs.started_at) as day_at,
        hour_of_ns(legs.started_unix_ns) as hour_at
    from fct_legs as legs
    inner join fct_attempts as attempts
        on legs.request_key = attempts.request_key and legs.attempt = attempts.attempt
    where attempts.is_delivered and legs.role in ('prefill', 'unified')
),

requests as (
    select
        model,
        worker_type,
        request_key,
        sum(prompt_tokens) as prompt_tokens,
        sum(reused_tokens) as reused_tokens,
        bool_and(reused_tokens is not null and prompt_tokens > 0) as is_known
    from legs
    group by model, worker_type, request_key
),

hits as (
    select
        model,
        worker_type,
        count(*) as n_requests,
        count(*) filter (where is_known) / count(*) as known_ratio,
        sum(prompt_tokens) filter (where is_known)::bigint as prompt_tokens,
        sum(reused_tokens) filter (where is_known)::bigint as reused_tokens,
        avg(reused_tokens / prompt_tokens) filter (where is_known) as mean_request_hit_ratio,
        count(*) filter (where is_known and reused_tokens > 0)
        / nullif(count(*) filter (where is_known), 0) as request_hit_ratio
    from requests
    group by model, worker_type
),

tenants as (
    select
        model,
        worker_type,
        sum(foreign_tenant_tokens)::bigint as cross_tenant_reuse_tokens
    from legs
    group by model, worker_type
),

-- What a worker's second costs, as its cost unit is priced in the hour.
worker_rates as (
    select
        hour_at,
        worker_id,
        sum(nano_usd) / nullif(max(duration_s), 0) as nano_per_s
    from fct_cost_lines
    where line in ('capacity', 'host') and is_priced
    group by hour_at, worker_id
),

savings as (
    select
        legs.model,
        legs.worker_type,
        legs.day_at,
        sum(legs.reused_tokens) as r1,
        sum(legs.reused_tokens * legs.reused_tokens / 2) as r2,
        sum(
            (
                curves.b_s_per_token * legs.reused_tokens
                + curves.c_s_per_token2 * legs.reused_tokens * legs.reused_tokens / 2
            ) * worker_rates.nano_per_s
        ) as gross_nano,
        bool_or(worker_rates.nano_per_s is null) as is_unpriced,
        any_value(curves.b_s_per_token) as b,
        any_value(curves.c_s_per_token2) as c,
        any_value(curves.b_se) as b_se,
        any_value(curves.c_se) as c_se,
        any_value(curves.bc_cov_s2) as bc_cov,
        any_value(curves.n) as n_fitted,
        any_value(curves.r2) as fit_r2,
        any_value(curves.null_reason) as null_reason
    from legs
    left join mart_prefill_curve as curves
        on
            legs.model is not distinct from curves.model
            and legs.worker_type is not distinct from curves.worker_type
            and legs.day_at = curves.day_at
    left join worker_rates
        on legs.hour_at = worker_rates.hour_at and legs.worker_id = worker_rates.worker_id
    where legs.reused_tokens is not null
    group by legs.model, legs.worker_type, legs.day_at
),

saved as (
    select
        model,
        worker_type,
        sum(b * r1 + c * r2) as saved_prefill_s,
        sqrt(sum(greatest(0, pow(r1 * b_se, 2) + pow(r2 * c_se, 2) + 2 * r1 * r2 * bc_cov)))
            as saved_se,
        case
            when not coalesce(bool_or(is_unpriced) filter (where b is not null), true)
                then sum(gross_nano)
        end as gross_nano,
        sum(n_fitted) filter (where b is not null)::bigint as n_fitted,
        min(fit_r2) as worst_r2,
        count(*) filter (where b is null) as n_days_without_curve,
        case
            when count(b) = 0 then coalesce(max(null_reason), 'no_measured_prefill_seconds')
        end as saved_null_reason
    from savings
    group by model, worker_type
),

worker_models as (
    select
        worker_id,
        any_value(model) as model,
        any_value(worker_type) as worker_type,
        count(distinct model) as n_models
    from legs
    where worker_id is not null
    group by worker_id
),

retention as (
    select
        worker_models.model,
        worker_models.worker_type,
        case when max(worker_models.n_models) = 1 then sum(bill_lines.nano_usd) end
            as retention_nano
    from worker_models
    inner join fct_cost_lines as bill_lines
        on worker_models.worker_id = bill_lines.worker_id and bill_lines.line = 'cache_storage'
    group by worker_models.model, worker_models.worker_type
)

select
    hits.model,
    hits.worker_type,
    hits.n_requests,
    hits.known_ratio,
    hits.prompt_tokens,
    hits.reused_tokens,
    hits.reused_tokens / nullif(hits.prompt_tokens, 0) as token_hit_ratio,
    hits.mean_request_hit_ratio,
    hits.request_hit_ratio,
    saved.saved_prefill_s,
    saved.saved_prefill_s - 1.959963984540054 * saved.saved_se as saved_prefill_s_low,
    saved.saved_prefill_s + 1.959963984540054 * saved.saved_se as saved_prefill_s_high,
    saved.n_fitted,
    saved.worst_r2,
    saved.n_days_without_curve,
    coalesce(
        saved.saved_null_reason, case when saved.model is null then 'reuse_unknown' end
    ) as saved_null_reason,
    nano_to_usd(round(saved.gross_nano)) as gross_saved_usd,
    nano_to_usd(retention.retention_nano) as retention_usd,
    nano_to_usd(round(saved.gross_nano) - retention.retention_nano) as net_saved_usd,
    tenants.cross_tenant_reuse_tokens
from hits
left join tenants
    on
        hits.model is not distinct from tenants.model
        and hits.worker_type is not distinct from tenants.worker_type
left join saved
    on
        hits.model is not distinct from saved.model
        and hits.worker_type is not distinct from saved.worker_type
left join retention
    on
        hits.model is not distinct from retention.model
        and hits.worker_type is not distinct from retention.worker_type
