-- Service levels.

create or replace macro is_admitted_by(globs, word) as
globs is null or coalesce(len(list_filter(globs, lambda pattern: word glob pattern)) > 0, false);

-- Tokens of a chunk that are on time: token i is due at first_due + i * pace. since is the chunk's
-- time on the same clock; first and n say which tokens it brought. All integers.
create or replace macro tokens_on_time(since_ns, first, n, first_due_ns, pace_ns) as
greatest(
    0,
    least(
        n, first + n - (greatest(0, since_ns - first_due_ns) + pace_ns - 1) // pace_ns
    )
);
