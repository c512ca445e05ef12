-- Useful work by the clock: accepted requests and their output tokens a second.
-- Grain: one row per (UTC hour, model, class); a NULL model or class stands for all of them.
-- observed_s is from the fleet's first to its last time up in the hour, accelerator_s the
-- accelerator-seconds up over all pools: prefill's too, whatever made the tokens.
-- NULL: a rate without workers seen, or per accelerator where a worker's count is unknown.
-- unit: hour
with up as (
    select
        hour_at,
        (max(up_to_ns) - min(up_from_ns)) / 1e9 as observed_s,
        case
            when bool_and(n_accelerators is not null)
                then sum((up_to_ns - up_from_ns)::hugeint * n_accelerators) / 1e9
        end as accelerator_s
    from int_worker_intervals
    group by hour_at
),

ended as (
    select
        hour_at,
        model,
        slo_class,
        n_accepted,
        accepted_output_tokens,
        n_accepted_uncounted
    from int_ended_hours
    union all by name
    select hour_at from up
),

sums as (
    select
        hour_at,
        model,
        slo_class,
        coalesce(sum(n_accepted), 0) as n_accepted,
        coalesce(
            sum(accepted_output_tokens),
            case when coalesce(sum(n_accepted_uncounted), 0) = 0 then 0 end
        ) as accepted_output_tokens
    from ended
    group by hour_at, grouping sets ((), (model), (slo_class), (model, slo_class))
    having
        (grouping(model) = 1 or model is not null)
        and (grouping(slo_class) = 1 or slo_class is not null)
)

select
    sums.hour_at,
    sums.model,
    sums.slo_class,
    sums.n_accepted::bigint as n_accepted,
    sums.accepted_output_tokens::bigint as accepted_output_tokens,
    up.observed_s,
    up.accelerator_s,
    sums.n_accepted / nullif(up.observed_s, 0) as accepted_requests_per_s,
    sums.accepted_output_tokens / nullif(up.observed_s, 0) as accepted_output_tokens_per_s,
    sums.accepted_output_tokens / nullif(up.accelerator_s, 0)
        as accepted_output_tokens_per_accelerator_s
from sums
left join up on sums.hour_at = up.hour_at
