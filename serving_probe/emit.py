"""Sends what the probe measured, through the OpenTelemetry SDK, over OTLP/HTTP.

Export runs on the SDK's own threads with bounded queues: when the receiver is slow or gone, spans
are dropped and counted, and serving goes on. This module knows the contract's shape and nothing
of who measures.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel, ConfigDict, Field

from serving_probe.attempt import AttemptRecorder, Attributes
from serving_probe.contract import CONTRACT_VERSION, SCOPE, Gen, Metric, Outcome, Root

_W3C = TraceContextTextMapPropagator()
_QUEUE_SPANS: Final = 8192
_BATCH_SPANS: Final = 512
_CLOSE_S: Final = 3.0


class TelemetryConfig(BaseModel):
    """Where telemetry goes and how often."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: Annotated[str, Field(description="OTLP/HTTP base URL; /v1/traces is appended")] = (
        "http://127.0.0.1:4318"
    )
    export_delay_s: Annotated[float, Field(gt=0, le=60)] = 0.25
    report_interval_s: Annotated[float, Field(gt=0, le=300)] = 1.0
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0


class _OneAMinute(logging.Filter):
    """One line a minute for all the exporters' failed tries; other records pass as they are."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._silent_until_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if "export" not in record.name:
            return True
        now_s = time.monotonic()
        if now_s < self._silent_until_s:
            return False
        self._silent_until_s = now_s + 60.0
        record.msg, record.args = (
            "telemetry isn't received at %s; serving goes on",
            (self._endpoint,),
        )
        record.exc_info = None
        return True


def _quieten(endpoint: str) -> None:
    """The SDK's exporters log each failed try; one line a minute says as much."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    handler = logging.StreamHandler()
    handler.addFilter(_OneAMinute(endpoint))
    logger.handlers = [handler]


class Telemetry:
    """One process's tracer and meter; `close` flushes what is queued."""

    def __init__(self, config: TelemetryConfig, resource: Attributes) -> None:
        self.config = config
        _quieten(config.endpoint)
        described = Resource.create(resource)
        base = config.endpoint.rstrip("/")
        # Whatever a caller's traceparent says: these spans are the measurement, and an attempt that
        # a tracing client chose not to sample costs as much as any other.
        self._tracers = TracerProvider(
            resource=described, sampler=ALWAYS_ON, shutdown_on_exit=False
        )
        self._ended = _EndedSpans()
        self._sent = _CountedExporter(
            OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=config.timeout_s)
        )
        self._tracers.add_span_processor(self._ended)
        self._tracers.add_span_processor(
            BatchSpanProcessor(
                self._sent,
                max_queue_size=_QUEUE_SPANS,
                max_export_batch_size=_BATCH_SPANS,
                schedule_delay_millis=config.export_delay_s * 1000,
            )
        )
        self._meters = MeterProvider(
            resource=described,
            shutdown_on_exit=False,
            metric_readers=[
                PeriodicExportingMetricReader(
                    OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=config.timeout_s),
                    export_interval_millis=config.report_interval_s * 1000,
                    export_timeout_millis=config.timeout_s * 1000,
                )
            ],
        )
        self.tracer = self._tracers.get_tracer(SCOPE, CONTRACT_VERSION)
        self.meter = self._meters.get_meter(SCOPE, CONTRACT_VERSION)

    def gauge(self, metric: Metric, read: Callable[[], Iterable[Observation]], unit: str) -> None:
        """Report what `read` returns at every interval."""
        self.meter.create_observable_gauge(metric, [_callback(read)], unit=unit)

    def counter(self, metric: Metric, read: Callable[[], Iterable[Observation]], unit: str) -> None:
        """Report the cumulative, never falling, value that `read` returns at every interval."""
        self.meter.create_observable_counter(metric, [_callback(read)], unit=unit)

    def child(
        self, name: str, parent: Context, start_unix_ns: int, end_unix_ns: int, attrs: Attributes
    ) -> None:
        """Emit one finished child span under `parent`."""
        span = self.tracer.start_span(
            name, context=parent, kind=SpanKind.INTERNAL, start_time=start_unix_ns
        )
        span.set_attributes(attrs)
        span.end(end_time=max(start_unix_ns, end_unix_ns))

    def spans_dropped(self) -> int:
        """Spans certainly lost: refused by the receiver, or pushed out of the full queue."""
        n_open = self._ended.n - self._sent.n_sent - self._sent.n_failed
        return self._sent.n_failed + max(0, n_open - _QUEUE_SPANS - _BATCH_SPANS)

    def close(self) -> None:
        """Flush and stop; never raises nor waits for a receiver that's gone beyond `_CLOSE_S`."""
        stops = [
            threading.Thread(target=provider.shutdown, daemon=True)
            for provider in (self._tracers, self._meters)
        ]
        for stop in stops:
            stop.start()
        until = time.monotonic() + _CLOSE_S
        for stop in stops:
            stop.join(max(0.0, until - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _EndedSpans(SpanProcessor):
    """Counts the spans that wait to be sent: the sampled ones."""

    def __init__(self) -> None:
        self.n = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.n += bool(span.context and span.context.trace_flags.sampled)


class _CountedExporter(SpanExporter):
    """An exporter that counts what became of its spans."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.n_sent = 0
        self.n_failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.n_sent += len(spans)
        else:
            self.n_failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


def context_from(traceparent: str | None) -> Context:
    """The W3C context a `traceparent` header names; an empty context when absent or malformed."""
    return _W3C.extract({"traceparent": traceparent} if traceparent else {})


def traceparent_of(span: trace.Span) -> str:
    """The `traceparent` header that makes `span` the parent."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=trace.set_span_in_context(span))
    return carrier.get("traceparent", "")


def start_root(
    telemetry: Telemetry, name: str, parent: Context, recorder: AttemptRecorder
) -> trace.Span:
    """Open the attempt's root span at its arrival; close it with `end_root`."""
    return telemetry.tracer.start_span(
        name, context=parent, kind=SpanKind.SERVER, start_time=recorder.arrived_unix_ns
    )


def end_root(span: trace.Span, recorder: AttemptRecorder, attrs: Attributes) -> None:
    """Write an ended attempt's readings onto its root span, with `attrs`, and close it.

    A stream that gave no chunk has an empty gap list; a response that was not streamed has none.
    """
    assert recorder.outcome is not None, "end() comes before end_root()"
    span.set_attributes(attrs)
    span.set_attribute(Root.OUTCOME, recorder.outcome)
    if attrs.get(Gen.STREAM):
        span.set_attribute(Root.CHUNK_GAPS_US, recorder.gaps_us)
        if recorder.first_message_us is not None:
            span.set_attribute(Root.FIRST_MESSAGE_US, recorder.first_message_us)
        if recorder.chunk_tokens is not None:
            span.set_attribute(Root.CHUNK_TOKENS, recorder.chunk_tokens)
        if any(recorder.chunk_choices):
            span.set_attribute(Root.CHUNK_CHOICES, recorder.chunk_choices)
        if recorder.offsets_us:
            span.set_attribute(Gen.TIME_TO_FIRST_CHUNK, recorder.offsets_us[0] / 1e6)
    if recorder.error_type is not None:
        span.set_attribute(Gen.ERROR_TYPE, recorder.error_type)
    if recorder.outcome is not Outcome.COMPLETED:
        span.set_status(Status(StatusCode.ERROR, recorder.error_type or recorder.outcome))
    span.end(end_time=recorder.arrived_unix_ns + (recorder.ended_us or 0) * 1000)


def _callback(
    read: Callable[[], Iterable[Observation]],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return read()

    return observe
