-- One caller's wait: the delivered attempt, on the clock of the outermost viewpoint that saw its
-- first token, counted from when the request began.
-- Grain: one row per request_key. Times are unix nanoseconds. started is the first attempt's
-- arrival, or the intended start where that is earlier: a late sender must not hide a wait.
-- stream_viewpoint: whose chunk times judge the pace. NULL: never came, or not seen.
-- unit: request
with attempts as (
    select * from fct_attempts
),

arrivals as (
    select
        request_key,
        count(*) as n_attempts,
        min(arrived_unix_ns) as arrived_unix_ns,
        min(client_started_unix_ns) as client_started_unix_ns,
        min(intended_start_unix_ns) as intended_start_unix_ns
    from attempts
    group by request_key
),

streams as (
    select *
    from int_streams
    qualify
        row_number() over (
            partition by request_key, attempt
            order by chunk_gaps_us is null, viewpoint
        ) = 1
),

delivered as (
    select
        *,
        case
            when ttft_client_s is not null then 'client'
            when ttft_gateway_s is not null then 'gateway'
            when ttft_engine_s is not null then 'engine'
        end as ttft_viewpoint
    from attempts
    where is_delivered
),

clocks as (
    select
        delivered.*,
        arrivals.n_attempts,
        arrivals.arrived_unix_ns as first_arrived_unix_ns,
        least(
            case
                when delivered.ttft_viewpoint = 'client' then arrivals.client_started_unix_ns
                else arrivals.arrived_unix_ns
            end,
            arrivals.intended_start_unix_ns
        ) as started_unix_ns,
        case delivered.ttft_viewpoint
            when 'client'
                then
                    delivered.client_started_unix_ns
                    + round(delivered.ttft_client_s * 1e9)::bigint
            when 'gateway'
                then delivered.arrived_unix_ns + round(delivered.ttft_gateway_s * 1e9)::bigint
            when 'engine'
                then delivered.arrived_unix_ns + round(delivered.ttft_engine_s * 1e9)::bigint
        end as first_token_unix_ns,
        streams.viewpoint as stream_viewpoint,
        case
            when streams.n_chunks > 0 then streams.started_unix_ns + stats.last_us * 1000
            when delivered.outcome = 'completed' then delivered.ended_unix_ns
        end as last_token_unix_ns,
        stats.tpot_s as stream_tpot_s,
        stats.has_unknown_pace,
        stats.worst_gap_us,
        stats.p99_gap_us
    from delivered
    inner join arrivals on delivered.request_key = arrivals.request_key
    left join streams
        on delivered.request_key = streams.request_key and delivered.attempt = streams.attempt
    left join int_stream_stats as stats
        on
            streams.request_key = stats.request_key
            and streams.attempt = stats.attempt
            and streams.viewpoint = stats.viewpoint
)

select
    request_key,
    attempt,
    n_attempts,
    model,
    tenant_id,
    http_route,
    slo_class_requested,
    started_unix_ns,
    first_arrived_unix_ns,
    ended_unix_ns,
    ttft_viewpoint,
    stream_viewpoint,
    first_token_unix_ns - started_unix_ns as ttft_ns,
    last_token_unix_ns - started_unix_ns as e2e_ns,
    ended_unix_ns - started_unix_ns as ended_ns,
    stream_tpot_s as tpot_s,
    has_unknown_pace,
    worst_gap_us,
    p99_gap_us
from clocks
