"""A run's sums as its attempts end, and the summary they make."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from serving_probe.replay.core import ReplaySummary
from serving_probe.replay.record import Record


class Tally:
    """Running sums of a run; TTFTs are kept whole for exact percentiles."""

    def __init__(self) -> None:
        self.n_sent = 0
        self.n_ended = 0
        self._n_by_outcome: Counter[str] = Counter()
        self._n_without_usage = 0
        self._input_tokens: int | None = None
        self._cached_tokens: int | None = None
        self._output_tokens: int | None = None
        self._ttft_s: list[float] = []
        self._worst_lag_s: float | None = None

    def add(self, record: Record) -> None:
        """Count an ended attempt."""
        self.n_ended += 1
        self._n_by_outcome[record.outcome or "unknown"] += 1
        self._n_without_usage += record.input_tokens is None
        self._input_tokens = _plus(self._input_tokens, record.input_tokens)
        self._cached_tokens = _plus(self._cached_tokens, record.cached_tokens)
        self._output_tokens = _plus(self._output_tokens, record.output_tokens)
        if record.ttft_s is not None:
            self._ttft_s.append(record.ttft_s)
        if record.sent_unix_ns is not None:
            lag_s = (record.sent_unix_ns - record.scheduled_unix_ns) / 1e9
            self._worst_lag_s = (
                lag_s if self._worst_lag_s is None else max(lag_s, self._worst_lag_s)
            )

    def summary(
        self, model: str, elapsed_s: float, notes: tuple[str, ...], out: Path | None
    ) -> ReplaySummary:
        """The run in numbers."""
        ttft_s = sorted(self._ttft_s)
        return ReplaySummary(
            n_sent=self.n_sent,
            n_by_outcome=dict(sorted(self._n_by_outcome.items())),
            input_tokens=self._input_tokens,
            cached_tokens=self._cached_tokens,
            output_tokens=self._output_tokens,
            n_without_usage=self._n_without_usage,
            elapsed_s=elapsed_s,
            ttft_p50_s=quantile(ttft_s, 0.50),
            ttft_p95_s=quantile(ttft_s, 0.95),
            ttft_p99_s=quantile(ttft_s, 0.99),
            worst_lag_s=self._worst_lag_s,
            model=model,
            notes=notes,
            out=out,
        )


def quantile(ordered: Sequence[float], level: float) -> float | None:
    """The quantile of sorted values, linear between ranks; None when there are no values."""
    if not ordered:
        return None
    rank = level * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _plus(total: int | None, count: int | None) -> int | None:
    return total if count is None else (total or 0) + count
