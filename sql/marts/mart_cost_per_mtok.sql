-- The headline: what a million accepted output tokens cost, fully loaded.
-- Grain: one row per (grain, window, model, class); a NULL model or class stands for all of them.
-- grain is hour | day | all. bill_usd is the window's whole bill, in a model's or class's row what
-- its own legs were allocated; unallocated_usd is in the row of all alone. Tokens count where they
-- ended: accepted_output_tokens with their request, the other sums with each attempt.
-- NULL: usd_per_mtok_accepted_output where there is nothing to divide by or nothing priced
-- (null_reason); length quantiles without a counted request; incomplete_reason when is_complete.
-- unit: all
with facts as (
    select
        hour_at,
        null::varchar as model,
        null::varchar as slo_class,
        nano_usd as line_nano,
        (not is_priced)::integer as n_unpriced
    from fct_cost_lines
    union all by name
    select
        hour_at,
        nano_usd as unallocated_nano
    from int_cost_pots
    where is_unallocated
    union all by name
    select
        hour_at,
        model,
        slo_class,
        direct_nano + idle_nano + shared_nano as allocated_nano,
        n_unpriced_slices as n_unpriced,
        n_unplaced_slices as n_unplaced
    from int_cost_verdicts
    union all by name
    select * from int_ended_hours
),

sums as (
    select
        windows.grain,
        windows.window_start,
        windows.window_end,
        windows.is_final,
        facts.model,
        facts.slo_class,
        grouping(facts.model) = 1 as is_all_models,
        grouping(facts.slo_class) = 1 as is_all_classes,
        sum(facts.line_nano) as line_nano,
        coalesce(sum(facts.unallocated_nano), 0) as unallocated_nano,
        coalesce(sum(facts.allocated_nano), 0) as allocated_nano,
        coalesce(sum(facts.n_unpriced), 0) as n_unpriced,
        coalesce(sum(facts.n_unplaced), 0) as n_unplaced,
        coalesce(sum(facts.n_requests), 0) as n_requests,
        coalesce(sum(facts.n_accepted), 0) as n_accepted,
        coalesce(sum(facts.n_unknown), 0) as n_unknown,
        coalesce(sum(facts.n_accepted_uncounted), 0) as n_accepted_uncounted,
        sum(facts.accepted_output_tokens) as accepted_output_tokens,
        sum(facts.input_tokens) as input_tokens,
        sum(facts.reused_tokens) as reused_tokens,
        sum(facts.output_tokens) as output_tokens
    from int_cost_windows as windows
    inner join facts on windows.hour_at = facts.hour_at
    group by
        windows.grain,
        windows.window_start,
        windows.window_end,
        windows.is_final,
        grouping sets ((), (facts.model), (facts.slo_class), (facts.model, facts.slo_class))
    having
        (grouping(facts.model) = 1 or facts.model is not null)
        and (grouping(facts.slo_class) = 1 or facts.slo_class is not null)
),

promises as (
    select
        slo_version,
        slo_class,
        coalesce(
            score_name || ' >= ' || score_threshold || ', unscored: ' || unscored, 'none'
        ) as quality_policy
    from slo_classes
),

shapes as (
    select
        windows.grain,
        windows.window_start,
        requests.model,
        requests.slo_class,
        grouping(requests.model) = 1 as is_all_models,
        grouping(requests.slo_class) = 1 as is_all_classes,
        quantile_cont(requests.input_tokens, 0.5) as input_tokens_p50,
        quantile_cont(requests.input_tokens, 0.95) as input_tokens_p95,
        quantile_cont(requests.output_tokens, 0.5) as output_tokens_p50,
        quantile_cont(requests.output_tokens, 0.95) as output_tokens_p95,
        list_sort(list(distinct requests.slo_version)) as slo_versions,
        list_sort(list(distinct promises.quality_policy)) as quality_policies
    from int_cost_windows as windows
    inner join fct_requests as requests on windows.hour_at = hour_of_ns(requests.ended_unix_ns)
    left join promises
        on
            requests.slo_version = promises.slo_version
            and requests.slo_class = promises.slo_class
    group by
        windows.grain,
        windows.window_start,
        grouping sets (
            (), (requests.model), (requests.slo_class), (requests.model, requests.slo_class)
        )
),

-- A worker that nobody priced may have borne part of any model's and class's cost.
billed as (
    select
        *,
        max(n_unpriced) over (partition by grain, window_start) as n_unpriced_anywhere,
        case
            when is_all_models and is_all_classes then line_nano
            when allocated_nano > 0 or n_unpriced + n_unplaced = 0 then allocated_nano
        end as bill_nano
    from sums
)

select
    billed.grain,
    billed.window_start,
    billed.window_end,
    billed.model,
    billed.slo_class,
    nano_to_usd(billed.bill_nano) as bill_usd,
    nano_to_usd(billed.allocated_nano) as allocated_usd,
    case
        when billed.is_all_models and billed.is_all_classes
            then nano_to_usd(billed.unallocated_nano)
    end as unallocated_usd,
    billed.input_tokens::bigint as input_tokens,
    billed.reused_tokens::bigint as reused_tokens,
    billed.output_tokens::bigint as output_tokens,
    coalesce(
        billed.accepted_output_tokens, case when billed.n_accepted_uncounted = 0 then 0 end
    )::bigint as accepted_output_tokens,
    usd_per_mtok(billed.bill_nano, billed.accepted_output_tokens) as usd_per_mtok_accepted_output,
    case
        when billed.bill_nano is null then 'nothing_priced'
        when billed.n_accepted = 0 then 'nothing_accepted'
        when coalesce(billed.accepted_output_tokens, 0) = 0 then 'no_accepted_tokens_counted'
    end as null_reason,
    case
        when billed.n_unpriced_anywhere > 0 then 'worker_without_price'
        when billed.n_unplaced > 0 then 'leg_without_worker_or_pool'
        when billed.n_unknown > 0 then 'verdict_unknown'
        when billed.n_accepted_uncounted > 0 then 'output_tokens_unknown'
    end as incomplete_reason,
    billed.n_unpriced_anywhere + billed.n_unplaced + billed.n_unknown + billed.n_accepted_uncounted
    = 0 as is_complete,
    billed.is_final,
    billed.n_requests::bigint as n_requests,
    billed.n_accepted::bigint as n_accepted,
    billed.n_unknown::bigint as n_unknown,
    shapes.input_tokens_p50,
    shapes.input_tokens_p95,
    shapes.output_tokens_p50,
    shapes.output_tokens_p95,
    shapes.slo_versions,
    shapes.quality_policies
from billed
left join shapes
    on
        billed.grain = shapes.grain
        and billed.window_start = shapes.window_start
        and billed.is_all_models = shapes.is_all_models
        and billed.is_all_classes = shapes.is_all_classes
        and billed.model is not distinct from shapes.model
        and billed.slo_class is not distinct from shapes.slo_class
