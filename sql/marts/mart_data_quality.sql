-- What is wrong or missing in the record, counted.
-- Grain: one row per flag that some attempt has. orphan_trace counts traces whose attempt span had
-- not come a minute after their last: their work is in legs, their request is not in requests.
-- unit: all
with flags as (
    select unnest(flags) as flag
    from fct_attempts
    union all
    select 'orphan_trace' as flag
    from int_rootless_traces
    inner join watermark
        on int_rootless_traces.received_unix_ns + 60000000000 <= watermark.received_unix_ns
)

select
    flag,
    count(*) as n_attempts
from flags
group by flag
