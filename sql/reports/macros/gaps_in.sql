-- The token-gap histogram a page is about: minutes after one instant and up to another, NULL
-- standing for all models.
-- Grain: as token_gaps. Instants are UTC; the minute in which the first one lies is in.
create or replace macro memory.main.gaps_in(after_at, until_at, of_model) as table
    select *
    from token_gaps
    where
        minute_at >= date_trunc('minute', after_at::timestamp)
        and minute_at <= until_at::timestamp
        and (of_model::varchar is null or model = of_model);
