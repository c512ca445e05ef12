-- The score that counts, per request and name: the latest by its own time, ties by id.
-- Grain: one row per (request_key, score_name).
-- unit: request
with scores as (
    select
        dirty_requests.request_key,
        stg_scores.score_name,
        stg_scores.score,
        stg_scores.scored_unix_ns,
        stg_scores.score_id
    from dirty_requests
    inner join request_map on dirty_requests.request_key = request_map.request_key
    inner join stg_scores on request_map.trace_id = stg_scores.trace_id
    union all
    select
        dirty_requests.request_key,
        stg_scores.score_name,
        stg_scores.score,
        stg_scores.scored_unix_ns,
        stg_scores.score_id
    from dirty_requests
    inner join stg_scores on dirty_requests.request_key = stg_scores.request_key
    where stg_scores.trace_id is null
)

select
    request_key,
    score_name,
    score,
    scored_unix_ns
from scores
qualify
    row_number() over (
        partition by request_key, score_name
        order by scored_unix_ns desc, score_id desc
    ) = 1
