"""The live workers as the router knows them: address, load, speed and last sign of life.

Knows nothing of requests' contents; `router` counts in and out.
"""

from dataclasses import dataclass, field
from typing import Final

from serving_probe.contract import Role
from serving_probe.stack.core import Hello
from serving_probe.stack.routing import DecodeCandidate

_FIRST_GUESS_TOKENS_PER_S: Final = 500.0
_WEIGHT_OF_NEW: Final = 0.2
_SLOWEST_TOKENS_PER_S: Final = 100.0


@dataclass(slots=True)
class Member:
    """One incarnation of a worker."""

    hello: Hello
    address: bytes  # ZeroMQ routing id
    heard_s: float  # monotonic
    flights: set[str] = field(default_factory=set)
    queued_tokens: int = 0  # prompt tokens sent and not yet computed
    tokens_per_s: float = _FIRST_GUESS_TOKENS_PER_S
    prefill_ended_s: float = 0.0

    @property
    def worker_id(self) -> str:
        """The id that is stable over restarts."""
        return self.hello.worker_id

    def prefilled(self, tokens: int, dispatched_s: float, now_s: float) -> None:
        """Learn the worker's speed from a prefill that just ended, without its queueing."""
        elapsed_s = now_s - max(dispatched_s, self.prefill_ended_s)
        self.prefill_ended_s = now_s
        if tokens > 0 and elapsed_s > 0:
            self.tokens_per_s += _WEIGHT_OF_NEW * (tokens / elapsed_s - self.tokens_per_s)

    def silence_allowed_s(self, base_s: float) -> float:
        """A worker is silent during a step: a long prompt, computed slowly, must not kill it."""
        return base_s + self.queued_tokens / _SLOWEST_TOKENS_PER_S

    def decode_candidate(self) -> DecodeCandidate:
        """This worker's load, for a decode policy."""
        return DecodeCandidate(self.worker_id, len(self.flights), self.hello.max_batch)


class Members:
    """Live workers by id."""

    def __init__(self, needed: frozenset[Role]) -> None:
        self._needed = needed
        self._by_id: dict[str, Member] = {}

    def join(self, member: Member) -> None:
        """A worker said hello; an earlier incarnation must have been dropped."""
        assert member.worker_id not in self._by_id, "drop the old incarnation first"
        self._by_id[member.worker_id] = member

    def drop(self, worker_id: str) -> Member | None:
        """Forget a worker; None when it wasn't there."""
        return self._by_id.pop(worker_id, None)

    def get(self, worker_id: str | None) -> Member | None:
        """The live worker of this id."""
        return self._by_id.get(worker_id) if worker_id is not None else None

    def of_role(self, role: Role) -> list[Member]:
        """Live workers of one role, in order of their ids."""
        return sorted(
            (m for m in self._by_id.values() if m.hello.role is role), key=lambda m: m.worker_id
        )

    def all(self) -> list[Member]:
        """All live workers."""
        return list(self._by_id.values())

    def missing_roles(self) -> list[Role]:
        """Roles the topology needs that no live worker has."""
        present = {member.hello.role for member in self._by_id.values()}
        return sorted(self._needed - present)

    def silent(self, base_s: float, now_s: float) -> list[Member]:
        """Workers that have been silent for longer than their work explains."""
        return [m for m in self.all() if now_s - m.heard_s > m.silence_allowed_s(base_s)]
