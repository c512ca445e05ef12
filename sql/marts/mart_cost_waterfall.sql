-- Where the bill went: direct cost by what became of the request, then what no request used.
-- Grain: one row per (grain, window, step), all twelve steps in each window; they add up to the
-- bill. step is useful | recomputed | quality | slo | failed | excluded | unknown | in_flight |
-- unobserved | idle | unused_commitments | shared, in the order of step_index. idle is all idle
-- time of priced workers, shared out or not. unobserved is 0 while every request is observed.
-- NULL: usd_per_mtok without accepted output tokens, share_ratio of an empty bill.
-- unit: all
with steps as (
    select
        unnest([
            'useful', 'recomputed', 'quality', 'slo', 'failed', 'excluded', 'unknown',
            'in_flight', 'unobserved', 'idle', 'unused_commitments', 'shared'
        ]) as step,
        unnest(range(12)) as step_index
),

windows as (
    select
        grain,
        window_start,
        window_end,
        hour_at
    from int_cost_windows
),

direct as (
    select
        windows.grain,
        windows.window_start,
        case
            when coalesce(verdicts.ended_hour_at < windows.window_end, false) then verdicts.step
            else 'in_flight'
        end as step,
        sum(verdicts.direct_nano) as nano_usd
    from windows
    inner join int_cost_verdicts as verdicts on windows.hour_at = verdicts.hour_at
    group by all
),

rest as (
    select
        windows.grain,
        windows.window_start,
        case pots.kind
            when 'unused_commitment' then 'unused_commitments'
            else pots.kind
        end as step,
        sum(pots.nano_usd) as nano_usd
    from windows
    inner join int_cost_pots as pots on windows.hour_at = pots.hour_at
    group by all
),

parts as (
    select * from direct
    union all
    select * from rest
),

bills as (
    select
        windows.grain,
        windows.window_start,
        sum(bill_lines.nano_usd) as bill_nano
    from windows
    inner join fct_cost_lines as bill_lines on windows.hour_at = bill_lines.hour_at
    group by windows.grain, windows.window_start
),

accepted as (
    select
        windows.grain,
        windows.window_start,
        sum(ended.accepted_output_tokens) as tokens
    from windows
    inner join int_ended_hours as ended on windows.hour_at = ended.hour_at
    group by windows.grain, windows.window_start
),

filled as (
    select
        spans.grain,
        spans.window_start,
        spans.window_end,
        steps.step,
        steps.step_index,
        coalesce(parts.nano_usd, 0)::hugeint as nano_usd,
        bills.bill_nano,
        accepted.tokens
    from (
        select distinct
            grain,
            window_start,
            window_end
        from windows
    ) as spans
    cross join steps
    left join parts
        on
            spans.grain = parts.grain
            and spans.window_start = parts.window_start
            and steps.step = parts.step
    left join bills on spans.grain = bills.grain and spans.window_start = bills.window_start
    left join accepted
        on spans.grain = accepted.grain and spans.window_start = accepted.window_start
)

select
    grain,
    window_start,
    window_end,
    step,
    step_index::integer as step_index,
    nano_to_usd(nano_usd) as usd,
    usd_per_mtok(nano_usd, tokens) as usd_per_mtok,
    nano_usd / nullif(bill_nano, 0) as share_ratio
from filled
