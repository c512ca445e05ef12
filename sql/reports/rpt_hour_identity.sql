-- The identity of the bill: in every hour the slices and what is unallocated add up to it exactly.
-- Grain: one row per UTC hour. Money is USD to the nano-dollar; difference_usd must be 0.
with bills as (
    select
        hour_at,
        sum(usd) as bill_usd
    from cost_lines
    group by hour_at
),

slices as (
    select
        hour_at,
        sum(coalesce(direct_usd, 0) + coalesce(idle_usd, 0) + coalesce(shared_usd, 0))
            as slices_usd
    from cost_slices
    group by hour_at
),

hours as (
    select
        window_start as hour_at,
        unallocated_usd
    from cost_per_mtok
    where grain = 'hour' and model is null and slo_class is null
)

select
    bills.hour_at,
    bills.bill_usd,
    coalesce(slices.slices_usd, 0) as slices_usd,
    hours.unallocated_usd,
    bills.bill_usd - coalesce(slices.slices_usd, 0) - hours.unallocated_usd as difference_usd
from bills
left join slices on bills.hour_at = slices.hour_at
left join hours on bills.hour_at = hours.hour_at
order by bills.hour_at
