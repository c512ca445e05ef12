-- How far the record reaches; the runner fills it. An hour is open until the watermark has left it.
-- Grain: one row. NULL while nothing has arrived.
-- unit: source
select null::bigint as received_unix_ns
where false
