-- The promise that holds for each request, as of its arrival.
-- Grain: one row per request_key that some class admits. A class admits a request when every list
-- it gives matches; of those, the one the request names holds, else the most specific (lists that
-- match, exact names before globs), else the first in the file. Classes that are on_request hold
-- for those only that name them.
-- unit: request
with admitted as (
    select
        clocks.request_key,
        slo_classes.*,
        coalesce(clocks.slo_class_requested = slo_classes.slo_class, false) as is_named,
        (slo_classes.models is not null)::integer * 2
        + (slo_classes.tenants is not null)::integer * 2
        + (slo_classes.routes is not null)::integer * 2
        + coalesce(list_contains(slo_classes.models, clocks.model), false)::integer
        + coalesce(list_contains(slo_classes.tenants, clocks.tenant_id), false)::integer
        + coalesce(list_contains(slo_classes.routes, clocks.http_route), false)::integer
            as specificity
    from int_request_clocks as clocks
    inner join slo_classes
        on
            (
                slo_classes.valid_from_unix_ns is null
                or clocks.first_arrived_unix_ns >= slo_classes.valid_from_unix_ns
            )
            and (
                slo_classes.valid_to_unix_ns is null
                or clocks.first_arrived_unix_ns < slo_classes.valid_to_unix_ns
            )
            and is_admitted_by(slo_classes.models, clocks.model)
            and is_admitted_by(slo_classes.tenants, clocks.tenant_id)
            and is_admitted_by(slo_classes.routes, clocks.http_route)
)

select *
from admitted
where is_named or not is_on_request
qualify
    row_number() over (
        partition by request_key
        order by
            is_named desc,
            specificity desc,
            class_index asc,
            valid_from_unix_ns desc nulls last,
            slo_version desc
    ) = 1
