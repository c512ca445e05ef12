-- The request keys whose rows are to be computed now; the runner fills it.
-- Grain: one row per request key.
-- unit: source
select null::varchar as request_key
where false
