"""A small real OTLP/HTTP receiver: keeps every span it is sent."""

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from serving_probe.contract import Root
from serving_probe.emit import TelemetryConfig

Value = str | bool | int | float | list["Value"] | None


@dataclass(frozen=True)
class SeenSpan:
    """One received span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]


class OtlpSink:
    """Listens on a free port while open."""

    def __init__(self) -> None:
        self._spans: list[SeenSpan] = []
        self.metric_names: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def telemetry(self) -> TelemetryConfig:
        """Settings that lead here, exporting quickly."""
        port = self._server.server_address[1]
        return TelemetryConfig(endpoint=f"http://127.0.0.1:{port}", export_delay_s=0.05)

    def spans(self) -> list[SeenSpan]:
        """All spans received until now."""
        return list(self._spans)

    def roots(self) -> list[SeenSpan]:
        """Root spans received until now."""
        return [span for span in self.spans() if Root.REQUEST_ID in span.attributes]

    def wait_roots(self, wanted: Callable[[SeenSpan], bool], n: int = 1) -> list[SeenSpan]:
        """At least `n` root spans of this kind; fails when they don't come."""
        for _ in range(400):
            found = [span for span in self.roots() if wanted(span)]
            if len(found) >= n:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{n} root spans wanted, these came: {self.roots()}")

    def root_of(self, request_id: str) -> SeenSpan:
        """The one root span of a request."""
        found = self.wait_roots(lambda span: span.attributes[Root.REQUEST_ID] == request_id)
        assert len(found) == 1
        return found[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def take(self, path: str, body: bytes) -> None:
        """Keep what came."""
        if path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body)
            for resource in metrics.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metric_names.update(metric.name for metric in scope.metrics)
            return
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._spans.append(
                        SeenSpan(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            {item.key: _value(item.value) for item in span.attributes},
                        )
                    )


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    plain: Value = getattr(value, kind)
    return plain
