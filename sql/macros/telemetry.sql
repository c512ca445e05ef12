-- Left-over attributes come as a list of pairs.

create or replace macro attribute_of(pairs, name) as (
    list_filter(pairs, lambda pair: pair.key = name)[1].value
);

-- Whether what is said now differs from what was known; silence is no news.
create or replace macro is_news(known, said) as (said is not null and said is distinct from known);
