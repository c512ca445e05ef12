-- One upstream try, from the spans that stand for the whole of it: the gateways' (SERVER; one may
-- stand before another) and the caller's (CLIENT) where there is one.
-- Grain: one row per (request_key, attempt). Times are unix nanoseconds; arrived and ended are the
-- outermost gateway's where there is one, else the client's.
-- attempt is the number the source gave, unless two attempts of a request share one or an attempt
-- has none: then they are counted in order of arrival, and flagged.
-- NULL: not said.
-- unit: request
with said as (
    select
        *,
        coalesce(kind = 'client', false) as is_client
    from int_request_spans
    where is_root
),

roots as (
    select
        said.*,
        upper_roots.span_id is not null as is_inner,
        count(*) over (
            partition by
                said.request_key, said.trace_id, said.is_client, upper_roots.span_id is not null
        ) as n_alike
    from said
    left join said as upper_roots
        on
            said.request_key = upper_roots.request_key
            and said.trace_id = upper_roots.trace_id
            and said.parent_span_id = upper_roots.span_id
            and said.is_client = upper_roots.is_client
),

-- A gateway before a gateway belongs to the one under it, and a client to the outermost gateway
-- under it; of several tries under one of them, to the last, whose answer it waited for.
pairs as (
    select
        upper_roots.trace_id,
        upper_roots.span_id as upper_span_id,
        lower_roots.span_id as lower_span_id,
        count(*) over (partition by upper_roots.trace_id, upper_roots.span_id) as n_tries
    from roots as upper_roots
    inner join roots as lower_roots
        on
            upper_roots.request_key = lower_roots.request_key
            and upper_roots.trace_id = lower_roots.trace_id
            and upper_roots.span_id <> lower_roots.span_id
            and (
                upper_roots.span_id = lower_roots.parent_span_id
                or (
                    upper_roots.is_client
                    and not lower_roots.is_inner
                    and upper_roots.n_alike = 1
                    and lower_roots.n_alike = 1
                )
            )
    where not lower_roots.is_client
    qualify
        row_number() over (
            partition by upper_roots.trace_id, upper_roots.span_id
            order by lower_roots.ended_unix_ns desc, lower_roots.span_id desc
        ) = 1
),

layers as (
    select
        roots.*,
        coalesce(inner_pairs.lower_span_id, pairs.lower_span_id, roots.span_id) as try_id,
        -- A gateway that tried several times saw more than one attempt: it speaks after its tries.
        case
            when roots.is_client then 4
            when pairs.n_tries > 1 then 3
            when roots.is_inner then 2
            else 1
        end as layer
    from roots
    left join pairs on roots.trace_id = pairs.trace_id and roots.span_id = pairs.upper_span_id
    left join pairs as inner_pairs
        on
            pairs.trace_id = inner_pairs.trace_id
            and pairs.lower_span_id = inner_pairs.upper_span_id
),

-- min_by skips what is NULL: the outer gateway's word where it said something, else the inner's,
-- else the client's.
readings as (
    select
        request_key,
        trace_id,
        try_id,
        coalesce(min_by(request_id, layer), trace_id) as request_id,
        min_by(span_id, layer) filter (where not is_client) as gateway_span_id,
        min(span_id) filter (where is_client) as client_span_id,
        min(started_unix_ns) filter (where is_client) as client_started_unix_ns,
        min_by(tenant_id, layer) as tenant_id,
        min_by(attempt, layer) as said_attempt,
        min_by(started_unix_ns, layer) as arrived_unix_ns,
        min_by(ended_unix_ns, layer) as ended_unix_ns,
        min_by(intended_start_unix_ns, layer) as intended_start_unix_ns,
        min_by(dialect, layer) as dialect,
        min_by(model, layer) as model,
        min_by(outcome, layer) as said_outcome,
        min_by(status, layer) as status,
        min_by(error_type, layer) as error_type,
        min_by(http_status, layer) as http_status,
        min_by(http_route, layer) as http_route,
        min_by(finish_reasons, layer) as finish_reasons,
        min_by(is_stream, layer) as is_stream,
        min_by(slo_class, layer) as slo_class_requested,
        min_by(conversation_id, layer) as conversation_id,
        min_by(input_tokens, layer) as input_tokens,
        min_by(output_tokens, layer) as output_tokens,
        min_by(cache_read_tokens, layer) as cache_read_tokens,
        min_by(reasoning_tokens, layer) as reasoning_tokens,
        bool_or(has_conflict) as has_conflict,
        flatten(list(flags order by layer)) as span_flags
    from layers
    group by request_key, trace_id, try_id
),

numbered as (
    select
        *,
        coalesce(
            list_filter(finish_reasons, lambda reason: not is_finished(reason))[1],
            finish_reasons[1]
        ) as finish_reason,
        arrived_unix_ns - intended_start_unix_ns > 86400000000000 as is_intended_unusable,
        count(distinct said_attempt) over (partition by request_key)
        = count(*) over (partition by request_key) as is_numbered,
        row_number() over (
            partition by request_key
            order by arrived_unix_ns, trace_id, try_id
        ) as nth_to_arrive
    from readings
)

select
    request_key,
    request_id,
    tenant_id,
    case when is_numbered then said_attempt else nth_to_arrive end as attempt,
    trace_id,
    gateway_span_id,
    client_span_id,
    arrived_unix_ns,
    ended_unix_ns,
    client_started_unix_ns,
    case when not is_intended_unusable then intended_start_unix_ns end as intended_start_unix_ns,
    dialect,
    model,
    http_route,
    outcome_of(
        said_outcome, error_type, http_status, finish_reason, status, output_tokens is not null
    ) as outcome,
    is_stream,
    slo_class_requested,
    conversation_id,
    finish_reason,
    error_type,
    http_status,
    input_tokens,
    output_tokens,
    cache_read_tokens,
    reasoning_tokens,
    list_concat(
        span_flags,
        kept_flags([
            case when has_conflict then 'duplicate_conflict' end,
            case
                when not is_numbered and said_attempt is distinct from nth_to_arrive
                    then 'attempt_renumbered'
            end,
            case when is_intended_unusable then 'intended_start_unusable' end
        ])
    ) as flags
from numbered
