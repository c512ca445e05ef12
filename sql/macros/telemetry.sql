-- Left-over attributes come as a list of pairs.

create or replace macro attribute_of(pairs, name) as (
    list_filter(pairs, lambda pair: pair.key = name)[1].value
);
