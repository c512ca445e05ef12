"""A tiny worker's inside without its process: an engine over a real pool, spans kept in a list."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from opentelemetry.context import Context

from serving_probe.attempt import Attributes
from serving_probe.contract import Role
from serving_probe.stack.core import (
    Decode,
    Failed,
    Prefill,
    PrefillDone,
    Release,
    Sampling,
    Tokens,
    ToRouter,
)
from serving_probe.stack.engine import Engine
from serving_probe.stack.kv.pool import PagePool, PageShape
from serving_probe.stack.legspans import LegSpans
from serving_probe.stack.model.llama import Model
from serving_probe.stack.transfer.shm import ShmLink

PROMPT = tuple(b"The quick brown fox jumps over the lazy dog, and then some.")


@dataclass
class Kept:
    """One emitted span."""

    name: str
    start_ns: int
    end_ns: int
    attrs: dict[str, Any]


@dataclass
class Rig:
    """An engine, its pool and what it emitted."""

    engine: Engine
    pool: PagePool
    spans: list[Kept] = field(default_factory=list)
    messages: list[ToRouter] = field(default_factory=list)

    def run(self, n_steps: int = 200) -> list[ToRouter]:
        """Step until nothing is left to do; the messages of these steps."""
        first = len(self.messages)
        for _ in range(n_steps):
            self.engine.step()
            self.messages += self.engine.take_messages()
            if not self.engine.has_work:
                break
        return self.messages[first:]

    def emitted_ns(self) -> int:
        """Device time of all emitted spans."""
        return sum(round(s.attrs.get("tokenmill.device_seconds", 0) * 1e9) for s in self.spans)

    def running_ns(self) -> int:
        """Device time that sequences still here have taken, less what went out as spans."""
        total = 0
        for seq in self.engine.running:
            spent = dict(seq.spent.wall_ns)
            if seq.prefill_ended_ns is not None:
                spent.pop("prefill")
            if seq.kv_ready_ns is not None:
                spent.pop("kv_transfer")
            total += sum(spent.values())
        return total

    def named(self, name: str) -> list[Kept]:
        """Spans of one name."""
        return [span for span in self.spans if span.name == name]


@contextmanager
def rig(
    model: Model,
    role: Role,
    *,
    n_pages: int = 64,
    max_batch: int = 8,
    lease_s: float = 30.0,
    max_prefill_tokens: int = 2048,
    worker_id: str | None = None,
    pulse: Callable[[], None] | None = None,
) -> Iterator[Rig]:
    """An engine of one role; its memory is gone afterwards and its books balanced."""
    worker_id = worker_id or f"{role}-0"
    shape = PageShape.of(model.config, model.model_hash, model.dtype)
    pool = PagePool(f"tmtest-{uuid4().hex[:8]}-{worker_id}", shape, n_pages)
    spans: list[Kept] = []

    def emit(name: str, _: Context, start_ns: int, end_ns: int, attrs: Attributes) -> None:
        spans.append(Kept(name, start_ns, end_ns, dict(attrs)))

    writer = LegSpans(emit, worker_id, role, "cpu-test", f"{role}-pool", model.dtype)
    engine = Engine(
        worker_id,
        role,
        model,
        pool,
        ShmLink(),
        writer,
        max_batch=max_batch,
        max_prefill_tokens=max_prefill_tokens,
        lease_s=lease_s,
        pulse=pulse,
    )
    try:
        yield Rig(engine, pool, spans)
        pool.ledger.check()
    finally:
        pool.unlink()


def prefill(
    prompt: tuple[int, ...] = PROMPT,
    *,
    max_tokens: int = 8,
    scope: str = "tenant",
    attempt_id: str | None = None,
    **sampling: Any,
) -> Prefill:
    """A prompt for a prefill or unified worker."""
    return Prefill(
        attempt_id or uuid4().hex,
        "",
        prompt,
        scope,
        Sampling(max_tokens=max_tokens, **sampling),
        time.time_ns(),
    )


def handoff(request: Prefill, done: PrefillDone) -> Decode:
    """The decode worker's message for a prompt that was computed elsewhere."""
    assert done.export is not None
    return Decode(
        request.attempt_id,
        "",
        request.token_ids,
        done.first_token,
        request.sampling,
        done.export,
        time.time_ns(),
    )


def output(messages: list[ToRouter], attempt_id: str) -> list[int]:
    """All tokens sent for one attempt."""
    return [
        token
        for m in messages
        if isinstance(m, Tokens) and m.attempt_id == attempt_id
        for token in m.token_ids
    ]


def only(messages: list[ToRouter], kind: type[Any]) -> Any:
    """The one message of a kind."""
    (found,) = [m for m in messages if isinstance(m, kind)]
    return found


def failures(messages: list[ToRouter]) -> list[str]:
    """Reasons of all failures."""
    return [m.reason for m in messages if isinstance(m, Failed)]


def releases(messages: list[ToRouter]) -> list[str]:
    """Lease ids that were let go."""
    return [m.lease_id for m in messages if isinstance(m, Release)]
