-- The spans of the requests that are computed now, each told which request it is part of: a trace
-- may hold several (an agent's calls), and a request several traces (its retries).
-- Grain: one row per span. Units and NULL as in stg_spans. has_conflict: the span was delivered
-- with more than one content.
-- A root belongs to the request that the outermost root above it names, else to the one named
-- below it, else to the only one in its trace, else to the trace's own key. Other spans belong to
-- their parent's request, else to that of the last root that had begun, else to the trace's key.
-- unit: request
with recursive traces as (
    select distinct request_map.trace_id
    from dirty_requests
    inner join request_map on dirty_requests.request_key = request_map.request_key
),

spans as (
    select stg_spans.*
    from traces
    inner join stg_spans on traces.trace_id = stg_spans.trace_id
),

roots as (
    select
        trace_id,
        span_id,
        parent_span_id,
        started_unix_ns,
        case when request_id is not null then request_key_of(tenant_id, request_id) end
            as said_key
    from spans
    where is_root
),

-- From each root up through the roots above it; a proxy before a proxy is one step.
chains as (
    select
        trace_id,
        span_id,
        span_id as upper_span_id,
        parent_span_id as next_span_id,
        said_key,
        0 as n_steps
    from roots
    union all
    select
        chains.trace_id,
        chains.span_id,
        roots.span_id as upper_span_id,
        roots.parent_span_id as next_span_id,
        roots.said_key,
        chains.n_steps + 1 as n_steps
    from chains
    inner join roots
        on chains.trace_id = roots.trace_id and chains.next_span_id = roots.span_id
    where chains.n_steps < 16
),

named as (
    select
        trace_id,
        span_id,
        max_by(said_key, n_steps) filter (where said_key is not null) as request_key
    from chains
    group by trace_id, span_id
),

named_below as (
    select
        chains.trace_id,
        chains.upper_span_id as span_id,
        min(named.request_key) as request_key
    from chains
    inner join named on chains.trace_id = named.trace_id and chains.span_id = named.span_id
    group by chains.trace_id, chains.upper_span_id
),

named_alone as (
    select
        trace_id,
        min(request_key) as request_key
    from named
    group by trace_id
    having count(distinct request_key) = 1
),

owners as (
    select
        roots.trace_id,
        roots.span_id,
        roots.started_unix_ns,
        coalesce(
            named.request_key,
            named_below.request_key,
            named_alone.request_key,
            trace_key_of(roots.trace_id)
        ) as request_key
    from roots
    left join named on roots.trace_id = named.trace_id and roots.span_id = named.span_id
    left join named_below
        on roots.trace_id = named_below.trace_id and roots.span_id = named_below.span_id
    left join named_alone on roots.trace_id = named_alone.trace_id
),

owned as (
    select
        spans.*,
        coalesce(owners.request_key, trace_key_of(spans.trace_id)) as request_key
    from spans
    left join owners on spans.trace_id = owners.trace_id
    qualify
        row_number() over (
            partition by spans.trace_id, spans.span_id
            order by
                coalesce(owners.span_id = spans.span_id, false) desc,
                coalesce(owners.span_id = spans.parent_span_id, false) desc,
                coalesce(owners.started_unix_ns <= spans.started_unix_ns, false) desc,
                owners.started_unix_ns desc,
                owners.span_id desc
        ) = 1
),

conflicts as (
    select
        stg_span_payloads.trace_id,
        stg_span_payloads.span_id
    from traces
    inner join stg_span_payloads on traces.trace_id = stg_span_payloads.trace_id
    group by stg_span_payloads.trace_id, stg_span_payloads.span_id
    having count(*) > 1
)

select
    owned.*,
    conflicts.span_id is not null as has_conflict
from owned
inner join dirty_requests on owned.request_key = dirty_requests.request_key
left join conflicts
    on owned.trace_id = conflicts.trace_id and owned.span_id = conflicts.span_id
