-- How attempts end, in one vocabulary.

create or replace macro known_finish(reason) as
case
    when reason in ('tool_call', 'tool_use', 'function_call') then 'tool_calls'
    when reason in ('end_turn', 'stop_sequence', 'eos', 'eos_token') then 'stop'
    when reason in ('max_tokens', 'max_length') then 'length'
    else reason
end;

create or replace macro is_finished(reason) as reason in ('stop', 'length', 'tool_calls');

-- What the source says goes before what its other attributes let one conclude.
create or replace macro outcome_of(
    said, error_type, http_status, finish_reason, status, has_usage
) as
case
    when said in ('completed', 'failed', 'cancelled', 'rejected', 'timed_out') then said
    when http_status in (429, 503) then 'rejected'
    when http_status in (408, 504) or error_type ilike '%timeout%' then 'timed_out'
    when
        http_status = 499
        or error_type ilike '%cancel%'
        or finish_reason in ('abort', 'cancelled')
        then 'cancelled'
    when
        error_type is not null
        or http_status >= 400
        or status = 'error'
        or finish_reason = 'error'
        then 'failed'
    when finish_reason is not null or status = 'ok' then 'completed'
    when http_status between 200 and 299 and has_usage then 'completed'
    else 'unknown'
end;
