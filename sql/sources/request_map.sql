-- Which request a trace belongs to; the runner keeps it from int_trace_keys.
-- Grain: one row per trace. request_key is tenant/request once a root span has arrived, before
-- that trace/<trace id>. root_started_unix_ns: when the root that decided it started, NULL before.
-- unit: source
select
    null::varchar as trace_id,
    null::varchar as request_key,
    null::bigint as root_started_unix_ns
where false
