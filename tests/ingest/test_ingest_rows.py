"""Which attribute fills which column, what stays left over, and what is refused."""

from typing import Any

import duckdb
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_bodies import TRACE_ID, any_value, every_metric, logs, pairs, spans

from ingest import wire
from ingest.dialects import Dialects
from ingest.frames import Signal
from ingest.rows import Batch, segment_rows
from ingest.schema import N_BUCKETS, SEGMENT
from serving_probe.contract import Gen, Leg, Root

DIALECTS = Dialects.load()


def batch(signal: Signal, *requests: Any) -> Batch:
    """The segment rows of some requests, a payload each."""
    bodies = [request.SerializeToString() for request in requests]
    got = segment_rows(wire.decode(signal, bodies), DIALECTS, [5] * len(bodies), "r")
    assert got.table.schema == SEGMENT
    got.table.validate(full=True)
    return got


def span_row(attributes: dict[str, Any], **about: Any) -> dict[str, Any]:
    """The row of one span."""
    (row,) = batch(Signal.SPAN, spans(attributes, **about)).table.to_pylist()
    return dict(row)


def left_over(row: dict[str, Any]) -> dict[str, Any]:
    """A row's left-over attributes."""
    return {pair["key"]: pair["value"] for pair in row["attributes"]}


def test_every_name_of_the_contract_has_a_column() -> None:
    samples: dict[str, Any] = {
        Gen.STREAM: True,
        Gen.FINISH_REASONS: ["stop"],
        Root.CHUNK_GAPS_US: [3, 4],
        Root.CHUNK_TOKENS: [1, 2],
        Root.CHUNK_CHOICES: [0, 0],
        Leg.BLOCK_HASHES: ["a", "b"],
    }
    numbers = {
        name
        for name in [*Gen, *Root, *Leg]
        if name.endswith(("tokens", "_us", "_s", "seconds", "bytes", "count", "code", "nano"))
        or name in (Root.ATTEMPT, Leg.WORKER_ACCELERATORS, Gen.TIME_TO_FIRST_CHUNK)
    }
    attributes = {
        str(name): samples.get(name, 7 if name in numbers else "x") for name in [*Gen, *Root, *Leg]
    }
    row = span_row(attributes)
    assert row["attributes"] == []
    assert row["dialect"] == "tokenmill"
    assert row["chunk_gaps_us"] == [3, 4]
    assert row["is_stream"] is True
    assert row["finish_reasons"] == ["stop"]
    assert row["time_to_first_chunk_s"] == 7.0
    assert row["tenant_id"] == "x"
    filled = {name for name, value in row.items() if value is not None}
    assert len(filled & set(SEGMENT.names)) >= len(attributes)


@pytest.mark.parametrize(
    ("key", "sent", "column", "kept"),
    [
        ("gen_ai.usage.input_tokens", "12", "input_tokens", 12),
        ("gen_ai.usage.input_tokens", 12.0, "input_tokens", 12),
        ("gen_ai.usage.input_tokens", 0, "input_tokens", 0),
        ("gen_ai.usage.input_tokens", 12.5, "input_tokens", None),
        ("gen_ai.usage.input_tokens", -1, "input_tokens", None),
        ("gen_ai.usage.input_tokens", "many", "input_tokens", None),
        ("gen_ai.usage.input_tokens", True, "input_tokens", None),
        ("gen_ai.response.time_to_first_chunk", 2, "time_to_first_chunk_s", 2.0),
        ("gen_ai.response.time_to_first_chunk", "0.25", "time_to_first_chunk_s", 0.25),
        ("gen_ai.response.time_to_first_chunk", float("nan"), "time_to_first_chunk_s", None),
        ("gen_ai.response.time_to_first_chunk", float("inf"), "time_to_first_chunk_s", None),
        ("gen_ai.response.time_to_first_chunk", -1.0, "time_to_first_chunk_s", None),
        ("gen_ai.request.stream", "True", "is_stream", True),
        ("gen_ai.request.stream", "false", "is_stream", False),
        ("gen_ai.request.stream", "yes", "is_stream", None),
        ("gen_ai.response.id", 17, "response_id", "17"),
        ("gen_ai.response.id", "", "response_id", None),
        ("gen_ai.response.finish_reasons", "stop", "finish_reasons", ["stop"]),
        (
            "gen_ai.response.finish_reasons",
            '["stop","length"]',
            "finish_reasons",
            ["stop", "length"],
        ),
        ("gen_ai.response.finish_reasons", [], "finish_reasons", []),
        ("tokenmill.chunk.gaps_us", [], "chunk_gaps_us", []),
        ("tokenmill.chunk.gaps_us", "[1, 2]", "chunk_gaps_us", [1, 2]),
        ("tokenmill.chunk.gaps_us", [1, "2"], "chunk_gaps_us", None),
        ("tokenmill.chunk.gaps_us", "[1, true]", "chunk_gaps_us", None),
    ],
)
def test_values_are_fitted_or_stay_left_over(key: str, sent: Any, column: str, kept: Any) -> None:
    row = span_row({key: sent})
    assert row[column] == kept
    assert (key in left_over(row)) == (kept is None)


def test_the_preferred_name_wins_and_the_other_stays() -> None:
    old, new = "gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"
    assert span_row({old: 3})["input_tokens"] == 3
    row = span_row({old: 3, new: 4})
    assert row["input_tokens"] == 4
    assert left_over(row) == {old: "3"}
    assert span_row({old: 3, new: -1})["input_tokens"] == 3


def test_a_gap_above_int32_is_clamped_and_flagged() -> None:
    rows = batch(
        Signal.SPAN,
        spans({"tokenmill.chunk.gaps_us": [1, 2**40]}, {"tokenmill.chunk.gaps_us": [2**31 - 1]}),
    ).table.to_pylist()
    assert [row["chunk_gaps_us"] for row in rows] == [[1, 2**31 - 1], [2**31 - 1]]
    assert [left_over(row) for row in rows] == [{"tokenmill.ingest.flag": "gap_clamped"}, {}]


def test_left_over_values_have_one_text_form() -> None:
    row = span_row(
        {
            "bool": True,
            "int": -3,
            "float": 0.1,
            "text": "é",
            "empty": None,
            "bytes": b"\x00\xff",
            "ints": [1, 2],
            "texts": ["a", 'b"'],
            "mixed": [1, True, 2.5, None, [b"\x01"], {"k": float("nan")}],
            "pairs": {"a": {"b": [1]}},
        },
        scope="elsewhere",
    )
    assert row["dialect"] == "other"
    assert left_over(row) == {
        "bool": "true",
        "int": "-3",
        "float": "0.1",
        "text": "é",
        "empty": None,
        "bytes": "AP8=",
        "ints": "[1,2]",
        "texts": '["a","b\\""]',
        "mixed": '[1,true,2.5,null,["AQ=="],{"k":"NaN"}]',
        "pairs": '{"a":{"b":[1]}}',
    }


def test_a_span_speaks_for_itself_and_else_its_resource() -> None:
    resource = {
        "service.name": "fleet",
        "tokenmill.worker.id": "of-resource",
        "tokenmill.worker.pool": "p",
        "tokenmill.tenant.id": "t",
    }
    row = span_row({"tokenmill.worker.id": "own"}, resource=resource)
    assert (row["worker_id"], row["worker_pool"], row["tenant_id"]) == ("own", "p", "t")
    assert row["service_name"] == "fleet"
    foreign = span_row({}, resource=resource, scope="vllm")
    assert (foreign["dialect"], foreign["worker_id"]) == ("other", "of-resource")


def test_a_dialect_is_found_row_by_row() -> None:
    got = batch(
        Signal.SPAN,
        spans({}, {"tokenmill.attempt": 1, "gen_ai.request.model": "m"}, scope="app"),
        spans({}),
    ).table
    assert got["dialect"].to_pylist() == ["other", "tokenmill", "tokenmill"]
    assert got["attempt"].to_pylist() == [None, 1, None]
    assert got["received_unix_ns"].to_pylist() == [5, 5, 5]


@pytest.mark.parametrize("trace_id", [b"", bytes(16), b"\x01" * 15, b"\x01" * 17])
def test_a_span_without_valid_ids_is_refused_alone(trace_id: bytes) -> None:
    request = spans({}, {}, {})
    request.resource_spans[0].scope_spans[0].spans[1].trace_id = trace_id
    got = batch(Signal.SPAN, request, spans({}))
    assert got.rejected.tolist() == [1, 0]
    assert got.table["name"].to_pylist() == ["span 0", "span 2", "span 0"]


def test_a_wrong_parent_is_dropped_and_an_empty_one_is_a_root() -> None:
    request = spans({}, {}, {}, {})
    for span, parent in zip(
        request.resource_spans[0].scope_spans[0].spans,
        [b"", bytes(8), b"\x01" * 8, b"\x01" * 3],
        strict=True,
    ):
        span.parent_span_id = parent
    got = batch(Signal.SPAN, request)
    assert got.table["parent_span_id"].to_pylist() == [None, None, b"\x01" * 8, None]
    assert got.repaired.tolist() == [1]
    last = got.table.to_pylist()[3]
    assert left_over(last) == {"tokenmill.ingest.repair": "parent_span_id_dropped"}


def test_times_that_are_unknown_or_impossible_are_null() -> None:
    request = spans({}, {})
    first, second = request.resource_spans[0].scope_spans[0].spans
    first.start_time_unix_nano = 0
    second.end_time_unix_nano = 2**64 - 1
    rows = batch(Signal.SPAN, request).table.to_pylist()
    assert rows[0]["start_unix_ns"] is None
    assert rows[0]["end_unix_ns"] is not None
    assert rows[1]["end_unix_ns"] is None
    assert left_over(rows[1]) == {"tokenmill.ingest.repair": "time_out_of_range"}


def test_of_a_repeated_key_the_first_stays_and_maps_can_be_made() -> None:
    request = ExportTraceServiceRequest()
    request.CopyFrom(spans({"gen_ai.response.id": "one", "x": 1}))
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.extend(pairs({"gen_ai.response.id": "two", "x": 2}))
    request.resource_spans[0].resource.attributes.extend(pairs({"r": 1}) + pairs({"r": 2}))
    got = batch(Signal.SPAN, request)
    assert got.repaired.tolist() == [2]
    (row,) = got.table.to_pylist()
    assert row["response_id"] == "one"
    con = duckdb.connect()
    con.register("segment", got.table)
    assert con.sql(
        "select map_from_entries(attributes) as own, map_from_entries(resource) as r from segment"
    ).fetchall() == [({"x": "1"}, {"r": "1"})]


def test_buckets_are_stable_and_spread() -> None:
    ids = [bytes(8) + (index * 7919).to_bytes(8, "big") for index in range(1, 400)]
    got = batch(Signal.SPAN, *(spans({}, trace_id=one) for one in [*ids, TRACE_ID]))
    buckets = got.table["bucket"].to_pylist()
    assert set(buckets) == set(range(N_BUCKETS))
    again = batch(Signal.SPAN, spans({}, trace_id=TRACE_ID)).table["bucket"].to_pylist()
    assert again == buckets[-1:] == [6]  # pinned: a new hash would split traces


def test_metric_points_of_every_kind() -> None:
    resource = {"tokenmill.worker.id": "w", "tokenmill.worker.report_interval_s": 1}
    table = batch(Signal.METRIC, every_metric(resource)).table
    points = [
        (
            row["metric_name"],
            row["metric_kind"],
            row["point_value"],
            row["point_count"],
            row["metric_is_cumulative"],
            row["metric_is_monotonic"],
        )
        for row in table.to_pylist()
    ]
    assert points == [
        ("gauge", "gauge", 7.0, None, None, None),
        ("gauge", "gauge", 0.0, None, None, None),
        ("gauge", "gauge", None, None, None, None),
        ("sum", "sum", 1.5, None, True, True),
        ("histogram", "histogram", 6.5, 3, False, None),
        ("histogram", "histogram", None, 0, False, None),
        ("exponential", "histogram", 10.0, 4, True, None),
        ("summary", "summary", 2.5, 5, None, None),
    ]
    assert set(table["worker_id"].to_pylist()) == {"w"}
    assert set(table["report_interval_s"].to_pylist()) == {1.0}
    first = table.to_pylist()[0]
    assert first["point_attributes"] == [{"key": "tokenmill.phase", "value": "decode"}]
    assert first["attributes"] is None


def test_bucket_counts_beyond_int64_are_unknown() -> None:
    request = every_metric()
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.histogram.data_points if metric.HasField("histogram") else ():
            point.bucket_counts[:1] = [2**64 - 1]
    counts = [row["bucket_counts"] for row in batch(Signal.METRIC, request).table.to_pylist()]
    assert counts == [None] * len(counts)
    usual = batch(Signal.METRIC, every_metric()).table["bucket_counts"].to_pylist()
    assert usual[4:6] == [[1, 2, 0], []]


def test_log_records_keep_name_body_and_ids() -> None:
    request = logs("said", {"score": 0.5}, event_name="gen_ai.evaluation.result")
    first, second = request.resource_logs[0].scope_logs[0].log_records
    first.trace_id, first.span_id = TRACE_ID, b"\x01" * 8
    second.trace_id = b"\x01\x02"
    second.time_unix_nano, second.observed_time_unix_nano = 0, 9
    silent = (
        request.resource_logs[0]
        .scope_logs[0]
        .log_records.add(severity_text="LOUD", attributes=pairs({"event.name": "older"}))
    )
    assert not silent.HasField("body")
    got = batch(Signal.LOG, request)
    rows = got.table.to_pylist()
    assert [row["body"] for row in rows] == ["said", '{"score":0.5}', None]
    assert [row["event_name"] for row in rows] == [
        "gen_ai.evaluation.result",
        "gen_ai.evaluation.result",
        "older",
    ]
    assert [row["severity"] for row in rows] == ["INFO", "INFO", "LOUD"]
    assert [row["trace_id"] for row in rows] == [TRACE_ID, None, None]
    assert rows[1]["log_unix_ns"] == 9
    assert got.rejected.tolist() == [0]
    assert got.repaired.tolist() == [1]
    assert any_value(None).WhichOneof("value") is None
