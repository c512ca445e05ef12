-- What is shared out in proportion to direct cost: the idle money of each pool-hour over the legs
-- in that pool, and the shared lines of each hour over all its legs.
-- Grain: one row per (UTC hour, kind, pool). kind is idle | shared | unused_commitment; pool is
-- NULL but for idle. direct_nano is what the pot is shared in proportion to; where it is 0 nobody
-- was there and the pot stays unallocated.
-- unit: hour
with idle as (
    select
        hour_at,
        'idle' as kind,
        pool,
        sum(idle_nano) as nano_usd
    from int_cost_units
    where idle_nano is not null
    group by hour_at, pool
),

pool_direct as (
    select
        hour_at,
        pool,
        sum(direct_nano) as direct_nano
    from int_cost_direct
    group by hour_at, pool
),

hour_direct as (
    select
        hour_at,
        sum(direct_nano) as direct_nano
    from int_cost_direct
    group by hour_at
),

shared as (
    select
        hour_at,
        case line when 'unused_commitment' then line else 'shared' end as kind,
        null as pool,
        sum(nano_usd) as nano_usd
    from fct_cost_lines
    where line not in ('capacity', 'host') and nano_usd is not null
    group by all
),

pots as (
    select
        idle.*,
        pool_direct.direct_nano
    from idle
    left join pool_direct
        on idle.hour_at = pool_direct.hour_at and idle.pool is not distinct from pool_direct.pool
    union all by name
    select
        shared.*,
        hour_direct.direct_nano
    from shared
    left join hour_direct on shared.hour_at = hour_direct.hour_at
)

select
    hour_at,
    kind,
    pool,
    nano_usd,
    coalesce(direct_nano, 0) as direct_nano,
    coalesce(direct_nano, 0) = 0 as is_unallocated
from pots
