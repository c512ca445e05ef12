"""When telemetry arrives, and in how many builds, changes no nano-dollar."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.build.build import BuildConfig, Builder

START_NS = 1_767_261_600_000_000_000  # 2026-01-01 10:00 UTC
MINUTE_NS = 60 * 10**9

# Prices so small that every hour rounds: a start that moves moves the rounding with it.
CARDS = """
[[cards]]
id = "small"
kind = "rented"
worker_type = "H"
usd_per_accelerator_hour = 0.000000101
host_usd_per_hour = 0.000000013
source = "a test"
source_date = 2026-01-01

[[cards]]
id = "people"
kind = "fleet"
operations_usd_per_month = 0.000001
source = "a test"
source_date = 2026-01-01
"""

DOCS = Path(__file__).parents[2] / "docs"
RELATIONS = ("workers", "cost_lines", "cost_slices", "request_costs", "cost_per_mtok")
COLUMNS = {
    name: pa.binary() if name.endswith(("trace_id", "span_id")) else kind
    for name, kind in {
        "signal": pa.string(),
        "received_unix_ns": pa.int64(),
        "worker_id": pa.string(),
        "worker_role": pa.string(),
        "worker_type": pa.string(),
        "worker_pool": pa.string(),
        "n_accelerators": pa.int64(),
        "report_interval_s": pa.float64(),
        "trace_id": pa.binary(),
        "span_id": pa.binary(),
        "parent_span_id": pa.binary(),
        "name": pa.string(),
        "kind": pa.int8(),
        "start_unix_ns": pa.int64(),
        "end_unix_ns": pa.int64(),
        "operation_name": pa.string(),
        "request_model": pa.string(),
        "request_id": pa.string(),
        "outcome": pa.string(),
        "finish_reasons": pa.list_(pa.string()),
        "input_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "device_seconds": pa.float64(),
        "metric_name": pa.string(),
        "point_unix_ns": pa.int64(),
        "point_value": pa.float64(),
    }.items()
}

Row = dict[str, object]


def point(minute: int, worker: str = "w0") -> Row:
    """A sign of life; gaps of less than 60 minutes are up."""
    return {
        "signal": "metric",
        "worker_id": worker,
        "worker_type": "H",
        "worker_pool": "decode",
        "n_accelerators": 1,
        "report_interval_s": 1200.0,
        "metric_name": "tokenmill.worker.up",
        "point_unix_ns": START_NS + minute * MINUTE_NS + 1,
        "point_value": 1.0,
    }


def request(index: int, start_minute: int, end_minute: int, worker: str = "w0") -> list[Row]:
    """A root span and the decode span of its one leg."""
    trace = index.to_bytes(16, "big")
    times = {
        "start_unix_ns": START_NS + start_minute * MINUTE_NS,
        "end_unix_ns": START_NS + end_minute * MINUTE_NS + index,
    }
    root: Row = {
        "signal": "span",
        "trace_id": trace,
        "span_id": b"r" * 8,
        "name": "chat m",
        "kind": 2,
        "operation_name": "chat",
        "request_model": "m",
        "request_id": str(index),
        "outcome": "completed",
        "finish_reasons": ["stop"],
        "input_tokens": 10,
        "output_tokens": 100,
        **times,
    }
    leg: Row = {
        "signal": "span",
        "trace_id": trace,
        "span_id": b"d" * 8,
        "parent_span_id": b"r" * 8,
        "name": "decode",
        "kind": 1,
        "worker_id": worker,
        "worker_role": "decode",
        "device_seconds": 7.0 + index,
        **times,
    }
    return [root, leg]


# Hours 10, 11 and 12 of a worker that never paused; a leg over a border; one before all points;
# and a worker of whom the last point tells everything.
DELIVERIES: list[list[Row]] = [
    [point(5), point(40), *request(1, 10, 50)],
    [point(80), point(110), *request(2, 50, 70), *request(3, 2, 4)],
    [point(130), point(165), *request(4, 131, 140), *request(5, 140, 141, "w1")],
    [*request(6, 20, 25, "w1"), point(150, "w1")],
]


def deliver(store: Path, number: int, rows: Sequence[Row]) -> None:
    """One committed segment."""
    folder = store / "incoming" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()
    }
    received = pa.array([START_NS + 300 * MINUTE_NS] * len(rows), pa.int64())
    table = pa.table({**columns, "received_unix_ns": received})
    pq.write_table(table, folder / f"{number:08d}.parquet")


def costs_of(
    folder: Path, order: Sequence[int], builds: bool
) -> dict[str, list[tuple[object, ...]]]:
    """Deliver in `order`, building after each or at the end alone, and read what it cost."""
    prices = folder / "prices"
    prices.mkdir(parents=True)
    (prices / "cards.toml").write_text(CARDS, encoding="utf-8")
    store = folder / "store"
    store.mkdir()
    with Builder(BuildConfig(store=store, prices=prices)) as builder:
        for number, index in enumerate(order):
            deliver(store, number, DELIVERIES[index])
            if builds:
                builder.build()
        builder.build()
    with duckdb.connect(store / "warehouse.duckdb", read_only=True) as con:
        return {name: con.sql(f"from {name} order by all").fetchall() for name in RELATIONS}


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[object, ...]]]:
    return costs_of(tmp_path_factory.mktemp("at_once"), range(len(DELIVERIES)), builds=False)


def test_the_generated_fleet_costs_something(at_once: dict[str, list[tuple[object, ...]]]) -> None:
    assert all(at_once[name] for name in RELATIONS)


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_order_and_cutting_into_builds_change_nothing(
    tmp_path: Path, at_once: dict[str, list[tuple[object, ...]]], order: tuple[int, ...]
) -> None:
    assert costs_of(tmp_path, order, builds=True) == at_once


def test_the_published_parts_are_the_published_bill(tmp_path: Path) -> None:
    """By the query that `docs/prices.md` gives to readers, and by the waterfall's own sum."""
    costs_of(tmp_path, range(len(DELIVERIES)), builds=False)
    query = (DOCS / "prices.md").read_text(encoding="utf-8").split("```sql")[1].split("```")[0]
    with duckdb.connect(tmp_path / "store" / "warehouse.duckdb", read_only=True) as con:
        hours = con.sql(query).fetchall()
        falls = con.sql(
            "select bill_usd, sum(usd), count(*) from cost_waterfall"
            " join cost_per_mtok using (grain, window_start)"
            " where model is null and slo_class is null group by grain, window_start, bill_usd"
        ).fetchall()
    assert len(hours) >= 3
    assert all(bill == (slices or 0) + unallocated for _, bill, slices, unallocated in hours)
    assert len(falls) == len(hours) + 2
    assert all(bill == total and n_steps == 12 for bill, total, n_steps in falls)
