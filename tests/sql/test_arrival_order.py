"""What the relations say must not depend on how spans arrived: order, repeats, cuts, builds."""

import random
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.schema import SEGMENT
from metrics.build.build import BuildConfig, Builder, build_once

START_NS = 1_700_002_790_000_000_000  # ten seconds before an hour begins
MS = 1_000_000
RELATIONS = (
    "spans",
    "legs",
    "attempts",
    "requests",
    "handoffs",
    "token_gaps",
    "token_gaps_by_class",
    "data_quality",
)
Row = dict[str, object]


def test_one_build_of_everything_says_what_happened(tmp_path: Path) -> None:
    _write(tmp_path, 0, _record())
    build_once(BuildConfig(store=tmp_path))
    with duckdb.connect(str(tmp_path / "warehouse.duckdb"), read_only=True) as con:
        verdicts = con.sql(
            "select request_id, n_attempts, reject_reason from requests order by request_id"
        ).fetchall()
        inferred = con.sql("select request_id from legs where is_inferred").fetchall()
        orphans = con.sql("select n_attempts from data_quality where flag = 'orphan_trace'")
        n_orphans = orphans.fetchall()
    assert verdicts == [
        ("call-a", 1, None),  # an agent's three calls in one trace
        ("call-b", 1, None),
        ("call-c", 1, None),
        ("hedged", 2, None),
        ("killed", 1, "failed"),
        ("outer", 1, None),  # a gateway before a gateway, each with an id of its own
        ("plain", 1, None),
        ("retried", 2, "slo_ttft"),  # the second try came after three seconds
    ]
    assert inferred == [("killed",)]
    assert n_orphans == [(1,)]


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_no_row_depends_on_how_it_arrived(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    record = _record()
    _write(whole, 0, record)
    build_once(BuildConfig(store=whole))

    arrived = record + dice.sample(record, len(record) // 2)
    dice.shuffle(arrived)
    pieces.mkdir()
    with Builder(BuildConfig(store=pieces)) as builder:
        cuts = sorted(dice.sample(range(1, len(arrived)), 3))
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(arrived)], strict=True)):
            _write(pieces, number, arrived[start:end])
            if dice.random() < 0.7:
                builder.build()
        builder.build()

    for relation in RELATIONS:
        assert _rows(pieces, relation) == _rows(whole, relation), relation


def _record() -> list[Row]:
    """Nine traces' worth of what can happen, across an hour's border, and a sign of life later."""
    return [
        *_attempt(1, "plain", 0),
        *_attempt(2, "hedged", 9_700, attempt=1),
        *_attempt(3, "hedged", 9_800, attempt=2),
        *_attempt(4, "retried", 20_000, outcome="failed", finish_reasons=None),
        *_attempt(5, "retried", 23_000),
        *_attempt(6, "killed", 30_000, outcome="failed", finish_reasons=None)[:3],
        *_attempt(7, "lost", 40_000)[1:],
        *_attempt(8, "inner", 50_000, parent_span_id=_id(85, 8), tenant_id="default"),
        _span(8, 5, "chat m", 49_995, 50_502)
        | {"kind": 2, "operation_name": "chat", "request_model": "m", "request_id": "outer"}
        | {"attempt": 1, "tenant_id": "acme", "is_stream": True, "outcome": "completed"}
        | {"finish_reasons": ["stop"], "chunk_gaps_us": [115_500, 90_000, 300_000]},
        *_attempt(9, "call-a", 60_000),
        *_in_trace(9, _attempt(10, "call-b", 61_000, tenant_id="globex")),
        *_in_trace(9, _attempt(11, "call-c", 62_000)),
        {"signal": "metric", "received_unix_ns": START_NS + 200_000 * MS},
    ]


def _attempt(trace: int, request: str, at_ms: int, **root: object) -> list[Row]:
    """Root, queue, prefill, transfer and decode of one attempt of half a second."""
    parent = _id(trace * 10, 8)
    prefill: Row = {"parent_span_id": parent, "worker_id": "p0", "worker_role": "prefill"}
    decode: Row = {"parent_span_id": parent, "worker_id": "d0", "worker_role": "decode"}
    return [
        _span(trace, 0, "chat m", at_ms, at_ms + 500)
        | {"kind": 2, "operation_name": "chat", "request_model": "m", "request_id": request}
        | {"attempt": 1, "tenant_id": "acme", "is_stream": True, "outcome": "completed"}
        | {"finish_reasons": ["stop"], "input_tokens": 64, "output_tokens": 6}
        | {"chunk_gaps_us": [110_000, 90_000, 300_000], "chunk_tokens": [1, 3, 2]}
        | root,
        _span(trace, 1, "queue", at_ms, at_ms + 10) | prefill,
        _span(trace, 2, "prefill", at_ms + 10, at_ms + 100)
        | prefill
        | {"first_token_us": 89_000, "device_seconds": 0.09, "prompt_tokens": 64},
        _span(trace, 3, "kv_transfer", at_ms + 101, at_ms + 105)
        | decode
        | {"kv_bytes": 4096, "device_seconds": 0.001},
        _span(trace, 4, "decode", at_ms + 110, at_ms + 495) | decode | {"device_seconds": 0.2},
    ]


def _in_trace(trace: int, rows: list[Row]) -> list[Row]:
    """The same spans in another trace, as an agent's second call is."""
    return [row | {"trace_id": _id(trace, 16)} for row in rows]


def _span(trace: int, number: int, name: str, start_ms: int, end_ms: int) -> Row:
    return {
        "signal": "span",
        "received_unix_ns": START_NS + (end_ms + 500) * MS,
        "dialect": "tokenmill",
        "bucket": 0,
        "trace_id": _id(trace, 16),
        "span_id": _id(trace * 10 + number, 8),
        "name": name,
        "kind": 1,
        "start_unix_ns": START_NS + start_ms * MS,
        "end_unix_ns": START_NS + end_ms * MS,
        "status_code": 0,
    }


def _id(number: int, n_bytes: int) -> bytes:
    return number.to_bytes(n_bytes, "big")


def _write(store: Path, number: int, rows: Sequence[Row]) -> None:
    folder = store / "incoming" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows), schema=SEGMENT)
    pq.write_table(table, folder / f"{number:012d}-test.parquet")


def _rows(store: Path, relation: str) -> list[str]:
    with duckdb.connect(str(store / "warehouse.duckdb"), read_only=True) as con:
        return sorted(map(repr, con.table(relation).fetchall()))
