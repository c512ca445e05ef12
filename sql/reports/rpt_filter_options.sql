-- What the page's filters can choose from.
-- Grain: one row per kind ('model', 'slo_class', 'tenant_id') and choice.
-- Parameters: none.
with choices as (
    select distinct
        'model' as kind,
        model as choice
    from requests
    union all
    select distinct
        'slo_class' as kind,
        slo_class as choice
    from requests
    union all
    select distinct
        'tenant_id' as kind,
        tenant_id as choice
    from requests
)

select
    kind,
    choice
from choices
where choice is not null
order by kind, choice
