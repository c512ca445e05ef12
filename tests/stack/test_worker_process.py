"""Workers as they run: real processes over ZeroMQ, their telemetry received, their ends clean."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import zmq
from engine_rig import PROMPT, handoff, output, prefill
from otlp_sink import OtlpSink

from serving_probe.contract import Metric, Role, Span
from serving_probe.stack.core import (
    Abort,
    Drain,
    Failed,
    Hello,
    PrefillDone,
    Release,
    Status,
    Tokens,
    ToRouter,
    ToWorker,
    decode_to_router,
    encode,
)
from serving_probe.stack.kv.segment import shared_folder, sweep
from serving_probe.stack.worker import WorkerConfig, run_worker

pytestmark = pytest.mark.stack
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Workers:
    """A router's end of the star, and the worker processes on it."""

    def __init__(self, folder: Path, sink: OtlpSink) -> None:
        self.prefix = f"tmtest{uuid4().hex[:8]}"
        self.sink = sink
        self.processes: dict[str, BaseProcess] = {}
        self.statuses: list[Status] = []
        self._endpoint = f"ipc://{folder}/router"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(self._endpoint)
        self._addresses: dict[str, bytes] = {}

    def start(self, *roles: Role, **settings: Any) -> None:
        """Start a worker of each role and wait until it says hello."""
        spawn = multiprocessing.get_context("spawn")
        for role in roles:
            config = WorkerConfig(
                worker_id=f"{role}-0",
                role=role,
                worker_type="cpu-test",
                pool=f"{role}-pool",
                router_endpoint=self._endpoint,
                model="tiny",
                dtype="float32",
                n_pages=64,
                shm_prefix=self.prefix,
                telemetry=self.sink.telemetry.model_copy(update={"report_interval_s": 0.2}),
                **settings,
            )
            process = spawn.Process(target=run_worker, args=(config,))
            process.start()
            self.processes[config.worker_id] = process
        while len(self._addresses) < len(self.processes):
            self._receive()

    def send(self, worker_id: str, message: ToWorker) -> None:
        self._socket.send_multipart([self._addresses[worker_id], encode(message)])

    def until(self, kind: type[ToRouter], **fields: Any) -> list[ToRouter]:
        """Messages up to the first of a kind with these fields."""
        seen: list[ToRouter] = []
        while True:
            message = self._receive()
            seen.append(message)
            if isinstance(message, kind) and all(
                getattr(message, name) == value for name, value in fields.items()
            ):
                return seen

    def segments(self) -> list[str]:
        return sorted(path.name for path in shared_folder().glob(f"{self.prefix}*"))

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
        self._context.destroy(linger=0)
        sweep(self.prefix)

    def _receive(self) -> ToRouter:
        while True:
            assert self._socket.poll(60_000), "no message for a minute"
            address, frame = self._socket.recv_multipart()
            message = decode_to_router(frame)
            if isinstance(message, Hello):
                self._addresses[message.worker_id] = address
                return message
            if not isinstance(message, Status):
                return message
            self.statuses.append(message)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with OtlpSink() as sink:
        group = Workers(tmp_path, sink)
        try:
            yield group
        finally:
            group.close()


def test_a_handoff_between_processes_says_what_one_process_says(workers: Workers) -> None:
    workers.start(Role.UNIFIED, Role.PREFILL, Role.DECODE)
    request = prefill(max_tokens=24)
    workers.send("unified-0", request)
    expected = output(workers.until(Tokens, finish_reason="length"), request.attempt_id)
    assert len(expected) == 24

    workers.send("prefill-0", request)
    done = workers.until(PrefillDone)[-1]
    assert isinstance(done, PrefillDone)
    workers.send("decode-0", handoff(request, done))
    messages = workers.until(Tokens, finish_reason="length")
    assert [done.first_token, *output(messages, request.attempt_id)] == expected
    (release,) = [m for m in messages if isinstance(m, Release)]
    assert release.worker_id == "prefill-0"
    workers.send("prefill-0", release)

    # Drained workers flush, unlink and end by themselves.
    for worker_id in workers.processes:
        workers.send(worker_id, Drain())
    for process in workers.processes.values():
        process.join(60)
        assert process.exitcode == 0
    assert workers.segments() == []
    assert {span.name for span in workers.sink.spans()} == set(Span)
    assert workers.sink.metric_names == set(Metric)


def test_child_spans_hang_on_the_routers_span(workers: Workers) -> None:
    workers.start(Role.UNIFIED)
    workers.send("unified-0", msgspec.structs.replace(prefill(), traceparent=TRACEPARENT))
    workers.until(Tokens, finish_reason="length")
    workers.processes["unified-0"].terminate()
    workers.processes["unified-0"].join(60)
    spans = workers.sink.spans()
    assert [span.name for span in spans] == ["queue", "prefill", "decode"]
    _, trace_id, span_id, _ = TRACEPARENT.split("-")
    assert {(span.trace_id, span.parent_id) for span in spans} == {(trace_id, span_id)}


def test_sigterm_in_mid_stream_flushes_and_unlinks(workers: Workers) -> None:
    workers.start(Role.UNIFIED)
    workers.send("unified-0", prefill(max_tokens=900))
    workers.until(Tokens)
    assert len(workers.segments()) == 1
    process = workers.processes["unified-0"]
    process.terminate()
    process.join(60)
    assert process.exitcode == 0
    assert workers.segments() == []
    failure = workers.until(Failed)[-1]
    assert isinstance(failure, Failed)
    assert failure.reason == "the worker is shutting down."
    decode = next(span for span in workers.sink.spans() if span.name == "decode")
    assert decode.attributes["error.type"] == "aborted"
    assert decode.attributes["tokenmill.device_seconds"] > 0


def test_an_idle_worker_gives_signs_of_life(workers: Workers) -> None:
    workers.start(Role.DECODE)
    until = time.monotonic() + 30
    while len(workers.statuses) < 3 and time.monotonic() < until:
        workers.send("decode-0", Abort("nobody"))
        workers.send("decode-0", prefill())
        workers.until(Failed)
    assert len(workers.statuses) >= 3
    assert workers.statuses[-1].free_pages == 64


def test_pages_of_a_killed_prefill_worker_can_still_be_read(workers: Workers) -> None:
    # kill -9 leaves the segment until somebody sweeps it: the handoff under way is saved.
    workers.start(Role.PREFILL, Role.DECODE)
    request = prefill(PROMPT, max_tokens=4)
    workers.send("prefill-0", request)
    done = workers.until(PrefillDone)[-1]
    assert isinstance(done, PrefillDone)
    os.kill(workers.processes["prefill-0"].pid or 0, signal.SIGKILL)
    workers.processes["prefill-0"].join(30)
    workers.send("decode-0", handoff(request, done))
    messages = workers.until(Tokens, finish_reason="length")
    assert len(output(messages, request.attempt_id)) == 3


def test_a_worker_that_cannot_start_says_why_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    config = WorkerConfig(
        worker_id="unified-0",
        role=Role.UNIFIED,
        worker_type="cpu-test",
        pool="unified-pool",
        router_endpoint=f"ipc://{tmp_path}/router",
        model="smollm2",
        shm_prefix="tmtest",
    )
    process = multiprocessing.get_context("spawn").Process(target=run_worker, args=(config,))
    process.start()
    process.join(60)
    assert process.exitcode == 1
    said = capfd.readouterr().err
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("unified-0: ")]
    assert line.startswith("unified-0: the model cache")
    assert "set TOKENMILL_CACHE" in line
