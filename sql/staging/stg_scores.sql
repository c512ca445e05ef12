-- Scores of answers, from gen_ai.evaluation.result log records.
-- Grain: one row per (scored_unix_ns, score_id); score_id is a hash of what the record says, so a
-- repeat is the same row. A score points at its answer by trace, or by tenant and request.
-- NULL trace_id or request_key: not said.
-- unit: segment
-- key: scored_unix_ns, score_id
with records as (
    select
        lower(hex(trace_id)) as trace_id,
        log_unix_ns as scored_unix_ns,
        coalesce(
            tenant_id, attribute_of(attributes, 'tokenmill.tenant.id')
        ) as tenant_id,
        coalesce(
            request_id, attribute_of(attributes, 'tokenmill.request.id')
        ) as request_id,
        attribute_of(attributes, 'gen_ai.evaluation.name') as score_name,
        try_cast(attribute_of(attributes, 'gen_ai.evaluation.score.value') as double) as score,
        hash(trace_id, attributes) as score_id
    from segments
    where signal = 'log' and event_name = 'gen_ai.evaluation.result'
)

select distinct
    score_id,
    trace_id,
    case when request_id is not null then request_key_of(tenant_id, request_id) end as request_key,
    score_name,
    score,
    scored_unix_ns
from records
where score_name is not null and isfinite(score)
