"""A worker's loop between the router's socket and the engine, with its signs of life."""

import re
import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import torch
import zmq
from opentelemetry.metrics import Observation

from serving_probe.contract import BLOCK_STATE, PHASE, Leg, Metric, Role
from serving_probe.emit import Telemetry
from serving_probe.stack.core import (
    Abort,
    Decode,
    Drain,
    Hello,
    Prefill,
    Release,
    Status,
    ToRouter,
    ToWorker,
    decode_to_worker,
    encode,
)
from serving_probe.stack.engine import Engine
from serving_probe.stack.kv.pool import PagePool, PageShape
from serving_probe.stack.legspans import LegSpans
from serving_probe.stack.meter import Phase
from serving_probe.stack.model.config import model_config, resolve_dtype
from serving_probe.stack.model.llama import Model, load_model
from serving_probe.stack.transfer.shm import ShmLink
from serving_probe.stack.worker import WorkerConfig

_STATUS_S: Final = 0.25
_IDLE_MS: Final = 200  # also how late a lease's end or a signal may be noticed
_BLOCKED_MS: Final = 10
_LINGER_MS: Final = 500
_CLOSING: Final = "the worker is shutting down."


def serve(config: WorkerConfig, is_stopped: Callable[[], bool]) -> None:
    """Load the model, say hello, work; returns when stopped or drained."""
    # Two threads on busy cores are several times slower than one: they spin on each other.
    torch.set_num_threads(1)
    dtype, _ = resolve_dtype(config.dtype)
    model = load_model(config.model, dtype, is_packed=config.role is not Role.PREFILL)
    incarnation = uuid4().hex[:8]
    shape = PageShape.of(model_config(config.model), model.model_hash, dtype)
    pool = PagePool(_segment_name(config, incarnation), shape, config.n_pages)
    try:
        with Telemetry(
            config.telemetry,
            {
                "service.name": "tokenmill-stack",
                "service.instance.id": f"{config.worker_id}-{incarnation}",
                Leg.WORKER_ID: config.worker_id,
                Leg.WORKER_ROLE: config.role,
                Leg.WORKER_TYPE: config.worker_type,
                Leg.WORKER_POOL: config.pool,
                Leg.WORKER_ACCELERATORS: 1,
                Leg.REPORT_INTERVAL_S: config.telemetry.report_interval_s,
            },
        ) as telemetry:
            loop = _Loop(config, incarnation, model, pool, telemetry)
            try:
                loop.run(is_stopped)
            finally:
                loop.close()
                pool.unlink()  # before the last flush, which may take its time
    finally:
        pool.unlink()


def _segment_name(config: WorkerConfig, incarnation: str) -> str:
    # A pool may be called anything; a file may not.
    worker = re.sub(r"[^A-Za-z0-9_.-]", "_", config.worker_id)
    return f"{config.shm_prefix}-{worker}-{incarnation}"


class _Loop:
    def __init__(
        self,
        config: WorkerConfig,
        incarnation: str,
        model: Model,
        pool: PagePool,
        telemetry: Telemetry,
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._model = model
        self._pool = pool
        self._is_draining = False
        self._status_at = 0.0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, f"{config.worker_id}/{incarnation}".encode())
        self._socket.setsockopt(zmq.SNDHWM, 0)  # a router that lags must not stop a step
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.connect(config.router_endpoint)
        worker_id, role = config.worker_id, config.role
        spans = LegSpans(
            telemetry.child, worker_id, role, config.worker_type, config.pool, model.dtype
        )
        self._engine = Engine(
            worker_id,
            role,
            model,
            pool,
            ShmLink(),
            spans,
            max_batch=config.max_batch,
            max_prefill_tokens=config.max_prefill_tokens,
            lease_s=config.lease_s,
            pulse=self._status,
        )
        _report(telemetry, self._engine, pool)

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Work until stopped, or until a drain has left nothing."""
        self._hello()
        did_work = False
        while not is_stopped():
            wait_ms = 0 if did_work else _BLOCKED_MS if self._engine.has_work else _IDLE_MS
            if self._socket.poll(wait_ms):
                self._receive()
            did_work = self._engine.step()
            for message in self._engine.take_messages():
                self._send(message)
            self._status()
            if self._is_draining and not self._engine.has_work and not self._engine.n_leases:
                return

    def close(self) -> None:
        """Drop what still runs, tell the router, let the socket go."""
        self._engine.abort_all(_CLOSING)
        for message in self._engine.take_messages():
            self._send(message)
        self._socket.close()
        self._context.term()

    def _receive(self) -> None:
        while True:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._handle(decode_to_worker(frame))

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Prefill() | Decode() if self._is_draining:
                self._engine.refuse(message, _CLOSING)
            case Prefill() | Decode():
                self._engine.submit(message)
            case Abort():
                self._engine.abort(message.attempt_id)
            case Release():
                self._engine.release(message.lease_id)
            case Drain():
                self._is_draining = True

    def _hello(self) -> None:
        config = self._config
        self._send(
            Hello(
                worker_id=config.worker_id,
                role=config.role,
                worker_type=config.worker_type,
                pool=config.pool,
                incarnation=self._incarnation,
                max_batch=config.max_batch,
                n_pages=config.n_pages,
                model_hash=self._model.model_hash,
                dtype=self._model.dtype,
            )
        )

    def _status(self) -> None:
        now = time.monotonic()
        if now - self._status_at < _STATUS_S:
            return
        self._status_at = now
        ledger = self._pool.ledger
        self._send(
            Status(
                self._config.worker_id,
                queued=self._engine.n_queued,
                running=self._engine.n_running,
                free_pages=ledger.n_free + ledger.n_cached,
            )
        )

    def _send(self, message: ToRouter) -> None:
        self._socket.send(encode(message))


def _report(telemetry: Telemetry, engine: Engine, pool: PagePool) -> None:
    """Register the worker's metrics; they are read on the SDK's own thread."""
    ledger = pool.ledger

    def by_phase(spent_ns: dict[Phase, int]) -> list[Observation]:
        return [Observation(ns / 1e9, {PHASE: phase}) for phase, ns in spent_ns.items()]

    def blocks() -> list[Observation]:
        counts = {"free": ledger.n_free, "cached": ledger.n_cached, "used": ledger.n_used}
        return [Observation(n, {BLOCK_STATE: state}) for state, n in counts.items()]

    telemetry.gauge(Metric.UP, lambda: [Observation(1)], "1")
    telemetry.counter(Metric.BUSY_SECONDS, lambda: by_phase(engine.spent.wall_ns), "s")
    telemetry.counter(Metric.CPU_SECONDS, lambda: by_phase(engine.spent.cpu_ns), "s")
    telemetry.gauge(Metric.QUEUE_DEPTH, lambda: [Observation(engine.n_queued)], "{request}")
    telemetry.gauge(Metric.RUNNING, lambda: [Observation(engine.n_running)], "{request}")
    telemetry.gauge(Metric.KV_BLOCKS, blocks, "{block}")
    telemetry.gauge(
        Metric.KV_CACHED_BYTES,
        lambda: [Observation(ledger.n_cached * pool.shape.n_bytes)],
        "By",
    )
    telemetry.counter(
        Metric.SPANS_DROPPED, lambda: [Observation(telemetry.spans_dropped())], "{span}"
    )
