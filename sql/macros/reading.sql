-- How a raw value is read: what can't be right is unknown, never 0.

-- The bounds are far beyond anything real, and near enough that no sum of them overflows.
create or replace macro known_count(x) as case when x between 0 and 1000000000000 then x end;

create or replace macro known_counts(xs) as
case when len(list_filter(xs, lambda x: x is null or x < 0)) = 0 then xs end;

create or replace macro known_amount(x) as
case when isfinite(x) and x between 0 and 1e9 then x end;

-- A time that can be: since 2000, and not more than a day past its receipt (clocks are skewed, not
-- that much). Anything else is a clock that was never set, or a number that is no time.
create or replace macro known_time(unix_ns, received_unix_ns) as
case
    when
        unix_ns >= 946684800000000000
        and unix_ns <= coalesce(received_unix_ns, 4102444800000000000) + 86400000000000
        then unix_ns
end;

-- The longest an attempt or a part of it can last.
create or replace macro longest_span_ns() as 604800000000000::bigint;

create or replace macro seconds_between(from_ns, to_ns) as (to_ns - from_ns) / 1e9;

create or replace macro at_utc(unix_ns) as make_timestamp(unix_ns // 1000);

create or replace macro kept_flags(flags) as list_filter(flags, lambda flag: flag is not null);

-- Ids that callers choose bind within their tenant. The tenant's own slashes are escaped, so that
-- two tenants can't meet in one key, and none can take the place of a trace's own key.
create or replace macro request_key_of(tenant, request) as
case
    when tenant = 'trace' then '%74race'
    else replace(replace(coalesce(tenant, ''), '%', '%25'), '/', '%2F')
end || '/' || request;

create or replace macro trace_key_of(trace) as 'trace/' || trace;

-- The spans that stand for a whole attempt: they carry the request's id, or are a GenAI call seen
-- from outside.
create or replace macro is_attempt_root(kind, operation_name, request_id) as
coalesce(
    request_id is not null
    or (
        kind in ('server', 'client')
        and operation_name in ('chat', 'text_completion', 'generate_content')
    ),
    false
);

-- How long an ended attempt's missing decode span is waited for before its leg is made.
create or replace macro missing_leg_grace_ns() as 10000000000::bigint;
