"""The builder as a process among processes: empty stores, two builders, kills, new prices."""

import math
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.schema import SEGMENT
from metrics.build.build import DATA, BuildConfig, Builder, build_once
from metrics.build.models import load_models
from metrics.build.segments import COMPACT_AT
from metrics.errors import BuilderBusyError, NothingPublishedError
from metrics.query import Warehouse

START_NS = 1_767_261_600_000_000_000  # 2026-01-01 10:00 UTC
SECOND_NS = 10**9
Row = dict[str, object]


def test_before_the_first_build_readers_are_told_so(tmp_path: Path) -> None:
    assert Warehouse(tmp_path).published_at() is None
    with pytest.raises(NothingPublishedError, match="nothing is published"):
        Warehouse(tmp_path).sql("select 1")


def test_an_empty_store_publishes_every_relation_empty(tmp_path: Path) -> None:
    report = build_once(BuildConfig(store=tmp_path))
    warehouse = Warehouse(tmp_path)
    assert report.is_published
    assert warehouse.published_at() is not None
    for model in load_models():
        if model.published_name is not None:
            assert warehouse.sql(f"from {model.published_name}").is_empty(), model.name


def test_a_build_with_nothing_new_publishes_nothing(tmp_path: Path) -> None:
    _write(tmp_path, 0, _second(0))
    with Builder(BuildConfig(store=tmp_path)) as builder:
        assert builder.build().n_requests == 1
        report = builder.build()
    assert (report.n_segments, report.is_published) == (0, False)


def test_what_was_built_but_not_published_is_published_next(tmp_path: Path) -> None:
    """As after a kill between the last commit and the rename."""
    _write(tmp_path, 0, _second(0))
    build_once(BuildConfig(store=tmp_path))
    older = (tmp_path / "warehouse.duckdb").read_bytes()
    _write(tmp_path, 1, _second(1))
    build_once(BuildConfig(store=tmp_path))
    (tmp_path / "warehouse.duckdb").write_bytes(older)
    build_once(BuildConfig(store=tmp_path))
    assert Warehouse(tmp_path).sql("select count(*) from requests").item() == 2


def test_an_open_reader_sees_the_next_publication(tmp_path: Path) -> None:
    count = "select count(*) from requests"
    _write(tmp_path, 0, _second(0))
    build_once(BuildConfig(store=tmp_path))
    warehouse = Warehouse(tmp_path)
    assert warehouse.sql(count).item() == 1
    _write(tmp_path, 1, _second(1))
    build_once(BuildConfig(store=tmp_path))
    assert warehouse.sql(count).item() == 2


def test_a_second_builder_is_told_that_the_store_is_taken(tmp_path: Path) -> None:
    with Builder(BuildConfig(store=tmp_path)):
        second = subprocess.run(
            [sys.executable, "-m", "app.cli", "build", "--store", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 1
    assert "another process is building this store" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_store_that_cannot_hold_a_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "build.duckdb").write_text("not a database")
    with pytest.raises(BuilderBusyError, match=r"cannot open .*build\.duckdb"):
        build_once(BuildConfig(store=tmp_path))


def test_models_that_changed_are_computed_from_the_record_again(tmp_path: Path) -> None:
    for number in range(3):
        _write(tmp_path, number, _second(number))
    build_once(BuildConfig(store=tmp_path))
    before = _relations(tmp_path)
    with duckdb.connect(str(tmp_path / "build.duckdb")) as con:
        con.execute("update fingerprint set digest = 'of older models'")
        con.execute("delete from fct_requests")
    assert build_once(BuildConfig(store=tmp_path)).n_segments == 3
    assert _relations(tmp_path) == before


def test_a_new_price_restates_what_is_there(tmp_path: Path) -> None:
    store, prices = tmp_path / "store", tmp_path / "prices"
    prices.mkdir()
    _write(store, 0, [row for second in range(3) for row in _second(second)])
    bills = []
    for usd in (3.6, 7.2):
        (prices / "card.toml").write_text(
            "[[cards]]\nid = 'w'\nkind = 'rented'\nworker_type = 'W'\nsource = 'a test'\n"
            f"source_date = 2026-01-01\nusd_per_accelerator_hour = {usd}\n"
        )
        build_once(BuildConfig(store=store, prices=prices))
        bills.append(Warehouse(store).sql("select sum(usd) from cost_lines").item())
    # Up from the first point to the end of the third request's leg, 2.28 s, plus one interval.
    assert [float(bill) for bill in bills] == [0.00328, 0.00656]


@pytest.mark.slow
def test_builders_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.cli", "build", "--watch", "--interval", "0.1"]
    number = 0
    for life_s in (1.2, 1.6, 2.1, 2.7):
        builder = subprocess.Popen([*command, "--store", str(tmp_path)], stdout=subprocess.DEVNULL)
        until = time.monotonic() + life_s
        while time.monotonic() < until:
            _write(tmp_path, number, _second(number))
            number += 1
            time.sleep(0.02)
        builder.kill()
        builder.wait()
    build_once(BuildConfig(store=tmp_path))
    resumed = _relations(tmp_path)
    (tmp_path / "build.duckdb").unlink()
    build_once(BuildConfig(store=tmp_path))
    assert len(resumed["requests"]) == number
    assert _relations(tmp_path) == resumed


def test_a_segment_that_cannot_be_read_costs_the_others_nothing(tmp_path: Path) -> None:
    for number in range(3):
        _write(tmp_path, number, _second(number))
    torn = tmp_path / "incoming" / "test" / f"{1:012d}-torn.parquet"
    torn.write_bytes(b"PAR1 no more of it")
    report = build_once(BuildConfig(store=tmp_path))
    assert (report.n_segments, report.n_quarantined, report.n_requests) == (3, 1, 3)
    aside = tmp_path / "quarantine" / "segments"
    assert (aside / torn.name).read_bytes() == b"PAR1 no more of it"
    assert "reason" in (aside / f"{torn.name}.json").read_text()
    assert build_once(BuildConfig(store=tmp_path)).n_quarantined == 0


@pytest.mark.parametrize(
    ("row", "poison"),
    [
        (0, {"start_unix_ns": 1}),
        (0, {"end_unix_ns": START_NS + 400 * 86_400 * SECOND_NS}),
        (0, {"end_unix_ns": 2**63 - 1}),
        (0, {"output_tokens": 2**63 - 1, "input_tokens": 2**63 - 1}),
        (0, {"output_tokens": 3_000_000_000, "chunk_gaps_us": [5], "chunk_tokens": None}),
        (0, {"time_to_first_chunk_s": 1e12, "intended_start_unix_ns": 1}),
        (1, {"device_seconds": 1e300, "cpu_seconds": math.inf}),
        (1, {"first_token_us": 2**63 - 1, "kv_bytes": 2**63 - 1}),
        (1, {"end_unix_ns": START_NS + 400 * 86_400 * SECOND_NS}),
        (2, {"metric_name": "tokenmill.kv.cached_bytes", "point_value": math.nan}),
        (2, {"metric_name": "tokenmill.kv.cached_bytes", "point_value": -1e15}),
        (2, {"metric_name": "tokenmill.kv.cached_bytes", "point_value": 1e300}),
        (2, {"report_interval_s": 1e300}),
        (2, {"n_accelerators": 2**63 - 1}),
        (2, {"point_unix_ns": 2**63 - 1}),
    ],
    ids=str,
)
def test_impossible_values_cost_nobody_else_anything(tmp_path: Path, row: int, poison: Row) -> None:
    rows = _second(0)
    rows[row] = rows[row] | poison
    _write(tmp_path, 0, [*rows, *_second(1), *_second(2)])
    build_once(BuildConfig(store=tmp_path))
    warehouse = Warehouse(tmp_path)
    kept = warehouse.sql(
        "select request_id, is_accepted, output_tokens from requests"
        " where request_id != 'r0' order by request_id"
    )
    assert kept.rows() == [("r1", True, 3), ("r2", True, 3)]
    hours = warehouse.report("hour_identity")
    assert hours.height <= 2
    assert (hours["difference_usd"] == 0).all()


def test_small_segments_are_laid_together_and_say_the_same(tmp_path: Path) -> None:
    n_files = COMPACT_AT + 3
    for number in range(n_files):
        _write(tmp_path, number, _second(number) if number % 16 == 0 else _second(number)[2:])
    build_once(BuildConfig(store=tmp_path))
    before = _relations(tmp_path)
    left = sorted(path.name for path in tmp_path.glob("incoming/*/*.parquet"))
    assert left == [f"{n_files - 1:012d}-test.parquet"]  # its number is where receivers go on
    assert len(list(tmp_path.glob("record/test/*.parquet"))) == 1
    assert build_once(BuildConfig(store=tmp_path)).n_segments == 0
    (tmp_path / "build.duckdb").unlink()
    assert build_once(BuildConfig(store=tmp_path)).n_segments == 2
    assert _relations(tmp_path) == before


def test_a_compaction_that_was_cut_off_doubles_nothing(tmp_path: Path) -> None:
    for number in range(COMPACT_AT + 1):
        _write(tmp_path, number, _second(number) if number % 16 == 0 else _second(number)[2:])
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "incoming", kept)
    build_once(BuildConfig(store=tmp_path))
    before = _relations(tmp_path)
    shutil.copytree(kept, tmp_path / "incoming", dirs_exist_ok=True)
    (tmp_path / "build.duckdb").unlink()
    build_once(BuildConfig(store=tmp_path))
    assert _relations(tmp_path) == before


def test_ledger_defaults_are_the_shipped_ones() -> None:
    config = BuildConfig(store=Path())
    assert config.prices == DATA / "prices"
    assert config.slo.is_file()


def _second(number: int) -> list[Row]:
    """One second of a fleet: a request of 300 ms and the worker's sign of life."""
    at_ns = START_NS + number * SECOND_NS
    worker: Row = {"worker_id": "w", "worker_type": "W", "worker_pool": "p", "n_accelerators": 1}
    trace: Row = {"trace_id": (number + 1).to_bytes(16, "big"), "received_unix_ns": at_ns}
    root: Row = {
        **trace,
        "signal": "span",
        "span_id": b"\0" * 7 + b"\1",
        "kind": 2,
        "name": "chat m",
        "start_unix_ns": at_ns,
        "end_unix_ns": at_ns + 300_000_000,
        "dialect": "tokenmill",
        "request_id": f"r{number}",
        "attempt": 1,
        "tenant_id": "t",
        "operation_name": "chat",
        "request_model": "m",
        "is_stream": True,
        "outcome": "completed",
        "finish_reasons": ["stop"],
        "input_tokens": 10,
        "output_tokens": 3,
        "chunk_gaps_us": [100_000, 90_000, 90_000],
        "chunk_tokens": [1, 1, 1],
    }
    prefill: Row = {
        **trace,
        **worker,
        "signal": "span",
        "span_id": b"\0" * 7 + b"\2",
        "parent_span_id": root["span_id"],
        "kind": 1,
        "name": "prefill",
        "worker_role": "unified",
        "dialect": "tokenmill",
        "start_unix_ns": at_ns,
        "end_unix_ns": at_ns + 280_000_000,
        "device_seconds": 0.2,
    }
    point: Row = {
        **worker,
        "signal": "metric",
        "metric_name": "tokenmill.worker.up",
        "point_value": 1.0,
        "point_unix_ns": at_ns,
        "received_unix_ns": at_ns,
        "report_interval_s": 1.0,
    }
    return [root, prefill, point]


def _write(store: Path, number: int, rows: list[Row]) -> None:
    folder = store / "incoming" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{number}.tmp"
    pq.write_table(pa.Table.from_pylist(rows, schema=SEGMENT), fresh)
    fresh.rename(folder / f"{number:012d}-test.parquet")


def _relations(store: Path) -> dict[str, list[str]]:
    warehouse = Warehouse(store)
    return {
        name: _sorted(warehouse.sql(f"from {name}"))
        for model in load_models()
        if (name := model.published_name) is not None
    }


def _sorted(frame: pl.DataFrame) -> list[str]:
    return sorted(map(repr, frame.iter_rows()))
