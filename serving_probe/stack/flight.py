"""One attempt on its way through the workers, and what its handler hears of it.

Knows neither HTTP nor sockets: `router` moves it on, `api` reads its events.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto

from serving_probe.contract import Outcome
from serving_probe.stack.core import Hello, KvExport, Sampling


class Phase(Enum):
    """Where the attempt is."""

    PREFILL = auto()
    HELD = auto()  # prefilled; no decode worker is alive just now
    DECODE = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Progress:
    """Tokens of one step; `finish_reason` when they were the last."""

    token_ids: tuple[int, ...]
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended otherwise than by its last token."""

    outcome: Outcome
    error_type: str
    message: str
    http_status: int


@dataclass(frozen=True, slots=True)
class LostDecode:
    """A decode that a dead worker took its own account of with it."""

    worker: Hello
    since_unix_ns: int


@dataclass(slots=True)
class Flight:
    """One attempt in flight; a unified worker counts as its prefill worker."""

    attempt_id: str
    traceparent: str
    token_ids: tuple[int, ...]
    cache_scope: str
    sampling: Sampling
    phase: Phase = Phase.PREFILL
    prefill_worker: str | None = None
    decode_worker: str | None = None
    dispatched_s: float = 0.0
    sent_unix_ns: int = 0  # to the worker that has it now
    queued_tokens: int = 0  # counted in its prefill worker's queue
    reused_tokens: int | None = None  # unknown until a worker said so
    first_token: int | None = None
    export: KvExport | None = None  # set while the lease is out
    offered_s: float = 0.0  # monotonic; the lease's remaining time counts from here
    is_waiting: bool = True  # no worker is producing tokens for it yet
    lost: LostDecode | None = None
    events: asyncio.Queue[Progress | Interrupted] = field(default_factory=asyncio.Queue)

    def interrupt(
        self, outcome: Outcome, error_type: str, message: str, http_status: int = 502
    ) -> None:
        """Tell the handler that there's no going on."""
        self.events.put_nowait(Interrupted(outcome, error_type, message, http_status))
