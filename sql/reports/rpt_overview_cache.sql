-- Prompt tokens that the prefix cache saved, over all time.
-- Grain: one row per model and worker type. Ratios 0..1; seconds and USD; NULL: not known.
-- Parameters: model; NULL: all.
select
    model,
    worker_type,
    token_hit_ratio,
    mean_request_hit_ratio,
    request_hit_ratio,
    saved_prefill_s,
    gross_saved_usd,
    retention_usd,
    net_saved_usd,
    cross_tenant_reuse_tokens
from cache_reuse
where $model::varchar is null or model = $model::varchar
order by model, worker_type
