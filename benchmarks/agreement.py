"""What the client of a replay saw, against what the warehouse says of the same attempts.

A library for `demo_agreement.py` and for the end-to-end test: reads, compares, judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from metrics.query import Warehouse
from serving_probe.replay.record import read_records

TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Agreement:
    """One run's comparison; differences in seconds, token sums over what the API returned."""

    n_ended: int
    missing: list[str]
    repeated: list[str]
    ttft_differences_s: list[float]
    client_tokens: dict[str, int]
    warehouse_tokens: dict[str, int]
    outcomes: dict[str, int]
    hours: pl.DataFrame

    def ttft_difference_s(self, quantile: float) -> float:
        """A quantile of |gateway TTFT − client TTFT|, linear between ranks."""
        value = pl.Series(self.ttft_differences_s).quantile(quantile, "linear")
        assert value is not None, "no attempt streamed a chunk"
        return float(value)


def compare(store: Path) -> Agreement:
    """Compare every replay record in a store with its warehouse."""
    records = [
        record
        for path in sorted((store / "replay").glob("*.jsonl"))
        for record in read_records(path)
        if record.ended_unix_ns is not None
    ]
    warehouse = Warehouse(store)
    counted = dict(
        warehouse.sql("select request_id, count(*) from requests group by request_id").iter_rows()
    )
    attempts = {
        row["trace_id"]: row
        for row in warehouse.sql(
            "select trace_id, ttft_gateway_s, outcome, input_tokens,"
            " reused_tokens as cached_tokens, output_tokens from attempts"
        ).iter_rows(named=True)
    }
    known = [record for record in records if record.trace_id in attempts]
    # A stream that broke off, or a refusal, returned no usage to compare with.
    with_usage = [record for record in known if record.output_tokens is not None]
    outcomes: dict[str, int] = {}
    for record in known:
        pair = f"{record.outcome} / {attempts[record.trace_id]['outcome']}"
        outcomes[pair] = outcomes.get(pair, 0) + 1
    return Agreement(
        n_ended=len(records),
        missing=[r.request_id for r in records if r.request_id not in counted],
        repeated=[r.request_id for r in records if counted.get(r.request_id, 1) != 1],
        ttft_differences_s=[
            abs(attempts[r.trace_id]["ttft_gateway_s"] - r.ttft_s)
            for r in known
            if r.ttft_s is not None and attempts[r.trace_id]["ttft_gateway_s"] is not None
        ],
        client_tokens={t: sum(getattr(r, t) or 0 for r in with_usage) for t in TOKENS},
        warehouse_tokens={t: sum(attempts[r.trace_id][t] or 0 for r in with_usage) for t in TOKENS},
        outcomes=outcomes,
        hours=warehouse.report("hour_identity"),
    )
