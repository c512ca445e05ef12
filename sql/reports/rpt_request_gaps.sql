-- Every gap between the chunks of one request, as the reader felt them.
-- Grain: one row per gap of an attempt. gap_s, at_s: seconds (at_s: the gap's end, since the
-- attempt's arrival); is_stall: over 200 ms and, with eight gaps or more, over 5 medians.
-- Parameters: request_key.
with streams as (
    select
        attempt,
        ttft_gateway_s,
        gaps_us,
        list_median(gaps_us) as median_us
    from attempts
    where request_key = $request_key::varchar and len(gaps_us) > 0
),

listed as (
    select
        attempt,
        ttft_gateway_s,
        median_us,
        len(gaps_us) as n_gaps,
        unnest(gaps_us)::bigint as gap_us,
        unnest(range(1, len(gaps_us) + 1)) as gap_index
    from streams
)

select
    attempt,
    gap_index,
    gap_us / 1e6 as gap_s,
    ttft_gateway_s
    + sum(gap_us) over (partition by attempt order by gap_index) / 1e6 as at_s,
    gap_us > if(n_gaps >= 8, greatest(200000, 5 * median_us), 200000) as is_stall
from listed
order by attempt, gap_index
