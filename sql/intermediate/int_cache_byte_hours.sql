-- Memory that workers' cached KV held: bytes times nanoseconds, a point's value holding until the
-- worker's next point, and only while the worker is up.
-- Grain: one row per (UTC hour, worker, price card with a memory price); none without that price.
-- The accrual starts anew in each hour.
-- unit: hour
with held as (
    select
        worker_id,
        point_unix_ns as from_ns,
        point_value as resident_bytes,
        lead(point_unix_ns) over (partition by worker_id order by point_unix_ns) as to_ns
    from stg_worker_points
    where metric_name = 'tokenmill.kv.cached_bytes'
),

priced as (
    select
        up.hour_at,
        up.worker_id,
        cards.card_id,
        greatest(up.up_from_ns, coalesce(cards.valid_from_unix_ns, up.up_from_ns)) as from_ns,
        least(up.up_to_ns, coalesce(cards.valid_to_unix_ns, up.up_to_ns)) as to_ns
    from int_worker_intervals as up
    inner join price_cards as cards
        on up.worker_type = cards.worker_type and cards.basis = 'gigabyte'
),

pieces as (
    select
        priced.hour_at,
        priced.worker_id,
        priced.card_id,
        held.resident_bytes::hugeint * greatest(
            0,
            least(coalesce(held.to_ns, priced.to_ns), priced.to_ns)
            - greatest(held.from_ns, priced.from_ns)
        ) as byte_ns
    from priced
    inner join held
        on
            priced.worker_id = held.worker_id
            and priced.to_ns > held.from_ns
            and priced.from_ns < coalesce(held.to_ns, priced.to_ns)
)

select
    hour_at,
    worker_id,
    card_id,
    sum(byte_ns) as byte_ns
from pieces
group by hour_at, worker_id, card_id
