"""One build: new segments in, changed requests and hours computed anew, the warehouse published.

Every step commits together with the list of what it left out of date, so a build that is killed
at any point goes on where it stopped and never counts a segment twice. The order segments arrive
in, and how they are cut into builds, changes no row.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import polars as pl
from pydantic import BaseModel, ConfigDict

from metrics.build.models import Unit, load_runner_query
from metrics.build.publish import publish
from metrics.build.segments import compact, load_segments, new_segments
from metrics.build.workspace import Workspace
from metrics.ledger.prices import load_price_cards
from metrics.ledger.slo import load_slo_classes

DATA = Path(__file__).parent.parent.parent / "data"
_KEPT_AS = {"int_trace_keys": "request_map"}
REQUESTS_PER_UNIT = 20_000
HOURS_PER_UNIT = 48


class BuildConfig(BaseModel):
    """What is built, and by which prices and promises."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Path
    prices: Path = DATA / "prices"
    slo: Path = DATA / "slo" / "default.toml"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What one build did."""

    n_segments: int
    n_quarantined: int  # segments that could not be read
    n_requests: int
    n_hours: int
    is_published: bool
    elapsed_s: float


def run_builder(
    config: BuildConfig,
    interval_s: float,
    stop: threading.Event,
    on_build: Callable[[BuildReport], None] = lambda _: None,
) -> None:
    """Build every `interval_s` until `stop` is set, and once more after it.

    Raises the room's `MetricsError` when the store or a ledger file can't be used.
    """
    with Builder(config) as builder:
        while True:
            is_last = stop.is_set()
            report = builder.build()
            on_build(report)
            if is_last:
                return
            # On a busy machine a build takes longer, and isn't alone: it rests half as long.
            stop.wait(max(interval_s - report.elapsed_s, report.elapsed_s / 2))


def build_once(config: BuildConfig) -> BuildReport:
    """Bring the warehouse up to date and publish it."""
    with Builder(config) as builder:
        return builder.build()


class Builder:
    """Holds the working database open from build to build."""

    def __init__(self, config: BuildConfig) -> None:
        self.config = config
        ledger: dict[str, pl.DataFrame] = {
            "price_cards": load_price_cards(config.prices),
            "slo_classes": load_slo_classes(config.slo),
        }
        self.work = Workspace(config.store / "build.duckdb", ledger)
        self._changed = {model.name for model in self.work.models}
        """Relations with other rows than at the last publication; at first nobody knows."""
        everything = (
            ("pending_requests", "select distinct request_key from request_map"),
            ("pending_hours", load_runner_query("hours_of_points")),
        )
        self.work.accept_ledger(everything)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.work.close()

    def build(self) -> BuildReport:
        """Consume new segments, recompute what they touch, publish if anything changed."""
        started = time.perf_counter()
        n_segments = n_quarantined = n_requests = n_hours = 0
        while paths := new_segments(self.work.con, self.config.store):
            n_consumed = self._consume(paths)
            n_segments += n_consumed
            n_quarantined += len(paths) - n_consumed
        while (n_recomputed := self._recompute_requests()) is not None:
            n_requests += n_recomputed
        while n_keys := self._recompute_hours():
            n_hours += n_keys
        warehouse = self.config.store / "warehouse.duckdb"
        is_published = bool(self._changed)
        if is_published:
            self._recompute_small_marts()
            publish(self.work, warehouse)
            self._changed.clear()
        compact(self.work.con, self.config.store)
        elapsed_s = time.perf_counter() - started
        return BuildReport(n_segments, n_quarantined, n_requests, n_hours, is_published, elapsed_s)

    def _consume(self, paths: list[Path]) -> int:
        """Stage the rows of new segments, note what they touch; how many could be read."""
        work = self.work
        readable = load_segments(work.con, self.config.store, paths)
        for model in work.of_unit(Unit.SEGMENT):
            work.run(model)
        with work.transaction():
            for model in work.of_unit(Unit.SEGMENT):
                work.append(model, into=_KEPT_AS.get(model.name))
            work.mark("pending_requests", load_runner_query("touched_requests"))
            work.mark("pending_hours", load_runner_query("hours_of_points"))
            work.advance_watermark()
            work.note_consumed([path.relative_to(self.config.store) for path in readable])
        work.clear_scratch()
        self._changed |= {"watermark", "request_map"}
        self._changed |= {model.name for model in work.of_unit(Unit.SEGMENT)}
        return len(readable)

    def _recompute_requests(self) -> int | None:
        """Compute one unit of pending keys: how many are requests, None when none was pending.

        The hours that the requests were in, and those they are in now, become due.
        """
        work = self.work
        if not work.take("pending_requests", "dirty_requests", REQUESTS_PER_UNIT):
            return None
        models = work.of_unit(Unit.REQUEST)
        hours = load_runner_query("hours_of_requests")
        work.mark("pending_hours", hours)
        for model in models:
            work.run(model)
        work.mark("pending_hours", hours)
        n_requests = work.count("fct_requests")
        work.replace(models, "pending_requests", "dirty_requests")
        work.clear_scratch()
        self._changed |= {model.name for model in models}
        return n_requests

    def _recompute_hours(self) -> int:
        """Compute one unit of pending hours."""
        work = self.work
        n_keys = work.take("pending_hours", "dirty_hours", HOURS_PER_UNIT)
        if n_keys:
            models = work.of_unit(Unit.HOUR)
            for model in models:
                work.run(model)
            work.replace(models, "pending_hours", "dirty_hours")
            work.clear_scratch()
            self._changed |= {model.name for model in models}
        return n_keys

    def _recompute_small_marts(self) -> None:
        for model in self.work.of_unit(Unit.ALL):
            if self._changed.isdisjoint(model.inputs | {model.name}):
                continue
            self.work.run(model)
            self.work.replace_whole(model)
            self._changed.add(model.name)
        self.work.clear_scratch()
