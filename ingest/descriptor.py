"""A trimmed descriptor of OTLP 1.x: the same field numbers, only the fields that are kept.

Wire-compatible by protobuf's own rules: what isn't named here is skipped. Every string is declared
as bytes, so that one string that isn't UTF-8 can be repaired instead of costing its whole body, and
lists hold one level, deeper ones stay bytes: the format's recursion has no end, a column's must.
"""

from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ingest.frames import Signal

_PACKAGE: Final = "tokenmill.trimmed"
_TYPES: Final = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "int32": FieldDescriptorProto.TYPE_INT32,  # enums too: unknown values must not fail
}

# name = number type; `*` repeated, `?` with presence, `|` member of the message's one oneof
_SCALARS = "string_value=1|bytes bool_value=2|bool int_value=3|int64 double_value=4|double"
_RESOURCE = "resource=1 Resource"
_MESSAGES: Final = {
    "Leaf": f"{_SCALARS} array_value=5|bytes kvlist_value=6|bytes bytes_value=7|bytes",
    "ArrayValue": "values=1*Leaf",
    "AnyValue": f"{_SCALARS} array_value=5|ArrayValue kvlist_value=6|bytes bytes_value=7|bytes",
    "KeyValue": "key=1 bytes value=2 AnyValue",
    "KeyValueList": "values=1*KeyValue",
    "Resource": "attributes=1*KeyValue",
    "Scope": "name=1 bytes",
    "Status": "message=2 bytes code=3 int32",
    "Span": (
        "trace_id=1 bytes span_id=2 bytes trace_state=3 bytes parent_span_id=4 bytes name=5 bytes "
        "kind=6 int32 start_time_unix_nano=7 fixed64 end_time_unix_nano=8 fixed64 "
        "attributes=9*KeyValue dropped_attributes_count=10 uint32 dropped_events_count=12 uint32 "
        "status=15 Status"
    ),
    "ScopeSpans": "scope=1 Scope spans=2*Span",
    "ResourceSpans": f"{_RESOURCE} scope_spans=2*ScopeSpans",
    "Traces": "resource_spans=1*ResourceSpans",
    "LogRecord": (
        "time_unix_nano=1 fixed64 severity_number=2 int32 severity_text=3 bytes body=5 AnyValue "
        "attributes=6*KeyValue trace_id=9 bytes span_id=10 bytes "
        "observed_time_unix_nano=11 fixed64 event_name=12 bytes"
    ),
    "ScopeLogs": "scope=1 Scope log_records=2*LogRecord",
    "ResourceLogs": f"{_RESOURCE} scope_logs=2*ScopeLogs",
    "Logs": "resource_logs=1*ResourceLogs",
    "NumberPoint": (
        "attributes=7*KeyValue start_time_unix_nano=2 fixed64 time_unix_nano=3 fixed64 "
        "as_double=4|double as_int=6|sfixed64 flags=8 uint32"
    ),
    "HistogramPoint": (
        "attributes=9*KeyValue start_time_unix_nano=2 fixed64 time_unix_nano=3 fixed64 "
        "count=4 fixed64 sum=5?double bucket_counts=6*fixed64 explicit_bounds=7*double "
        "flags=10 uint32"
    ),
    "ExponentialPoint": (
        "attributes=1*KeyValue start_time_unix_nano=2 fixed64 time_unix_nano=3 fixed64 "
        "count=4 fixed64 sum=5?double flags=10 uint32"
    ),
    "SummaryPoint": (
        "attributes=7*KeyValue start_time_unix_nano=2 fixed64 time_unix_nano=3 fixed64 "
        "count=4 fixed64 sum=5 double flags=8 uint32"
    ),
    "Gauge": "data_points=1*NumberPoint",
    "Sum": "data_points=1*NumberPoint aggregation_temporality=2 int32 is_monotonic=3 bool",
    "Histogram": "data_points=1*HistogramPoint aggregation_temporality=2 int32",
    "ExponentialHistogram": "data_points=1*ExponentialPoint aggregation_temporality=2 int32",
    "Summary": "data_points=1*SummaryPoint",
    "Metric": (
        "name=1 bytes unit=3 bytes gauge=5|Gauge sum=7|Sum histogram=9|Histogram "
        "exponential_histogram=10|ExponentialHistogram summary=11|Summary"
    ),
    "ScopeMetrics": "scope=1 Scope metrics=2*Metric",
    "ResourceMetrics": f"{_RESOURCE} scope_metrics=2*ScopeMetrics",
    "Metrics": "resource_metrics=1*ResourceMetrics",
}
_ONEOF: Final = {"NumberPoint": "value", "Metric": "data"}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="trimmed.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if "|" in fields:
            message.oneof_decl.add(name=_ONEOF.get(name, "value"))
        for spec in _specs(fields):
            _add_field(message, *spec)
    return file


def _specs(fields: str) -> list[tuple[str, int, str, str]]:
    """`a=1 bytes b=2*Leaf` as (name, number, mark, type); the mark is one of ` *?|`."""
    out = []
    words = fields.split()
    for at, word in enumerate(words):
        if "=" not in word:
            continue
        name, rest = word.split("=")
        mark = next((m for m in "*?|" if m in rest), " ")
        number, kind = (rest, words[at + 1]) if mark == " " else rest.split(mark)
        out.append((name, int(number), mark, kind))
    return out


def _add_field(message: Any, name: str, number: int, mark: str, kind: str) -> None:
    field = message.field.add(
        name=name,
        number=number,
        label=FieldDescriptorProto.LABEL_REPEATED
        if mark == "*"
        else FieldDescriptorProto.LABEL_OPTIONAL,
    )
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    if mark == "|":
        field.oneof_index = 0
    elif mark == "?":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.Add(_file())
    return pool


_POOL: Final = _pool()


def _descriptor(name: str) -> Descriptor:
    found: Descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return found


def _message(name: str) -> type[Message]:
    found: type[Message] = GetMessageClass(_descriptor(name))
    return found


REQUESTS: Final[dict[Signal, Descriptor]] = {
    Signal.SPAN: _descriptor("Traces"),
    Signal.METRIC: _descriptor("Metrics"),
    Signal.LOG: _descriptor("Logs"),
}
"""The export request of each signal."""

LENIENT: Final = {
    Signal.SPAN: _message("Traces"),
    Signal.METRIC: _message("Metrics"),
    Signal.LOG: _message("Logs"),
}
"""The same as message classes: they read bodies whose strings aren't UTF-8."""

ARRAY_VALUE: Final = _message("ArrayValue")
KVLIST_VALUE: Final = _message("KeyValueList")
