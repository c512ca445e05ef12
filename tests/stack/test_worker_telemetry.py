"""What becomes of spans whose receiver is gone: counted as lost, and never waited for."""

import logging
import socket
import time

import pytest
from otlp_sink import OtlpSink

from serving_probe.emit import Telemetry, TelemetryConfig, context_from


@pytest.fixture
def nowhere() -> TelemetryConfig:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return TelemetryConfig(endpoint=f"http://127.0.0.1:{port}", export_delay_s=0.05, timeout_s=0.2)


def emit(telemetry: Telemetry, n: int) -> None:
    """Some finished spans."""
    for i in range(n):
        telemetry.child("decode", context_from(None), i, i + 1, {})


def test_lost_spans_are_counted(nowhere: TelemetryConfig) -> None:
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with Telemetry(nowhere, {"service.name": "test"}) as telemetry:
        emit(telemetry, 3)
        until = time.monotonic() + 60
        while telemetry.spans_dropped() < 3 and time.monotonic() < until:
            time.sleep(0.05)
        assert telemetry.spans_dropped() == 3


def test_delivered_spans_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with OtlpSink() as sink:
        with Telemetry(sink.telemetry, {"service.name": "test"}) as telemetry:
            emit(telemetry, 700)  # more than one batch
        assert len(sink.spans()) == 700
        assert telemetry.spans_dropped() == 0
