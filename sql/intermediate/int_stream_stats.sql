-- A streamed attempt in a few numbers, per viewpoint: gaps and pace per choice, the worst counts.
-- Grain: one row per (request_key, attempt, viewpoint) with at least one chunk. Microseconds are
-- integers, tpot_s seconds per token.
-- tpot_s = (t_m - t_1) / (N - k_1); k_1 unknown: / (N - 1), and is_first_chunk_unknown. N is the
-- server's count where there is one choice, else the choice's own. NULL: one chunk, N unknown, or
-- nothing left to divide by.
-- unit: request
with gaps as (
    select
        *,
        stall_threshold_us(count(gap_us) over by_attempt, median(gap_us) over by_attempt)
            as stall_threshold_us,
        count(distinct choice) over by_attempt as n_choices
    from int_chunks
    window by_attempt as (partition by request_key, attempt, viewpoint)
),

choices as (
    select
        request_key,
        attempt,
        viewpoint,
        choice,
        min(offset_us) as first_us,
        max(offset_us) as last_us,
        count(*) as n_chunks,
        max(gap_us) as worst_gap_us,
        quantile_cont(gap_us, 0.99) as p99_gap_us,
        count(*) filter (where gap_us > stall_threshold_us) as n_stalls,
        coalesce(sum(gap_us) filter (where gap_us > stall_threshold_us), 0)::bigint as stall_us,
        min_by(n_tokens, chunk_index) as first_tokens,
        case
            when any_value(n_choices) = 1 then any_value(output_tokens)
            when count(n_tokens) = count(*) then sum(n_tokens)::bigint
        end as n_tokens
    from gaps
    group by request_key, attempt, viewpoint, choice
),

paces as (
    select
        *,
        case
            when n_chunks > 1 and n_tokens > coalesce(first_tokens, 1)
                then (last_us - first_us) / 1e6 / (n_tokens - coalesce(first_tokens, 1))
        end as tpot_s
    from choices
)

select
    request_key,
    attempt,
    viewpoint,
    min(first_us) as first_us,
    max(last_us) as last_us,
    max(tpot_s) as tpot_s,
    bool_or(n_chunks > 1 and n_tokens is null) as has_unknown_pace,
    bool_or(first_tokens is null and tpot_s is not null) as is_first_chunk_unknown,
    max(worst_gap_us) as worst_gap_us,
    max(p99_gap_us) as p99_gap_us,
    sum(n_stalls)::bigint as n_stalls,
    sum(stall_us)::bigint as stall_us
from paces
group by request_key, attempt, viewpoint
