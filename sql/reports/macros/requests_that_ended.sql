-- The requests a page is about: those that ended after one instant and at another or before, NULL
-- standing for all models, classes or tenants.
-- Grain: one row per request, the columns of requests. Instants are UTC.
create or replace macro memory.main.requests_that_ended(
    after_at, until_at, of_model, of_slo_class, of_tenant_id
) as table
    select *
    from requests
    where
        ended_at > after_at::timestamp
        and ended_at <= until_at::timestamp
        and (of_model::varchar is null or model = of_model)
        and (of_slo_class::varchar is null or slo_class = of_slo_class)
        and (of_tenant_id::varchar is null or tenant_id = of_tenant_id);
