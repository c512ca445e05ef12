-- Reading left-over attributes.

create or replace macro attribute_of(attributes, wanted) as
list_filter(attributes, lambda a: a.key = wanted)[1].value;
