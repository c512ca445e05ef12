"""Busy time of one worker: measured per step, shared among the step's sequences.

Integers (ns) throughout, so that the sequences' shares add up to the counter exactly.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """What a worker's time was spent on; values of the attribute `tokenmill.phase`."""

    PREFILL = "prefill"
    DECODE = "decode"
    KV_TRANSFER = "kv_transfer"


@dataclass(slots=True)
class Spent:
    """Time by phase: wall seconds of the whole worker, and CPU seconds of its thread."""

    wall_ns: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    cpu_ns: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))

    def add(self, phase: Phase, wall_ns: int, cpu_ns: int) -> None:
        """Count some more."""
        self.wall_ns[phase] += wall_ns
        self.cpu_ns[phase] += cpu_ns


class Stopwatch:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self._wall_ns = time.perf_counter_ns()
        self._cpu_ns = time.thread_time_ns()

    def read(self) -> tuple[int, int]:
        """(wall ns, CPU ns of this thread)."""
        return time.perf_counter_ns() - self._wall_ns, time.thread_time_ns() - self._cpu_ns


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """`total` split in proportion to positive `weights`; the shares add up to it exactly.

    Largest remainder, ties to the earlier one.
    """
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
