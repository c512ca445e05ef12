-- What ended in each hour: requests with their verdicts, and the tokens of all attempts.
-- Grain: one row per (UTC hour, model, class). The first five counts and accepted_output_tokens
-- belong to the hour in which the request ended, the token sums to that of the attempt.
-- NULL: model and class, not known; a token sum, not said by any attempt.
-- unit: hour
with requests as (
    select
        *,
        hour_of_ns(ended_unix_ns) as hour_at
    from fct_requests
),

verdicts as (
    select
        requests.hour_at,
        requests.model,
        requests.slo_class,
        count(*) as n_requests,
        count(*) filter (where requests.is_accepted) as n_accepted,
        count(*) filter (where requests.reject_reason = 'excluded') as n_excluded,
        count(*) filter (where requests.reject_reason = 'unknown') as n_unknown,
        count(*) filter (where requests.is_accepted and requests.output_tokens is null)
            as n_accepted_uncounted,
        sum(requests.output_tokens) filter (where requests.is_accepted)
            as accepted_output_tokens
    from requests
    inner join dirty_hours on requests.hour_at = dirty_hours.hour_at
    group by requests.hour_at, requests.model, requests.slo_class
),

attempts as (
    select
        fct_attempts.*,
        fct_requests.slo_class,
        hour_of_ns(fct_attempts.ended_unix_ns) as hour_at
    from fct_attempts
    left join fct_requests on fct_attempts.request_key = fct_requests.request_key
),

tokens as (
    select
        attempts.hour_at,
        attempts.model,
        attempts.slo_class,
        sum(attempts.input_tokens) as input_tokens,
        sum(attempts.reused_tokens) as reused_tokens,
        sum(attempts.output_tokens) as output_tokens
    from attempts
    inner join dirty_hours on attempts.hour_at = dirty_hours.hour_at
    group by attempts.hour_at, attempts.model, attempts.slo_class
),

both_kinds as (
    select * from verdicts
    union all by name
    select * from tokens
)

select
    hour_at,
    model,
    slo_class,
    coalesce(sum(n_requests), 0)::bigint as n_requests,
    coalesce(sum(n_accepted), 0)::bigint as n_accepted,
    coalesce(sum(n_excluded), 0)::bigint as n_excluded,
    coalesce(sum(n_unknown), 0)::bigint as n_unknown,
    coalesce(sum(n_accepted_uncounted), 0)::bigint as n_accepted_uncounted,
    sum(accepted_output_tokens)::bigint as accepted_output_tokens,
    sum(input_tokens)::bigint as input_tokens,
    sum(reused_tokens)::bigint as reused_tokens,
    sum(output_tokens)::bigint as output_tokens
from both_kinds
group by hour_at, model, slo_class
