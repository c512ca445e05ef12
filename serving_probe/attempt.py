"""One attempt as the gateway sees it: arrival, every content chunk, the end.

`AttemptRecorder` takes readings; it knows nothing of HTTP, of SSE or of OpenTelemetry. What it has
gathered is read by `emit.emit_root`. Offsets come from the monotonic clock and are placed on the
wall clock once, at arrival, so a clock step in mid-request can't bend a gap.
"""

import time
from dataclasses import dataclass, field

from serving_probe.contract import Outcome

Attributes = dict[str, str | bool | int | float | list[str] | list[int]]


@dataclass(slots=True)
class AttemptRecorder:
    """Readings of one attempt; `offsets_us` are µs since arrival, one per content chunk."""

    arrived_unix_ns: int = field(default_factory=time.time_ns)
    arrived_ns: int = field(default_factory=time.perf_counter_ns)
    first_message_us: int | None = None
    offsets_us: list[int] = field(default_factory=list)
    chunk_tokens: list[int] | None = field(default_factory=list)
    chunk_choices: list[int] = field(default_factory=list)
    ended_us: int | None = None
    outcome: Outcome | None = None
    error_type: str | None = None

    def elapsed_us(self) -> int:
        """µs since arrival, rounded to the nearest."""
        return (time.perf_counter_ns() - self.arrived_ns + 500) // 1000

    def message(self) -> None:
        """A streamed message of any kind went out; only the first is kept."""
        if self.first_message_us is None:
            self.first_message_us = self.elapsed_us()

    def chunk(self, tokens: int | None, choice: int = 0) -> None:
        """A content chunk went out, carrying `tokens` tokens (None: the source can't say)."""
        now_us = self.elapsed_us()
        if self.first_message_us is None:
            self.first_message_us = now_us
        self.offsets_us.append(now_us)
        self.chunk_choices.append(choice)
        if tokens is None:
            self.chunk_tokens = None
        elif self.chunk_tokens is not None:
            self.chunk_tokens.append(tokens)

    def end(self, outcome: Outcome, error_type: str | None = None) -> None:
        """The attempt ended; the first call wins, so a late error can't rewrite an outcome."""
        if self.outcome is None:
            self.ended_us = self.elapsed_us()
            self.outcome = outcome
            self.error_type = error_type

    @property
    def gaps_us(self) -> list[int]:
        """First entry arrival to chunk 1, then chunk to chunk: differences of rounded offsets."""
        return [b - a for a, b in zip([0, *self.offsets_us], self.offsets_us, strict=False)]
