-- The headline: what a million accepted output tokens cost, over the whole UTC hours that the
-- window touches, because bills are kept by the hour.
-- Grain: one row. Money in USD; NULL: not known, with null_reason and incomplete_reason. Lengths
-- are tokens of one request; slo_versions and quality_policies: by which the verdicts were made.
-- A tenant's bill is its own slices; a model's and a class's too; unallocated money only in all.
-- The interval of the attainment is Wilson's score interval at 95 % (z = 1.96; Wilson, 1927).
-- Parameters: since, as_of (UTC; since < ended_at <= as_of); model, slo_class, tenant_id: NULL
-- for all.
with scope as (
    select
        $since::timestamp as since,
        $as_of::timestamp as as_of,
        $model::varchar as model,
        $slo_class::varchar as slo_class,
        $tenant_id::varchar as tenant_id
),

hours as (
    select cost_per_mtok.*
    from cost_per_mtok
    cross join scope
    where
        cost_per_mtok.grain = 'hour'
        and cost_per_mtok.window_end > scope.since
        and cost_per_mtok.window_start <= scope.as_of
        and cost_per_mtok.model is not distinct from scope.model
        and cost_per_mtok.slo_class is not distinct from scope.slo_class
),

-- Hours in which money was spent, for whomever: they bound the window that is shown.
span as (
    select
        min(cost_per_mtok.window_start) as window_start,
        max(cost_per_mtok.window_end) as window_end
    from cost_per_mtok
    cross join scope
    where
        cost_per_mtok.grain = 'hour'
        and cost_per_mtok.window_end > scope.since
        and cost_per_mtok.window_start <= scope.as_of
        and cost_per_mtok.model is null
        and cost_per_mtok.slo_class is null
),

ended as (
    select *
    from requests_that_ended(
        date_trunc('hour', $since::timestamp), $as_of, $model, $slo_class, $tenant_id
    )
),

verdicts as (
    select
        count(*) as n_requests,
        count(*) filter (where is_accepted) as n_accepted,
        count(*) filter (where reject_reason = 'excluded') as n_excluded,
        count(*) filter (where reject_reason = 'unknown') as n_unknown,
        count(*) filter (
            where reject_reason is null or reject_reason not in ('excluded', 'unknown')
        ) as n_judged,
        sum(input_tokens) as input_tokens,
        sum(reused_tokens) as reused_tokens,
        sum(output_tokens) as output_tokens,
        sum(output_tokens) filter (where is_accepted) as accepted_output_tokens,
        quantile_cont(input_tokens, 0.5) as input_tokens_p50,
        quantile_cont(input_tokens, 0.95) as input_tokens_p95,
        quantile_cont(output_tokens, 0.5) as output_tokens_p50,
        quantile_cont(output_tokens, 0.95) as output_tokens_p95
    from ended
),

ratios as (
    select
        n_accepted / nullif(n_judged, 0) as p,
        nullif(n_judged, 0)::double as n,
        1.96 * 1.96 as z2
    from verdicts
),

intervals as (
    select
        p as attainment_ratio,
        (p + z2 / (2 * n) - 1.96 * sqrt((p * (1 - p) + z2 / (4 * n)) / n)) / (1 + z2 / n)
            as wilson_low,
        (p + z2 / (2 * n) + 1.96 * sqrt((p * (1 - p) + z2 / (4 * n)) / n)) / (1 + z2 / n)
            as wilson_high
    from ratios
),

tenant_bill as (
    select sum(cost_slices.direct_usd + cost_slices.idle_usd + cost_slices.shared_usd) as bill_usd
    from cost_slices
    inner join requests on cost_slices.request_key = requests.request_key
    cross join scope
    where
        cost_slices.hour_at >= date_trunc('hour', scope.since)
        and cost_slices.hour_at <= scope.as_of
        and requests.tenant_id = scope.tenant_id
        and (scope.model is null or requests.model = scope.model)
        and (scope.slo_class is null or requests.slo_class = scope.slo_class)
),

fleet_bill as (
    select
        sum(bill_usd) as bill_usd,
        sum(unallocated_usd) as unallocated_usd,
        sum(input_tokens) as input_tokens,
        sum(reused_tokens) as reused_tokens,
        sum(output_tokens) as output_tokens,
        sum(accepted_output_tokens) as accepted_output_tokens,
        bool_and(is_complete) as is_complete,
        bool_and(is_final) as is_final,
        string_agg(distinct incomplete_reason, '; ') as incomplete_reason,
        string_agg(distinct null_reason, '; ') as null_reason,
        list_sort(list_distinct(flatten(list(slo_versions)))) as slo_versions,
        list_sort(list_distinct(flatten(list(quality_policies)))) as quality_policies
    from hours
),

chosen as (
    select
        if(scope.tenant_id is null, fleet_bill.bill_usd, tenant_bill.bill_usd) as bill_usd,
        if(scope.tenant_id is null, fleet_bill.unallocated_usd, null) as unallocated_usd,
        if(scope.tenant_id is null, fleet_bill.input_tokens, verdicts.input_tokens)
            as input_tokens,
        if(scope.tenant_id is null, fleet_bill.reused_tokens, verdicts.reused_tokens)
            as reused_tokens,
        if(scope.tenant_id is null, fleet_bill.output_tokens, verdicts.output_tokens)
            as output_tokens,
        if(
            scope.tenant_id is null,
            fleet_bill.accepted_output_tokens,
            verdicts.accepted_output_tokens
        ) as accepted_output_tokens,
        fleet_bill.is_complete,
        fleet_bill.is_final,
        fleet_bill.incomplete_reason,
        fleet_bill.null_reason,
        fleet_bill.slo_versions,
        fleet_bill.quality_policies
    from fleet_bill
    cross join tenant_bill
    cross join verdicts
    cross join scope
)

select
    span.window_start,
    span.window_end,
    chosen.bill_usd,
    chosen.unallocated_usd,
    chosen.accepted_output_tokens,
    1e6 * chosen.bill_usd::double / nullif(chosen.accepted_output_tokens, 0)
        as usd_per_mtok_accepted_output,
    chosen.input_tokens,
    chosen.reused_tokens,
    chosen.output_tokens,
    chosen.is_complete,
    chosen.is_final,
    chosen.incomplete_reason,
    chosen.null_reason,
    chosen.slo_versions,
    chosen.quality_policies,
    verdicts.input_tokens_p50,
    verdicts.input_tokens_p95,
    verdicts.output_tokens_p50,
    verdicts.output_tokens_p95,
    verdicts.n_requests,
    verdicts.n_accepted,
    verdicts.n_excluded,
    verdicts.n_unknown,
    verdicts.n_judged,
    intervals.attainment_ratio,
    intervals.wilson_low,
    intervals.wilson_high
from chosen
cross join verdicts
cross join span
cross join intervals
