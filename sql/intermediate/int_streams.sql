-- What one viewpoint saw of a streamed attempt's chunks.
-- Grain: one row per (request_key, attempt, viewpoint), streamed attempts only.
-- chunk_gaps_us: the first is arrival to chunk 1. chunk_tokens: NULL when the tokens of a chunk
-- can't be known (not sent, and chunks and tokens differ in number). output_tokens: the server's
-- count, the sum of the chunks' where it gave none. NULL chunk_gaps_us: the source has no chunk
-- times.
-- unit: request
with viewpoints as (
    select
        *,
        'gateway' as viewpoint,
        gateway_span_id as span_id
    from int_attempts
    union all by name
    select
        *,
        'client' as viewpoint,
        client_span_id as span_id
    from int_attempts
),

seen as (
    select
        viewpoints.request_key,
        viewpoints.attempt,
        viewpoints.viewpoint,
        viewpoints.model,
        spans.started_unix_ns,
        spans.chunk_gaps_us,
        spans.chunk_choices,
        known_counts(spans.chunk_tokens) as said_chunk_tokens,
        viewpoints.output_tokens as said_output_tokens,
        spans.time_to_first_chunk_s,
        len(spans.chunk_gaps_us) as n_chunks
    from viewpoints
    inner join int_request_spans as spans
        on
            viewpoints.trace_id = spans.trace_id
            and viewpoints.span_id = spans.span_id
            and viewpoints.request_key = spans.request_key
    where spans.is_stream
),

resolved as (
    select
        *,
        case
            when len(said_chunk_tokens) = n_chunks then said_chunk_tokens
            when n_chunks = 1 and said_output_tokens <= 2147483647
                then [said_output_tokens::integer]
            when n_chunks = said_output_tokens
                then list_transform(chunk_gaps_us, lambda gap: 1::integer)
        end as chunk_tokens
    from seen
)

select
    request_key,
    attempt,
    viewpoint,
    model,
    started_unix_ns,
    chunk_gaps_us,
    chunk_tokens,
    case
        when len(chunk_choices) = n_chunks then chunk_choices
        else list_transform(chunk_gaps_us, lambda gap: 0::integer)
    end as chunk_choices,
    n_chunks,
    coalesce(said_output_tokens, list_sum(chunk_tokens)::bigint) as output_tokens,
    coalesce(
        case when chunk_gaps_us[1] >= 0 then chunk_gaps_us[1] / 1e6 end,
        time_to_first_chunk_s
    ) as ttft_s,
    kept_flags([
        case
            when said_output_tokens is null and list_sum(chunk_tokens) is not null
                then 'usage_estimated'
        end,
        case when n_chunks > 0 and chunk_tokens is null then 'chunk_tokens_unknown' end,
        case
            when said_chunk_tokens is not null and len(said_chunk_tokens) != n_chunks
                then 'chunk_tokens_mismatch'
        end,
        case when chunk_gaps_us is null then 'chunk_times_missing' end,
        case when list_min(chunk_gaps_us) < 0 then 'negative_duration' end
    ]) as flags
from resolved
