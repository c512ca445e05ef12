"""Which worker gets a request: pure functions over what is known of the candidates.

Costs are predicted seconds, so that a choice can be explained and its error measured. Nothing here
knows sockets or workers' states; ties go to the first candidate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PrefillCandidate:
    """A prefill worker as the router sees it for one prompt."""

    worker_id: str
    queued_tokens: int  # prompt tokens dispatched there and not yet computed
    cached_tokens: int  # of this prompt, resident there
    tokens_per_s: float  # measured prefill speed


@dataclass(frozen=True, slots=True)
class DecodeCandidate:
    """A decode worker as the router sees it."""

    worker_id: str
    active: int  # sequences sent there that haven't ended
    max_batch: int


PrefillPolicy = Callable[[int, Sequence[PrefillCandidate]], str]
DecodePolicy = Callable[[Sequence[DecodeCandidate]], str]


def predicted_prefill_s(n_tokens: int, candidate: PrefillCandidate) -> float:
    """Seconds until token 1: the queue ahead and this prompt's part that isn't cached."""
    new_tokens = max(1, n_tokens - candidate.cached_tokens)
    return (candidate.queued_tokens + new_tokens) / candidate.tokens_per_s


def least_predicted_seconds(n_tokens: int, candidates: Sequence[PrefillCandidate]) -> str:
    """The worker that should give token 1 first (as Mooncake's Algorithm 1, without fetching)."""
    return min(candidates, key=lambda c: predicted_prefill_s(n_tokens, c)).worker_id


def shortest_queue(_n_tokens: int, candidates: Sequence[PrefillCandidate]) -> str:
    """The worker with the fewest pending tokens, whatever it has cached (as Splitwise)."""
    return min(candidates, key=lambda c: c.queued_tokens).worker_id


def least_load(candidates: Sequence[DecodeCandidate]) -> str:
    """The worker whose batch is emptiest relative to its size."""
    return min(candidates, key=lambda c: c.active / c.max_batch).worker_id


PREFILL_POLICIES: Final[dict[str, PrefillPolicy]] = {
    "least_predicted_seconds": least_predicted_seconds,
    "shortest_queue": shortest_queue,
}
DECODE_POLICIES: Final[dict[str, DecodePolicy]] = {"least_load": least_load}
