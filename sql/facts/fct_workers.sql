-- Every engine replica seen, and how long it was up.
-- Grain: one row per worker. up_s is seconds up; first_ and last_seen_at bound its up intervals
-- (the last sign of life plus one report interval).
-- NULL: nobody said; price_card where no card prices it now.
-- unit: all
with up as (
    select * from int_worker_intervals
),

cards as (
    select
        worker_id,
        arg_max(price_card, (hour_at, price_card)) as price_card
    from fct_cost_lines
    where line = 'capacity' and is_priced
    group by worker_id
)

select
    up.worker_id,
    arg_max(up.worker_type, up.hour_at) as worker_type,
    arg_max(up.pool, up.hour_at) as pool,
    arg_max(up.role, up.hour_at) as role,
    arg_max(up.n_accelerators, up.hour_at) as n_accelerators,
    arg_max(up.report_interval_s, up.hour_at) as report_interval_s,
    at_utc(min(up.started_unix_ns)) as first_seen_at,
    at_utc(max(up.ended_unix_ns)) as last_seen_at,
    sum(up.up_to_ns - up.up_from_ns) / 1e9 as up_s,
    any_value(cards.price_card) as price_card
from up
left join cards on up.worker_id = cards.worker_id
group by up.worker_id
