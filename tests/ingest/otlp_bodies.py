"""OTLP export requests for tests, built with OTLP's own classes."""

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

TRACE_ID = bytes(range(1, 17))
START_NS = 1_700_000_000_000_000_000


def any_value(value: Any) -> AnyValue:
    """`value` as OTLP has it; None is an AnyValue in which nothing is set."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(v) for v in value]))
    assert isinstance(value, dict)
    return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    """`attributes` as key-values."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def spans(
    *attributes: dict[str, Any],
    scope: str = "tokenmill.probe",
    resource: dict[str, Any] | None = None,
    trace_id: bytes = TRACE_ID,
    first_span: int = 1,
) -> ExportTraceServiceRequest:
    """A span for each of `attributes`, span ids counting up from `first_span`."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(pairs(resource or {}))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = scope
    for index, own in enumerate(attributes):
        of_scope.spans.add(
            trace_id=trace_id,
            span_id=(first_span + index).to_bytes(8, "big"),
            name=f"span {index}",
            kind=2,
            start_time_unix_nano=START_NS + index,
            end_time_unix_nano=START_NS + index + 1_000_000,
            attributes=pairs(own),
        )
    return request


def logs(
    *bodies: Any, event_name: str = "", attributes: dict[str, Any] | None = None
) -> ExportLogsServiceRequest:
    """A record for each of `bodies`."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for body in bodies:
        scope.log_records.add(
            time_unix_nano=START_NS,
            severity_number=9,
            event_name=event_name,
            body=any_value(body),
            attributes=pairs(attributes or {}),
        )
    return request


def every_metric(resource: dict[str, Any] | None = None) -> ExportMetricsServiceRequest:
    """A metric of every kind, and points with nothing recorded or nothing set."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    of_resource.resource.attributes.extend(pairs(resource or {}))
    scope = of_resource.scope_metrics.add()
    scope.scope.name = "tokenmill.probe"
    at = {"start_time_unix_nano": START_NS, "time_unix_nano": START_NS + 1}
    own = {"attributes": pairs({"tokenmill.phase": "decode"})}

    gauge = scope.metrics.add(name="gauge", unit="1")
    gauge.gauge.data_points.add(as_int=7, **at, **own)
    gauge.gauge.data_points.add(as_double=0.0, **at)
    gauge.gauge.data_points.add(flags=1, **at)
    total = scope.metrics.add(name="sum", unit="s")
    total.sum.aggregation_temporality = 2
    total.sum.is_monotonic = True
    total.sum.data_points.add(as_double=1.5, **at, **own)
    histogram = scope.metrics.add(name="histogram", unit="s")
    histogram.histogram.aggregation_temporality = 1
    histogram.histogram.data_points.add(
        count=3, sum=6.5, bucket_counts=[1, 2, 0], explicit_bounds=[1.0, 5.0], **at, **own
    )
    histogram.histogram.data_points.add(count=0, **at)
    exponential = scope.metrics.add(name="exponential")
    exponential.exponential_histogram.aggregation_temporality = 2
    exponential.exponential_histogram.data_points.add(count=4, sum=10.0, scale=2, **at, **own)
    summary = scope.metrics.add(name="summary")
    summary.summary.data_points.add(count=5, sum=2.5, **at, **own)
    scope.metrics.add(name="nothing in it")
    return request
