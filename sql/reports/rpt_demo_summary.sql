-- What a run of the demo came to.
-- Grain: one row per measure: measure, amount (double; NULL: not known), unit.
-- Parameters: none.
with verdicts as (
    select
        count(*) as n_requests,
        count(*) filter (where is_accepted) as n_accepted,
        quantile_cont(ttft_s, 0.5) as ttft_p50_s,
        quantile_cont(ttft_s, 0.95) as ttft_p95_s,
        quantile_cont(tpot_s, 0.5) as tpot_p50_s,
        sum(input_tokens) as input_tokens,
        sum(reused_tokens) as reused_tokens,
        sum(output_tokens) as output_tokens
    from requests
),

headline as (
    select
        bill_usd,
        accepted_output_tokens,
        usd_per_mtok_accepted_output
    from cost_per_mtok
    where grain = 'all' and model is null and slo_class is null
),

measures as (
    select
        unnest([
            'requests that ended', 'accepted', 'prompt tokens', 'of them from the cache',
            'output tokens', 'accepted output tokens', 'time to first token p50',
            'time to first token p95', 'time per output token p50', 'bill',
            'per million accepted output tokens'
        ]) as measure,
        unnest([
            verdicts.n_requests::double, verdicts.n_accepted::double,
            verdicts.input_tokens::double, verdicts.reused_tokens::double,
            verdicts.output_tokens::double, headline.accepted_output_tokens::double,
            1000 * verdicts.ttft_p50_s, 1000 * verdicts.ttft_p95_s, 1000 * verdicts.tpot_p50_s,
            headline.bill_usd::double, headline.usd_per_mtok_accepted_output::double
        ]) as amount,
        unnest([
            'requests', 'requests', 'tokens', 'tokens', 'tokens', 'tokens', 'ms', 'ms', 'ms',
            'USD', 'USD'
        ]) as unit,
        unnest(range(11)) as place
    from verdicts
    left join headline on true
)

select
    measure,
    amount,
    unit
from measures
order by place
