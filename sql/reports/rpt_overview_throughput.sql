-- Requests and tokens a second over time, by the end of the request.
-- Grain: one row per time bucket of bucket_s seconds (the shortest that gives at most 120), from
-- the first end in the window to the last whole bucket before the newest; empty ones are 0.
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with ended as (
    select *
    from requests_that_ended($since, $as_of, $model, $slo_class, $tenant_id)
),

extent as (
    select
        min(ended_at) as first_at,
        max(ended_at) as last_at,
        epoch(max(ended_at)) - epoch(min(ended_at)) as span_s
    from ended
),

width as (
    select
        first_at,
        last_at,
        list_filter(
            [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800],
            lambda s: s * 120 >= span_s
        )[1] as bucket_s
    from extent
    where first_at is not null
),

buckets as (
    select
        bucket_s,
        unnest(
            range((epoch(first_at) // bucket_s)::bigint, (epoch(last_at) // bucket_s)::bigint)
        ) as bucket
    from width
),

counted as (
    select
        (epoch(ended.ended_at) // width.bucket_s)::bigint as bucket,
        count(*) as n_requests,
        count(*) filter (where ended.is_accepted) as n_accepted,
        sum(ended.input_tokens) as input_tokens,
        sum(ended.output_tokens) as output_tokens,
        sum(ended.output_tokens) filter (where ended.is_accepted) as accepted_output_tokens
    from ended
    cross join width
    group by bucket
)

select
    make_timestamp(buckets.bucket * buckets.bucket_s * 1000000) as bucket_at,
    buckets.bucket_s,
    coalesce(counted.n_requests, 0) / buckets.bucket_s as requests_per_s,
    coalesce(counted.n_accepted, 0) / buckets.bucket_s as accepted_requests_per_s,
    if(counted.n_requests is null, 0, counted.input_tokens) / buckets.bucket_s
        as input_tokens_per_s,
    if(counted.n_requests is null, 0, counted.output_tokens) / buckets.bucket_s
        as output_tokens_per_s,
    coalesce(counted.accepted_output_tokens, 0) / buckets.bucket_s
        as accepted_output_tokens_per_s
from buckets
left join counted on buckets.bucket = counted.bucket
order by bucket_at
