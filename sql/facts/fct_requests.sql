-- What callers wanted and whether they got it: the verdict that decides what counts as useful.
-- Grain: one row per request_key. Durations are seconds from the request's start (first arrival,
-- or intended start where earlier); tokens are the delivered attempt's.
-- reject_reason is the first that holds of failed, timed_out, rejected, cancelled, unfinished,
-- slo_ttft, slo_tpot, slo_gap, slo_deadline, slo_e2e, quality, unscored_rejected, excluded,
-- unknown; NULL exactly when is_accepted. verdict_basis says what the pace was judged by.
-- NULL: unknown, or does not apply (nothing streamed; one token has no tpot_s).
-- unit: request
with delivered as (
    select * from fct_attempts
    where is_delivered
),

measured as (
    select
        clocks.*,
        delivered.request_id,
        delivered.conversation_id,
        delivered.outcome,
        delivered.finish_reason,
        delivered.is_stream,
        delivered.n_chunks,
        delivered.input_tokens,
        delivered.reused_tokens,
        delivered.output_tokens,
        deadlines.deadline_ratio,
        scores.score,
        matches.slo_version,
        matches.slo_class,
        matches.ttft_ns as ttft_limit_ns,
        matches.tpot_s as tpot_limit_s,
        matches.worst_gap_s as worst_gap_limit_s,
        matches.p99_gap_s as p99_gap_limit_s,
        matches.e2e_s as e2e_limit_s,
        matches.pace_ns,
        matches.min_on_time_ratio,
        matches.deadline_fallback,
        matches.score_name,
        matches.score_threshold,
        matches.unscored
    from delivered
    inner join int_request_clocks as clocks on delivered.request_key = clocks.request_key
    left join int_slo_matches as matches on delivered.request_key = matches.request_key
    left join int_deadlines as deadlines on delivered.request_key = deadlines.request_key
    left join int_scores as scores
        on
            delivered.request_key = scores.request_key
            and matches.score_name = scores.score_name
),

-- Each criterion: true missed, false met or not asked of this request, NULL unknown. An answer
-- without content has only its end to be judged by; one chunk has no pace and no gaps.
criteria as (
    select
        *,
        case
            when ttft_limit_ns is null or not is_stream then false
            when n_chunks = 0 then ended_ns > ttft_limit_ns
            else ttft_ns > ttft_limit_ns
        end as is_ttft_missed,
        case
            when tpot_limit_s is null or not is_stream or n_chunks <= 1 then false
            when n_chunks is not null and not has_unknown_pace
                then coalesce(tpot_s > tpot_limit_s, false)
        end as is_tpot_missed,
        case
            when coalesce(worst_gap_limit_s, p99_gap_limit_s) is null then false
            when not is_stream or n_chunks <= 1 then false
            when n_chunks is not null
                then
                    coalesce(worst_gap_us > worst_gap_limit_s * 1e6, false)
                    or coalesce(p99_gap_us > p99_gap_limit_s * 1e6, false)
        end as is_gap_missed,
        case
            when pace_ns is null or not is_stream or n_chunks = 0 then false
            when deadline_ratio is not null then deadline_ratio < min_on_time_ratio
            when deadline_fallback = 'tpot' and n_chunks = 1 then false
            when deadline_fallback = 'tpot' and n_chunks is not null and not has_unknown_pace
                then coalesce(tpot_s > pace_ns / 1e9, false)
        end as is_deadline_missed,
        case
            when e2e_limit_s is null then false
            when n_chunks = 0 then ended_ns > e2e_limit_s * 1e9
            else e2e_ns > e2e_limit_s * 1e9
        end as is_e2e_missed,
        case
            when outcome in ('failed', 'timed_out', 'rejected', 'cancelled') then 'outcome'
            when slo_class is null then 'no_class'
            when not is_stream then 'not_streamed'
            when n_chunks = 0 then 'end'
            when pace_ns is null then 'thresholds'
            when deadline_ratio is not null then 'deadlines'
            when
                deadline_fallback = 'tpot'
                and n_chunks is not null
                and (n_chunks = 1 or not has_unknown_pace)
                then 'tpot'
            else 'unknown'
        end as verdict_basis
    from measured
),

verdicts as (
    select
        *,
        case
            when outcome in ('failed', 'timed_out', 'rejected', 'cancelled') then outcome
            when outcome = 'completed' and not is_finished(finish_reason) then 'unfinished'
            when is_ttft_missed then 'slo_ttft'
            when is_tpot_missed then 'slo_tpot'
            when is_gap_missed then 'slo_gap'
            when is_deadline_missed then 'slo_deadline'
            when is_e2e_missed then 'slo_e2e'
            when score < score_threshold then 'quality'
            when score_name is not null and score is null and unscored = 'reject'
                then 'unscored_rejected'
            when score_name is not null and score is null and unscored = 'exclude'
                then 'excluded'
            when
                slo_class is null
                or outcome != 'completed'
                or finish_reason is null
                or is_ttft_missed is null
                or is_tpot_missed is null
                or is_gap_missed is null
                or is_deadline_missed is null
                or is_e2e_missed is null
                then 'unknown'
        end as reject_reason
    from criteria
)

select
    request_key,
    request_id,
    model,
    tenant_id,
    slo_class,
    slo_version,
    conversation_id,
    at_utc(first_arrived_unix_ns) as arrived_at,
    at_utc(ended_unix_ns) as ended_at,
    first_arrived_unix_ns as arrived_unix_ns,
    ended_unix_ns,
    started_unix_ns,
    ttft_ns / 1e9 as ttft_s,
    ttft_viewpoint,
    tpot_s,
    e2e_ns / 1e9 as e2e_s,
    worst_gap_us / 1e6 as worst_gap_s,
    deadline_ratio,
    verdict_basis,
    score,
    input_tokens,
    reused_tokens,
    output_tokens,
    n_attempts,
    attempt as delivered_attempt,
    reject_reason is null as is_accepted,
    reject_reason
from verdicts
