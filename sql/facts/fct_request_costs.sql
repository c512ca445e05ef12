-- What each attempt cost, over all its legs and hours.
-- Grain: one row per (request, attempt) with a leg. fully_loaded_usd is direct, idle and shared.
-- NULL: all four where one of the attempt's legs has no price or no known worker
-- (n_unpriced_slices > 0); known_usd is then what the others cost.
-- unit: all
with costs as (
    select
        request_key,
        any_value(request_id) as request_id,
        attempt,
        sum(direct_usd) as direct_usd,
        sum(idle_usd) as idle_usd,
        sum(shared_usd) as shared_usd,
        count(*) filter (where direct_usd is null) as n_unpriced_slices
    from fct_cost_slices
    group by request_key, attempt
)

select
    request_key,
    request_id,
    attempt,
    case when n_unpriced_slices = 0 then direct_usd end as direct_usd,
    case when n_unpriced_slices = 0 then idle_usd end as idle_usd,
    case when n_unpriced_slices = 0 then shared_usd end as shared_usd,
    case when n_unpriced_slices = 0 then direct_usd + idle_usd + shared_usd end
        as fully_loaded_usd,
    coalesce(direct_usd + idle_usd + shared_usd, 0) as known_usd,
    n_unpriced_slices
from costs
