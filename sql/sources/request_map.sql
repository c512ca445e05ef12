-- Which request a trace belongs to; the runner keeps it from int_trace_keys.
-- Grain: one row per trace. request_key is tenant/request once the root span has arrived, before
-- that trace/<trace id>.
-- unit: source
select
    null::varchar as trace_id,
    null::varchar as request_key
where false
