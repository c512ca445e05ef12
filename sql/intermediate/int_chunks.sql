-- Every content chunk of a streamed attempt, on one viewpoint's clock.
-- Grain: one row per (request_key, attempt, viewpoint, chunk_index).
-- offset_us: since this viewpoint's arrival. gap_us: since the same choice's chunk before, NULL on
-- a choice's first. n_tokens NULL: unknown; token_start is the choice's first token in this chunk,
-- counted from 0.
-- unit: request
with chunks as (
    select
        request_key,
        attempt,
        viewpoint,
        model,
        started_unix_ns,
        output_tokens,
        unnest(range(1, n_chunks + 1)) as chunk_index,
        unnest(chunk_gaps_us) as stream_gap_us,
        unnest(chunk_choices) as choice,
        unnest(coalesce(chunk_tokens, list_transform(chunk_gaps_us, lambda gap: null::integer)))
            as n_tokens
    from int_streams
    where n_chunks > 0
),

placed as (
    select
        *,
        (sum(stream_gap_us) over (
            partition by request_key, attempt, viewpoint
            order by chunk_index
        ))::bigint as offset_us
    from chunks
)

select
    request_key,
    attempt,
    viewpoint,
    model,
    choice,
    chunk_index,
    row_number() over by_choice as choice_chunk_index,
    offset_us,
    offset_us - lag(offset_us) over by_choice as gap_us,
    n_tokens,
    (sum(n_tokens) over by_choice)::bigint - n_tokens as token_start,
    started_unix_ns + offset_us * 1000 as at_unix_ns,
    output_tokens
from placed
window
    by_choice as (
        partition by request_key, attempt, viewpoint, choice
        order by chunk_index
        rows between unbounded preceding and current row
    )
