-- What prefill takes by tokens: T(new, ctx) = a + b*new + c*(2*ctx*new + new^2)/2, least squares
-- on the measured device seconds of prefill legs, and of the prefill in unified ones; the last
-- term is attention, whose work grows so.
-- Grain: one row per (model, worker type, UTC day) with a measured prefill leg. The normal
-- equations are solved about the means, with the attention term in units of its largest value.
-- *_se are standard errors, bc_cov_s2 the covariance of b and c, residual_s2 the residual variance.
-- NULL: all of the fit when n < 30 or the inputs don't tell the terms apart (null_reason), r2 and
-- the errors also where the seconds don't vary.
-- unit: all
with prefills as (
    select
        request_key,
        attempt,
        worker_type,
        started_unix_ns,
        device_seconds,
        prompt_tokens,
        computed_tokens,
        reused_tokens
    from fct_legs
    where role = 'prefill' and not is_inferred
    union all
    select
        request_key,
        attempt,
        max(worker_type) as worker_type,
        min(started_unix_ns) as started_unix_ns,
        sum(device_seconds) as device_seconds,
        max(prompt_tokens) as prompt_tokens,
        sum(computed_tokens) as computed_tokens,
        max(reused_tokens) as reused_tokens
    from int_leg_spans
    where leg_role = 'unified' and name = 'prefill'
    group by request_key, attempt, trace_id, worker_id
    having count(device_seconds) = count(*)
),

legs as (
    select
        attempts.model,
        prefills.worker_type,
        date_trunc('day', at_utc(prefills.started_unix_ns)) as day_at,
        prefills.device_seconds as y,
        coalesce(
            prefills.computed_tokens, prefills.prompt_tokens - prefills.reused_tokens
        )::double as x1,
        coalesce(
            prefills.reused_tokens, prefills.prompt_tokens - prefills.computed_tokens
        )::double as ctx
    from prefills
    inner join fct_attempts as attempts
        on
            prefills.request_key = attempts.request_key
            and prefills.attempt = attempts.attempt
    where prefills.device_seconds is not null
),

terms as (
    select
        model,
        worker_type,
        day_at,
        y,
        x1,
        (2 * ctx * x1 + x1 * x1) / 2 as effort,
        max((2 * ctx * x1 + x1 * x1) / 2) over (partition by model, worker_type, day_at)
            as scale
    from legs
    where x1 > 0 and ctx is not null
),

moments as (
    select
        model,
        worker_type,
        day_at,
        count(*) as n,
        any_value(scale) as scale,
        avg(x1) as m1,
        avg(effort / scale) as m2,
        avg(y) as my,
        count(*) * var_pop(x1) as s11,
        count(*) * var_pop(effort / scale) as s22,
        count(*) * var_pop(y) as syy,
        count(*) * covar_pop(x1, effort / scale) as s12,
        count(*) * covar_pop(x1, y) as s1y,
        count(*) * covar_pop(effort / scale, y) as s2y
    from terms
    group by model, worker_type, day_at
),

-- Below this the two terms are one, as far as doubles can tell.
determined as (
    select
        *,
        case
            when n >= 30 and s11 * s22 - s12 * s12 > 1e-9 * s11 * s22
                then s11 * s22 - s12 * s12
        end as det
    from moments
),

solved as (
    select
        *,
        (s1y * s22 - s2y * s12) / det as b,
        (s2y * s11 - s1y * s12) / det as c_scaled
    from determined
),

judged as (
    select
        *,
        greatest(0, syy - b * s1y - c_scaled * s2y) as sse
    from solved
)

select
    model,
    worker_type,
    day_at,
    n,
    my - b * m1 - c_scaled * m2 as a_s,
    b as b_s_per_token,
    c_scaled / scale as c_s_per_token2,
    case when det is not null then 1 - sse / nullif(syy, 0) end as r2,
    case when det is not null then sse / (n - 3) end as residual_s2,
    sqrt(sse / (n - 3) * s22 / det) as b_se,
    sqrt(sse / (n - 3) * s11 / det) / scale as c_se,
    -sse / (n - 3) * s12 / det / scale as bc_cov_s2,
    case when n < 30 then 'fewer_than_30_legs' when det is null then 'inputs_without_spread' end
        as null_reason
from judged
