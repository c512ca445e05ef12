-- The windows that cost is told for, each with the hours in it: hour, UTC day and all there is.
-- Grain: one row per (grain, window, UTC hour with a bill or an end of a request).
-- is_final once the record has left the window; all is never final.
-- unit: all
with hours as (
    select hour_at from fct_cost_lines
    union
    select hour_at from int_ended_hours
),

windows as (
    select
        'hour' as grain,
        hour_at as window_start,
        hour_at + interval '1 hour' as window_end,
        hour_at
    from hours
    union all
    select
        'day' as grain,
        date_trunc('day', hour_at) as window_start,
        date_trunc('day', hour_at) + interval '1 day' as window_end,
        hour_at
    from hours
    union all
    select
        'all' as grain,
        min(hour_at) over () as window_start,
        max(hour_at) over () + interval '1 hour' as window_end,
        hour_at
    from hours
),

reached as (
    select max(received_unix_ns) as received_unix_ns
    from watermark
)

select
    windows.grain,
    windows.window_start,
    windows.window_end,
    windows.hour_at,
    windows.grain <> 'all'
    and coalesce(
        epoch_us(windows.window_end) * 1000 <= reached.received_unix_ns, false
    ) as is_final
from windows
cross join reached
