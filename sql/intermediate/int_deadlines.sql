-- The share of a request's tokens that came by their deadline: token i of a choice is due at the
-- request's start + the class's TTFT limit + i * its pace; of several choices the worst counts.
-- Source: Etalon's fluidity index (Agrawal et al., 2024) and smooth goodput (arXiv 2410.14257).
-- Grain: one row per request_key whose class has deadlines and whose chunks' tokens are known.
-- unit: request
with tokens as (
    select
        clocks.request_key,
        chunks.choice,
        chunks.n_tokens,
        tokens_on_time(
            chunks.at_unix_ns - clocks.started_unix_ns,
            chunks.token_start,
            chunks.n_tokens,
            matches.ttft_ns,
            matches.pace_ns
        ) as n_on_time
    from int_request_clocks as clocks
    inner join int_slo_matches as matches on clocks.request_key = matches.request_key
    inner join int_chunks as chunks
        on
            clocks.request_key = chunks.request_key
            and clocks.attempt = chunks.attempt
            and clocks.stream_viewpoint = chunks.viewpoint
    where matches.pace_ns is not null
),

choices as (
    select
        request_key,
        choice,
        case
            when count(n_tokens) = count(*) then sum(n_on_time) / nullif(sum(n_tokens), 0)
        end as on_time_ratio
    from tokens
    group by request_key, choice
)

select
    request_key,
    min(on_time_ratio) as deadline_ratio
from choices
group by request_key
having count(on_time_ratio) = count(*)
