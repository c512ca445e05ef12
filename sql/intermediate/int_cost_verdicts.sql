-- What became of the money of each hour's slices: by model, class and the waterfall's step.
-- Grain: one row per (UTC hour of the cost, UTC hour in which its request ended, model, class,
-- step). step is useful | recomputed | quality | slo | failed | excluded | unknown, as it is once
-- the request has ended; a window that ends before that calls it in_flight.
-- n_unplaced_slices have neither worker nor pool, n_unpriced_slices a worker without a price.
-- NULL: ended_hour_at, not ended yet; model and class, not known; money, none of it priced.
-- unit: hour
with slices as (
    select * from fct_cost_slices
),

-- A second prefill of an attempt does again what the first had done.
first_prefills as (
    select
        request_key,
        attempt,
        min(leg_index) as leg_index
    from fct_legs
    where role = 'prefill' and request_key in (select slices.request_key from slices)
    group by request_key, attempt
),

judged as (
    select
        slices.*,
        hour_of_ns(requests.ended_unix_ns) as ended_hour_at,
        coalesce(attempts.model, requests.model) as model,
        requests.slo_class,
        case
            when requests.request_key is null then 'unknown'
            when not coalesce(attempts.is_delivered, false) then 'failed'
            when
                requests.is_accepted
                and slices.role = 'prefill'
                and slices.leg_index > first_prefills.leg_index
                then 'recomputed'
            when requests.is_accepted then 'useful'
            when requests.reject_reason in ('quality', 'unscored_rejected') then 'quality'
            when requests.reject_reason like 'slo_%' then 'slo'
            when requests.reject_reason in ('excluded', 'unknown') then requests.reject_reason
            else 'failed'
        end as step
    from slices
    left join fct_attempts as attempts
        on slices.request_key = attempts.request_key and slices.attempt = attempts.attempt
    left join fct_requests as requests on slices.request_key = requests.request_key
    left join first_prefills
        on
            slices.request_key = first_prefills.request_key
            and slices.attempt = first_prefills.attempt
)

select
    hour_at,
    ended_hour_at,
    model,
    slo_class,
    step,
    sum(direct_nano) as direct_nano,
    sum(idle_nano) as idle_nano,
    sum(shared_nano) as shared_nano,
    count(*) filter (where allocation_basis is null) as n_unplaced_slices,
    count(*) filter (where allocation_basis is not null and direct_nano is null)
        as n_unpriced_slices
from judged
group by hour_at, ended_hour_at, model, slo_class, step
