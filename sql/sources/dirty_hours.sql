-- The UTC hours whose rows are to be computed now; the runner fills it.
-- Grain: one row per hour.
-- unit: source
select null::timestamp as hour_at
where false
