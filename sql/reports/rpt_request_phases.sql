-- The timeline of one request: the parts of each attempt's time to first token and its stream as
-- the gateway saw them, and each leg on its worker.
-- Grain: one row per bar. start_s and end_s are seconds since the request's first arrival.
-- lane: who; phase: what; a part that took no time or isn't known has no bar.
-- Parameters: request_key.
with tries as (
    select
        *,
        (arrived_unix_ns - min(arrived_unix_ns) over ()) / 1e9 as arrived_s,
        (ended_unix_ns - min(arrived_unix_ns) over ()) / 1e9 as ended_s,
        coalesce(ttft_gateway_s, ttft_engine_s) as ttft_s
    from attempts
    where request_key = $request_key::varchar
),

-- Parts lie behind one another in this order; what no part explains lies before the first token.
parts as (
    select
        attempt,
        arrived_s,
        unnest(['queue', 'prefill', 'handoff', 'decode wait', 'first step', 'other']) as phase,
        unnest([queue_s, prefill_s, handoff_s, decode_wait_s, first_step_s, other_s]) as part_s,
        unnest(range(6)) as place
    from tries
),

laid as (
    select
        'attempt ' || attempt as lane,
        phase,
        attempt,
        arrived_s + coalesce(
            sum(part_s) over (
                partition by attempt order by place
                rows between unbounded preceding and 1 preceding
            ), 0
        ) as start_s,
        part_s
    from parts
),

streams as (
    select
        'attempt ' || attempt as lane,
        if(ttft_s is null, outcome, 'stream') as phase,
        attempt,
        arrived_s + coalesce(ttft_s, 0) as start_s,
        ended_s as end_s
    from tries
),

first_arrival as (
    select min(arrived_unix_ns) as unix_ns from tries
    having count(*) > 0
),

own_legs as (
    select * from legs
    where request_key = $request_key::varchar
),

worked as (
    select
        coalesce(own_legs.worker_id, 'unknown worker') as lane,
        own_legs.role || ' leg' as phase,
        own_legs.attempt,
        (own_legs.started_unix_ns - first_arrival.unix_ns) / 1e9 as start_s,
        (own_legs.ended_unix_ns - first_arrival.unix_ns) / 1e9 as end_s
    from own_legs
    cross join first_arrival
),

bars as (
    select
        lane,
        phase,
        attempt,
        start_s,
        start_s + part_s as end_s
    from laid
    where part_s > 0
    union all by name
    from streams
    union all by name
    from worked
)

select
    lane,
    phase,
    attempt,
    start_s,
    end_s,
    end_s - start_s as duration_s
from bars
order by attempt, start_s, lane
