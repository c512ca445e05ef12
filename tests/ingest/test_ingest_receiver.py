"""The receiver as senders meet it: a process, a socket, and files that are there afterwards."""

import gzip
import http.client
import json
import shutil
import socket
import threading
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.metrics import Observation
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.trace import Context
from otlp_bodies import every_metric, logs, spans
from receiving import ReceiverProcess, post, rows

from ingest.errors import StoreError
from ingest.receiver import ReceiverConfig, run_receiver
from ingest.schema import SEGMENT
from serving_probe.attempt import AttemptRecorder
from serving_probe.contract import Gen, Leg, Metric, Outcome, Root, Span
from serving_probe.emit import Telemetry, TelemetryConfig, end_root, start_root

MIB = 2**20


@pytest.fixture
def receiver(tmp_path: Path) -> Any:
    """A receiver on an empty store."""
    with ReceiverProcess(tmp_path / "store") as running:
        yield running


def status_of(body: bytes) -> Status:
    """The google.rpc.Status a refusal carries."""
    return Status.FromString(body)


def test_what_the_probe_sends_can_be_read_back(receiver: ReceiverProcess) -> None:
    resource = {
        "service.name": "gateway",
        "service.instance.id": "g1",
        Leg.WORKER_ID: "w1",
        Leg.WORKER_POOL: "decode",
        Leg.WORKER_ACCELERATORS: 1,
        Leg.REPORT_INTERVAL_S: 1.0,
    }
    with Telemetry(TelemetryConfig(endpoint=receiver.url), dict(resource)) as telemetry:
        telemetry.gauge(Metric.UP, lambda: [Observation(1)], "1")
        recorder = AttemptRecorder()
        span = start_root(telemetry, "chat m", Context(), recorder)
        recorder.chunk(2)
        recorder.chunk(1)
        recorder.end(Outcome.COMPLETED)
        telemetry.child(
            Span.DECODE, Context(), 10, 20, {Leg.DEVICE_SECONDS: 0.5, Leg.GENERATED_TOKENS: 3}
        )
        end_root(span, recorder, {Gen.STREAM: True, Root.REQUEST_ID: "r1", Gen.INPUT_TOKENS: 9})
    assert rows(
        receiver.store,
        "select request_id, kind, outcome, input_tokens, chunk_gaps_us, chunk_tokens, receiver,"
        " dialect, parent_span_id, end_unix_ns - start_unix_ns from segment where kind = 2",
    ) == [
        ("r1", 2, "completed", 9, recorder.gaps_us, [2, 1], "main", "tokenmill", None,
         (recorder.ended_us or 0) * 1000)
    ]  # fmt: skip
    assert rows(
        receiver.store,
        "select name, device_seconds, generated_tokens, start_unix_ns, worker_id, worker_pool,"
        " n_accelerators, service_name, service_instance_id from segment where name = 'decode'",
    ) == [("decode", 0.5, 3, 10, "w1", "decode", 1, "gateway", "g1")]
    assert rows(
        receiver.store,
        "select distinct metric_kind, point_value, worker_id, report_interval_s, metric_unit"
        f" from segment where metric_name = '{Metric.UP}'",
    ) == [("gauge", 1.0, "w1", 1.0, "1")]


def test_three_signals_share_the_schema(receiver: ReceiverProcess) -> None:
    assert receiver.post("/v1/traces", spans({}).SerializeToString()).status == 200
    assert receiver.post("/v1/metrics", every_metric().SerializeToString()).status == 200
    answer = receiver.post("/v1/logs", logs("x").SerializeToString())
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert not ExportLogsServiceResponse.FromString(answer.body).HasField("partial_success")
    counts = rows(receiver.store, "select signal, count(*) from segment group by all order by all")
    assert counts == [("log", 1), ("metric", 8), ("span", 1)]
    described = rows(receiver.store, "select column_name from (describe segment)")
    assert [name for (name,) in described] == SEGMENT.names
    assert json.loads((receiver.store / "format.json").read_text()) == {"version": 1}


def test_one_bad_span_is_counted_and_its_batch_kept(receiver: ReceiverProcess) -> None:
    request = spans({}, {}, {})
    request.resource_spans[0].scope_spans[0].spans[1].span_id = bytes(8)
    answer = receiver.post("/v1/traces", request.SerializeToString())
    assert answer.status == 200
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert partial.rejected_spans == 1
    assert partial.error_message.startswith("1 refused: trace_id must be 16 bytes")
    assert rows(receiver.store, "select name from segment") == [("span 0",), ("span 2",)]

    bad_text = spans({"gen_ai.request.model": "abc"}).SerializeToString().replace(b"abc", b"a\xffc")
    warned = ExportTraceServiceResponse.FromString(receiver.post("/v1/traces", bad_text).body)
    assert warned.partial_success.rejected_spans == 0
    assert warned.partial_success.error_message.startswith("1 repaired")


def test_gzip_bodies_are_read(receiver: ReceiverProcess) -> None:
    plain = spans({}, {"gen_ai.request.model": "m" * 200_000}).SerializeToString()
    half = len(plain) // 2
    members = gzip.compress(plain[:half]) + gzip.compress(plain[half:])
    for body, encoding in ((gzip.compress(plain), "gzip"), (members, "GZIP ")):
        assert receiver.post("/v1/traces", body, content_encoding=encoding).status == 200
    assert rows(receiver.store, "select count(*), max(length(request_model)) from segment") == [
        (4, 200_000)
    ]


def test_unreadable_bodies_are_kept_aside_whole(receiver: ReceiverProcess) -> None:
    good = spans({}).SerializeToString()
    torn_gzip = gzip.compress(good)[:-9]
    bad = [(b"\xff" * 50, {}), (b"no gzip", {"content_encoding": "gzip"})]
    bad.append((torn_gzip, {"content_encoding": "gzip"}))
    for body, headers in bad:
        answer = receiver.post("/v1/traces", body, **headers)
        assert answer.status == 400
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert status_of(answer.body).code == 3
        assert status_of(answer.body).message
    kept = sorted((receiver.store / "quarantine").glob("*.bin"))
    assert [path.read_bytes() for path in kept] == [body for body, _ in bad]
    notes = [json.loads(path.with_suffix(".json").read_text()) for path in kept]
    assert [note["signal"] for note in notes] == ["span"] * 3
    assert notes[0]["reason"].startswith("not an OTLP protobuf export request")
    assert notes[2]["reason"] == "the gzip body ends too early"
    assert receiver.get("/stats")["quarantined"] == 3
    assert receiver.post("/v1/traces", good).status == 200


def test_a_torn_body_costs_none_of_its_neighbours(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, commit={"linger_s": 0.05}) as receiver:
        bodies = [spans({}, first_span=index + 1).SerializeToString() for index in range(20)]
        bodies[7] = b"\xff" * 9
        answers = in_parallel(lambda body: receiver.post("/v1/traces", body).status, bodies)
        assert sorted(answers) == [200] * 19 + [400]
        assert rows(tmp_path, "select count(distinct span_id) from segment") == [(19,)]
        assert receiver.get("/stats")["segments"] < 19


def in_parallel(call: Any, items: list[Any]) -> list[Any]:
    """`call` of every item, at once."""
    out: list[Any] = []
    threads = [threading.Thread(target=lambda one=item: out.append(call(one))) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def test_bodies_over_the_limit_are_refused(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, http={"max_body_bytes": MIB}) as receiver:
        answer = receiver.post("/v1/traces", b"\x00" * (MIB + 1))
        assert (answer.status, status_of(answer.body).code) == (413, 8)
        bomb = gzip.compress(b"\x00" * (64 * MIB), 9)
        assert len(bomb) < MIB
        answer = receiver.post("/v1/traces", bomb, content_encoding="gzip")
        assert (answer.status, status_of(answer.body).code) == (413, 8)
        assert "once inflated" in status_of(answer.body).message
        chunked = post_chunked(receiver.url, [b"\x00" * 65536] * 17)
        assert chunked == 413
        assert receiver.post("/v1/traces", spans({}).SerializeToString()).status == 200
        assert list((tmp_path / "quarantine").iterdir()) == []


def post_chunked(url: str, parts: list[bytes]) -> int:
    """POST without a content length; the status."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    headers = {"content-type": "application/x-protobuf"}
    try:
        connection.request("POST", "/v1/traces", iter(parts), headers, encode_chunked=True)
        return connection.getresponse().status
    finally:
        connection.close()


def test_what_is_not_spoken_is_415(receiver: ReceiverProcess) -> None:
    for headers, word in (
        ({"content_type": "application/json"}, "application/json"),
        ({"content_type": "text/plain; charset=utf-8"}, "text/plain"),
        ({"content_encoding": "snappy"}, "snappy"),
        ({"content_encoding": "deflate"}, "deflate"),
    ):
        answer = receiver.post("/v1/logs", zlib.compress(b""), **headers)
        assert (answer.status, status_of(answer.body).code) == (415, 12)
        assert word in status_of(answer.body).message
    ok = receiver.post("/v1/logs", b"", content_type="application/x-protobuf; charset=utf-8")
    assert ok.status == 200


def test_every_acknowledged_span_survives_kill_9(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    with ReceiverProcess(tmp_path) as receiver:
        stop = threading.Event()

        def send(worker: int) -> None:
            for index in range(worker * 10_000 + 1, worker * 10_000 + 9_999):
                if stop.is_set():
                    return
                body = spans({}, first_span=index).SerializeToString()
                try:
                    if receiver.post("/v1/traces", body).status == 200:
                        acknowledged.append(index)
                except OSError:
                    return

        threads = [threading.Thread(target=send, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 40:
            stop.wait(0.01)
        receiver.process.kill()
        stop.set()
        for thread in threads:
            thread.join()
        receiver.finish()
    on_disk = {
        int.from_bytes(span, "big") for (span,) in rows(tmp_path, "select span_id from segment")
    }
    assert set(acknowledged) <= on_disk
    torn = tmp_path / "incoming/main/000000000099-x.parquet.tmp"
    torn.write_bytes(b"PAR1")
    with ReceiverProcess(tmp_path) as receiver:
        assert not torn.exists()
        assert receiver.post("/v1/traces", spans({}).SerializeToString()).status == 200


def test_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with ReceiverProcess(tmp_path, name="edge-1") as receiver:
            for _ in range(2):
                assert receiver.post("/v1/traces", spans({}).SerializeToString()).status == 200
            receiver.process.terminate()
            assert receiver.finish() == (0, "")
    names = sorted(path.name for path in (tmp_path / "incoming/edge-1").glob("*.parquet"))
    assert [name.split("-")[0] for name in names] == [f"{index:012d}" for index in range(4)]


def test_sigterm_answers_what_was_taken(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, commit={"linger_s": 0.05}) as receiver:
        body = spans({}).SerializeToString()
        done: list[int] = []
        sender = threading.Thread(
            target=lambda: done.append(receiver.post("/v1/traces", body).status)
        )
        sender.start()
        while receiver.get("/stats")["queue_depth"] + len(done) == 0:
            pass
        receiver.process.terminate()
        sender.join()
        assert receiver.finish() == (0, "")
    assert done == [200]
    assert rows(tmp_path, "select count(*) from segment") == [(1,)]


def test_a_store_that_fails_is_503_and_nothing_is_lost(receiver: ReceiverProcess) -> None:
    shutil.rmtree(receiver.store / "incoming" / "main")
    body = spans({}).SerializeToString()
    answer = receiver.post("/v1/traces", body)
    assert (answer.status, status_of(answer.body).code) == (503, 14)
    assert answer.headers["retry-after"] == "1"
    (receiver.store / "incoming" / "main").mkdir()
    assert receiver.post("/v1/traces", body).status == 200
    assert rows(receiver.store, "select count(*) from segment") == [(1,)]
    assert receiver.get("/stats")["write_errors"] == 1


def test_the_slow_decoder_stands_in(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, decoder="upb") as receiver:
        answer = receiver.post("/v1/traces", spans({"tokenmill.attempt": 2}).SerializeToString())
        assert answer.status == 200
    assert rows(tmp_path, "select attempt from segment") == [(2,)]


def test_health_and_stats(receiver: ReceiverProcess) -> None:
    assert receiver.get("/healthz") == {"status": "ok"}
    assert receiver.post("/v1/traces", spans({}, {}).SerializeToString()).status == 200
    stats = receiver.get("/stats")
    assert (stats["bodies"], stats["rows"], stats["segments"]) == (1, 2, 1)
    assert stats["segment_bytes"] > 0
    assert stats["queue_depth"] == stats["queue_bytes"] == 0


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ReceiverProcess(tmp_path / "store", port=port) as receiver:
            code, said = receiver.finish()
    assert code == 1
    assert said == (
        f"ReceiverError: can't listen on 127.0.0.1:{port}: Address already in use: stop what has "
        "it, or choose another with --otlp-port\n"
    )
    assert not (tmp_path / "store").exists()


def test_two_receivers_of_one_name_are_refused(receiver: ReceiverProcess) -> None:
    with ReceiverProcess(receiver.store) as second:
        code, said = second.finish()
    assert code == 1
    assert said.startswith("ReceiverError: another receiver writes to")
    assert said.count("\n") == 1
    with ReceiverProcess(receiver.store, name="other") as third:
        assert post(third.url, "/v1/traces", spans({}).SerializeToString()).status == 200


def test_an_unusable_store_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(StoreError, match="can't write to the store"):
        run_receiver(ReceiverConfig(store=file / "store", port=0))
    (tmp_path / "format.json").write_text('{"version": 99}')
    with pytest.raises(StoreError, match="has format 99, this tokenmill reads up to 1"):
        run_receiver(ReceiverConfig(store=tmp_path, port=0))
    (tmp_path / "format.json").write_text("{}")
    with pytest.raises(StoreError, match="doesn't say the store's format version"):
        run_receiver(ReceiverConfig(store=tmp_path, port=0))
