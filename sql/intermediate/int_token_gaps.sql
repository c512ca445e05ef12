-- Gaps of streamed attempts as a log-bin histogram: between chunks, and shared out over tokens.
-- Grain: one row per (request_key, attempt, viewpoint, kind, minute_at, pool, bin). minute_at is
-- the minute of the gap's end, pool that of the leg that gave it (NULL: not known).
-- A chunk of k tokens gives k token gaps: gap // k each, the first gap mod k of them one more, so
-- totals stay equal. A chunk without tokens adds its gap to the next chunk's, a last one to the
-- last token gap. No token gaps where a chunk's tokens are unknown.
-- unit: request
with chunks as (
    select
        *,
        count(*) over by_choice = count(n_tokens) over by_choice as has_tokens,
        -- Chunks without tokens fall in one group with the next that has some.
        coalesce(
            count(*) filter (where n_tokens > 0 and choice_chunk_index > 1) over (
                partition by request_key, attempt, viewpoint, choice
                order by chunk_index
                rows between unbounded preceding and 1 preceding
            ),
            0
        ) as token_group
    from int_chunks
    window by_choice as (partition by request_key, attempt, viewpoint, choice)
),

groups as (
    select
        request_key,
        attempt,
        viewpoint,
        model,
        choice,
        token_group,
        sum(gap_us)::bigint as gap_us,
        sum(n_tokens)::bigint as n_tokens,
        max(at_unix_ns) as at_unix_ns
    from chunks
    where has_tokens and gap_us is not null
    group by request_key, attempt, viewpoint, model, choice, token_group
),

-- What comes after the last token waits for nobody's next one.
tailed as (
    select
        *,
        lead(gap_us) over by_choice as tail_us,
        lead(at_unix_ns) over by_choice as tail_at_unix_ns,
        lead(n_tokens) over by_choice as next_tokens
    from groups
    window
        by_choice as (
            partition by request_key, attempt, viewpoint, choice
            order by token_group
        )
),

shares as (
    select
        *,
        coalesce(next_tokens = 0, false) as has_tail,
        gap_us // n_tokens as share_us,
        gap_us % n_tokens as n_longer
    from tailed
    where n_tokens > 0
),

gaps as (
    select
        request_key,
        attempt,
        viewpoint,
        model,
        'chunk' as kind,
        gap_us,
        at_unix_ns,
        1 as n
    from chunks
    where gap_us is not null
    union all
    select
        request_key,
        attempt,
        viewpoint,
        model,
        'token' as kind,
        share_us + 1 as gap_us,
        at_unix_ns,
        n_longer as n
    from shares
    union all
    select
        request_key,
        attempt,
        viewpoint,
        model,
        'token' as kind,
        share_us as gap_us,
        at_unix_ns,
        n_tokens - n_longer - has_tail::integer as n
    from shares
    union all
    select
        request_key,
        attempt,
        viewpoint,
        model,
        'token' as kind,
        share_us + tail_us as gap_us,
        tail_at_unix_ns as at_unix_ns,
        1 as n
    from shares
    where has_tail
),

pools as (
    select
        request_key,
        attempt,
        started_unix_ns,
        max(pool) as pool
    from fct_legs
    where role in ('decode', 'unified')
    group by request_key, attempt, started_unix_ns
)

select
    gaps.request_key,
    gaps.attempt,
    gaps.model,
    pools.pool,
    gaps.viewpoint,
    gaps.kind,
    date_trunc('minute', at_utc(gaps.at_unix_ns)) as minute_at,
    gap_bin(gaps.gap_us) as bin,
    sum(gaps.n)::bigint as n
from gaps
asof left join pools
    on
        gaps.request_key = pools.request_key
        and gaps.attempt = pools.attempt
        and gaps.at_unix_ns >= pools.started_unix_ns
where gaps.n > 0
group by
    gaps.request_key,
    gaps.attempt,
    gaps.model,
    pools.pool,
    gaps.viewpoint,
    gaps.kind,
    minute_at,
    gap_bin(gaps.gap_us)
