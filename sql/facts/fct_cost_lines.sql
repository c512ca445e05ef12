-- The bill: what each worker, pool and the fleet cost in an hour, by the card valid at the time.
-- Grain: one row per (UTC hour, line, component, worker or pool, price card). line is
-- capacity | host | network | cache_storage | operations | unused_commitment. usd is exact to the
-- nano-dollar; duration_s is how much of the hour the row covers.
-- A worker line accrues from the start of the worker's up interval (or of the card, if later), a
-- pool's or the fleet's from the hour's first to last sign of life, anchored at the card's start.
-- NULL: nano_usd and usd where no card (or accelerator count) prices the worker, and is_priced is
-- false; pool on the fleet's lines and on workers that name none.
-- unit: hour
with up as (
    select * from int_worker_intervals
),

worker_rates as (
    select
        up.hour_at,
        up.worker_id,
        up.worker_type,
        up.pool,
        up.up_from_ns,
        up.up_to_ns,
        cards.card_id,
        cards.line,
        cards.component,
        cards.period_ns,
        case cards.basis
            when 'accelerator' then cards.nano_usd::hugeint * up.n_accelerators
            else cards.nano_usd::hugeint
        end as nano_rate,
        greatest(
            up.started_unix_ns, coalesce(cards.valid_from_unix_ns, up.started_unix_ns)
        ) as line_from_ns,
        least(up.up_to_ns, coalesce(cards.valid_to_unix_ns, up.up_to_ns)) as to_ns
    from up
    inner join price_cards as cards
        on up.worker_type = cards.worker_type and cards.basis in ('accelerator', 'worker')
),

worker_pieces as (
    select
        *,
        greatest(line_from_ns, up_from_ns) as from_ns
    from worker_rates
    where nano_rate is not null and greatest(line_from_ns, up_from_ns) < to_ns
),

worker_lines as (
    select
        hour_at,
        line,
        component,
        pool,
        worker_id,
        worker_type,
        card_id as price_card,
        sum(to_ns - from_ns) as duration_ns,
        sum(
            accrued_nano(nano_rate, period_ns, to_ns - line_from_ns)
            - accrued_nano(nano_rate, period_ns, from_ns - line_from_ns)
        ) as nano_usd
    from worker_pieces
    group by hour_at, line, component, pool, worker_id, worker_type, card_id
),

-- Capital and energy cover the same time, so one of a card's components counts it.
covered as (
    select
        hour_at,
        worker_id,
        sum(duration_ns) as covered_ns
    from worker_lines
    where component in ('rental', 'capital')
    group by hour_at, worker_id
),

unpriced_lines (hour_at, line, component, pool, worker_id, worker_type, duration_ns) as (
    select
        up.hour_at,
        'capacity',
        'unpriced',
        any_value(up.pool),
        up.worker_id,
        any_value(up.worker_type),
        sum(up.up_to_ns - up.up_from_ns) - coalesce(any_value(covered.covered_ns), 0)
    from up
    left join covered on up.hour_at = covered.hour_at and up.worker_id = covered.worker_id
    group by up.hour_at, up.worker_id
    having sum(up.up_to_ns - up.up_from_ns) > coalesce(any_value(covered.covered_ns), 0)
),

workers as (
    select distinct
        hour_at,
        worker_id,
        pool,
        worker_type
    from up
),

cache_lines as (
    select
        byte_hours.hour_at,
        cards.line,
        cards.component,
        workers.pool,
        byte_hours.worker_id,
        workers.worker_type,
        byte_hours.card_id as price_card,
        accrued_nano(
            cards.nano_usd, cards.period_ns::hugeint * 1000000000, byte_hours.byte_ns
        ) as nano_usd
    from int_cache_byte_hours as byte_hours
    inner join price_cards as cards
        on byte_hours.card_id = cards.card_id and cards.basis = 'gigabyte'
    inner join workers
        on byte_hours.hour_at = workers.hour_at and byte_hours.worker_id = workers.worker_id
),

fleet_spans as (
    select
        hour_at,
        pool,
        grouping(pool) = 1 as is_fleet,
        min(up_from_ns) as from_ns,
        max(up_to_ns) as to_ns
    from up
    group by grouping sets ((hour_at), (hour_at, pool))
),

fleet_pieces as (
    select
        spans.hour_at,
        cards.line,
        cards.component,
        cards.pool,
        cards.card_id,
        cards.nano_usd,
        cards.period_ns,
        coalesce(cards.valid_from_unix_ns, 0) as line_from_ns,
        greatest(spans.from_ns, coalesce(cards.valid_from_unix_ns, spans.from_ns)) as from_ns,
        least(spans.to_ns, coalesce(cards.valid_to_unix_ns, spans.to_ns)) as to_ns
    from fleet_spans as spans
    inner join price_cards as cards
        on
            cards.basis = 'fleet'
            and (
                (cards.pool is null and spans.is_fleet)
                or (not spans.is_fleet and spans.pool = cards.pool)
            )
),

fleet_lines as (
    select
        hour_at,
        line,
        component,
        pool,
        card_id as price_card,
        to_ns - from_ns as duration_ns,
        accrued_nano(nano_usd, period_ns, to_ns - line_from_ns)
        - accrued_nano(nano_usd, period_ns, from_ns - line_from_ns) as nano_usd
    from fleet_pieces
    where from_ns < to_ns
),

lines as (
    select * from worker_lines
    union all by name
    select * from unpriced_lines
    union all by name
    select * from cache_lines
    union all by name
    select * from fleet_lines
)

select
    hour_at,
    line,
    component,
    pool,
    worker_id,
    worker_type,
    price_card,
    duration_ns::bigint as duration_ns,
    duration_ns / 1e9 as duration_s,
    nano_usd::bigint as nano_usd,
    nano_to_usd(nano_usd) as usd,
    nano_usd is not null as is_priced
from lines
