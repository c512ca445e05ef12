"""Decides what the next step computes: a pure function of what waits, what runs and the budget.

Knows no tensors, clocks or messages; the engine carries the decision out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from serving_probe.contract import Role


@dataclass(frozen=True, slots=True)
class Prompt:
    """A sequence whose prompt isn't computed yet; the oldest come first in `State`."""

    key: str
    n_left: int  # prompt tokens still to compute
    n_pages: int  # to reserve before its first chunk
    is_admitted: bool = False  # pages are reserved


@dataclass(frozen=True, slots=True)
class State:
    """What could be computed, oldest first."""

    prompts: tuple[Prompt, ...] = ()
    decoding: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """What a step may take."""

    max_batch: int  # sequences
    max_prefill_tokens: int
    n_free_pages: int  # free ones and those that can be evicted


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of one prompt."""

    key: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's work; both empty means there's nothing to do."""

    chunks: tuple[Chunk, ...] = ()
    decodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.chunks or self.decodes)


Policy = Callable[[State, Budget], Batch]


def prefill_only(state: State, budget: Budget) -> Batch:
    """Prompts in order of arrival, as many as sequences, tokens and pages allow.

    A prompt longer than the token budget goes in chunks. One that doesn't fit holds up those
    behind it: a long prompt isn't starved by short ones.
    """
    chunks: list[Chunk] = []
    n_tokens, n_pages = budget.max_prefill_tokens, budget.n_free_pages
    for prompt in state.prompts:
        needed = 0 if prompt.is_admitted else prompt.n_pages
        if n_tokens <= 0 or needed > n_pages or len(chunks) == budget.max_batch:
            break
        chunks.append(Chunk(prompt.key, min(prompt.n_left, n_tokens)))
        n_tokens -= chunks[-1].n_tokens
        n_pages -= needed
    return Batch(chunks=tuple(chunks))


def decode_only(state: State, budget: Budget) -> Batch:
    """The oldest running sequences, one token each."""
    return Batch(decodes=state.decoding[: budget.max_batch])


def prefill_first(state: State, budget: Budget) -> Batch:
    """New prompts while there's room in the batch, else a decode step of all that run."""
    room = Budget(
        max_batch=budget.max_batch - len(state.decoding),
        max_prefill_tokens=budget.max_prefill_tokens,
        n_free_pages=budget.n_free_pages,
    )
    prefill = prefill_only(state, room) if room.max_batch > 0 else Batch()
    return prefill or decode_only(state, budget)


POLICIES: Final[Mapping[Role, Policy]] = MappingProxyType(
    {Role.PREFILL: prefill_only, Role.DECODE: decode_only, Role.UNIFIED: prefill_first}
)
"""The policy of each role."""
