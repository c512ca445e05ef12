"""What a run will send, when: a source's shapes with the run's scales and bounds applied."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

from serving_probe.errors import ReplayError
from serving_probe.replay.core import Lengths, ReplayConfig, Shape
from serving_probe.replay.trace import read_trace
from serving_probe.replay.workload import Workload, find_workload, shipped_workloads


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's shapes by time, `offset_s` as the run will have it; `n_total` None: unbounded."""

    shapes: Iterator[Shape]
    n_total: int | None
    notes: tuple[str, ...]


def plan_run(config: ReplayConfig) -> Plan:
    """Read the source; raises a `ReplayError` with one sentence when there is none to read."""
    lengths = Lengths(config.length_scale, config.max_input_tokens, config.max_output_tokens)
    workload = find_workload(config.source)
    if workload is not None:
        loaded = Workload.load(workload)
        shapes, notes = loaded.shapes(config.seed, lengths), loaded.notes()
        n_total = config.n_requests
    else:
        path = Path(config.source)
        if not path.exists():
            raise ReplayError(
                f"{config.source!r} is neither a trace file nor a workload; shipped workloads are"
                f" {', '.join(shipped_workloads())}."
            )
        trace = read_trace(path, config.seed, lengths)
        bounded = list(_bounded(iter(trace.shapes), config))
        return Plan(iter(bounded), len(bounded), _scaled_notes(trace.notes, config))
    return Plan(_bounded(shapes, config), n_total, _scaled_notes(notes, config))


def _bounded(shapes: Iterator[Shape], config: ReplayConfig) -> Iterator[Shape]:
    scale, last_s = config.rate_scale, config.seconds
    if config.n_requests is not None:
        shapes = islice(shapes, config.n_requests)
    if last_s is not None:
        shapes = takewhile(lambda shape: shape.offset_s / scale < last_s, shapes)
    return shapes


def _scaled_notes(notes: tuple[str, ...], config: ReplayConfig) -> tuple[str, ...]:
    if config.rate_scale == 1:
        return notes
    return (*notes, f"rate scaled by {config.rate_scale:g}")
