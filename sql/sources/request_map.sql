-- Which requests a trace may hold; the runner adds what int_trace_keys says, and takes none away.
-- Grain: one row per (trace, request key). A pair that later turns out wrong (the key of a proxy
-- behind another one, a trace's own key once roots have come) computes to no rows.
-- unit: source
select
    null::varchar as trace_id,
    null::varchar as request_key
where false
