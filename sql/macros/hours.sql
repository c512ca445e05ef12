-- UTC hours, the grain of cost: a TIMESTAMP names one, unix nanoseconds bound it.

create or replace macro hour_start_ns(hour_at) as epoch_us(hour_at) * 1000;

create or replace macro hour_end_ns(hour_at) as epoch_us(hour_at) * 1000 + 3600000000000;

create or replace macro hour_of_ns(unix_ns) as date_trunc('hour', make_timestamp(unix_ns // 1000));
