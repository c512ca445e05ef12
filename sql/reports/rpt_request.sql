-- One request's verdict. request is its request_key, or a request_id; callers choose ids within
-- their tenant, so an id can name several: all are given, the newest first.
-- Grain: one row per request. Durations in seconds.
-- Parameters: request.
select
    request_key,
    request_id,
    tenant_id,
    model,
    slo_class,
    arrived_at,
    ended_at,
    ttft_s,
    ttft_viewpoint,
    tpot_s,
    worst_gap_s,
    e2e_s,
    deadline_ratio,
    verdict_basis,
    input_tokens,
    reused_tokens,
    output_tokens,
    n_attempts,
    is_accepted,
    reject_reason
from requests
where request_key = $request::varchar or request_id = $request::varchar
order by request_key = $request::varchar desc, ended_at desc
