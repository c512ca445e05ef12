-- Money: whole nano-USD (HUGEINT) inside, DECIMAL(38, 9) USD in what is published.
-- A line's cost from its start is C(t) = floor(rate x (t - start)); the cost of a piece of it is
-- C(end) - C(start of the piece), so that the pieces of any cutting add up to the whole.

create or replace macro nano_to_usd(nano_usd) as (
    (nano_usd::decimal(28, 0) * 0.000000001::decimal(10, 9))::decimal(38, 9)
);

-- Cost of a rate over the first elapsed_ns of its life; floor for elapsed_ns >= 0.
create or replace macro accrued_nano(nano_usd, period_ns, elapsed_ns) as (
    nano_usd::hugeint * elapsed_ns::hugeint // period_ns::hugeint
);

-- Share of an amount by weight, rounded down: the first step of largest remainder.
create or replace macro share_floor(amount, weight, weights) as (
    amount::hugeint * weight::hugeint // nullif(weights::hugeint, 0)
);

create or replace macro share_remainder(amount, weight, weights) as (
    amount::hugeint * weight::hugeint % nullif(weights::hugeint, 0)
);

-- USD per million tokens from nano-USD, half a nano-USD up; NULL over no tokens.
create or replace macro usd_per_mtok(nano_usd, tokens) as (
    nano_to_usd(
        (2 * nano_usd::hugeint * 1000000 + tokens::hugeint) // nullif(2 * tokens::hugeint, 0)
    )
);
