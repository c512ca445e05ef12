"""OTLP protobuf bodies to flat Arrow frames, vectorised: ptars decodes, numpy flattens.

`wire_upb` does the same value by value; the tests hold the two equal. A list of bodies is decoded
in one call, because a call costs about as much as sixty spans; one torn body fails the call, and
`commit` then goes body by body.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc

from ingest.columns import explode, scatter, valid_at, where
from ingest.descriptor import REQUESTS
from ingest.errors import UnreadableBodyError
from ingest.frames import ATTRIBUTES, ROWS, Frame, Ints, Mask, Signal
from ingest.values import (
    base64_text,
    decode_text,
    float_or_name,
    plain_array,
    plain_kvlist,
    to_json,
)

_LEVELS: Final = {
    Signal.SPAN: ("resource_spans", "scope_spans", "spans"),
    Signal.METRIC: ("resource_metrics", "scope_metrics", "metrics"),
    Signal.LOG: ("resource_logs", "scope_logs", "log_records"),
}
_POINTS: Final = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponential_histogram": "histogram",
    "summary": "summary",
}
"""Field of a metric and the `metric_kind` its points get."""


def decode(signal: Signal, bodies: list[bytes]) -> Frame:
    """The frame of `bodies`, export requests of one signal.

    Raises UnreadableBodyError if any of them isn't protobuf; which one, it doesn't say.
    """
    try:
        batch = _handler(signal).list_to_record_batch(bodies)
    except ValueError as error:
        raise UnreadableBodyError(f"not an OTLP protobuf export request: {error}") from error
    return _Flattener(signal, len(bodies)).frame(batch)


@cache
def _handler(signal: Signal) -> Any:
    descriptor = REQUESTS[signal]
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


class _Flattener:
    """Flattens one decoded batch; counts the strings it had to repair, by payload."""

    def __init__(self, signal: Signal, n_payloads: int) -> None:
        self.signal = signal
        self.repaired: Ints = np.zeros(n_payloads, dtype=np.int64)

    def frame(self, batch: pa.RecordBatch) -> Frame:
        outer, middle, inner = _LEVELS[self.signal]
        resources, payload = explode(batch.column(outer))
        scopes, resource = explode(resources.field(middle))
        rows, scope = explode(scopes.field(inner))
        scope_names = self._text(scopes.field("scope").field("name"), payload[resource])
        scope_names = where(scopes.field("scope").is_valid(), scope_names)
        at_resource = resource[scope]
        common = {
            "payload": payload[at_resource],
            "resource": at_resource,
            "scope_name": scope_names.take(pa.array(scope)),
        }
        bodies = ATTRIBUTES.empty_table()
        if self.signal is Signal.METRIC:
            table, attributes = self._metrics(rows, common)
        else:
            fill = self._spans if self.signal is Signal.SPAN else self._logs
            columns = common | fill(rows, common["payload"])
            table = _table(self.signal, columns)
            attributes = self._attributes(rows.field("attributes"), common["payload"])
            if self.signal is Signal.LOG:
                body = rows.field("body")
                at = valid_at(body)
                keys = pa.array([""] * len(at), pa.string())
                bodies = self._values(body.take(pa.array(at)), keys, at, common["payload"][at])
        return Frame(
            signal=self.signal,
            rows=table,
            attributes=attributes,
            resources=self._attributes(resources.field("resource").field("attributes"), payload),
            bodies=bodies,
            repaired=self.repaired,
            n_resources=len(resources),
        )

    def _spans(self, spans: pa.StructArray, payload: Ints) -> dict[str, Any]:
        status = spans.field("status")
        was_sent = status.is_valid()
        return {
            "trace_id": spans.field("trace_id"),
            "span_id": spans.field("span_id"),
            "parent_span_id": spans.field("parent_span_id"),
            "trace_state": self._text(spans.field("trace_state"), payload),
            "name": self._text(spans.field("name"), payload),
            "kind": spans.field("kind"),
            "start_unix_ns": spans.field("start_time_unix_nano"),
            "end_unix_ns": spans.field("end_time_unix_nano"),
            "status_code": where(was_sent, status.field("code")),
            "status_message": where(was_sent, self._text(status.field("message"), payload)),
            "dropped_attributes": spans.field("dropped_attributes_count"),
            "dropped_events": spans.field("dropped_events_count"),
        }

    def _logs(self, records: pa.StructArray, payload: Ints) -> dict[str, Any]:
        return {
            "trace_id": records.field("trace_id"),
            "span_id": records.field("span_id"),
            "event_name": self._text(records.field("event_name"), payload),
            "unix_ns": records.field("time_unix_nano"),
            "observed_unix_ns": records.field("observed_time_unix_nano"),
            "severity_text": self._text(records.field("severity_text"), payload),
            "severity_number": records.field("severity_number"),
        }

    def _metrics(
        self, metrics: pa.StructArray, common: dict[str, Any]
    ) -> tuple[pa.Table, pa.Table]:
        """A row a point, in the order of `_POINTS`; `common` is by metric."""
        names = self._text(metrics.field("name"), common["payload"])
        units = self._text(metrics.field("unit"), common["payload"])
        tables, attributes = [], []
        n_rows = 0
        for field, kind in _POINTS.items():
            data = metrics.field(field)
            at = valid_at(data)
            data = data.take(pa.array(at))
            points, owner = explode(data.field("data_points"))
            at_metric = at[owner]
            payload = common["payload"][at_metric]
            columns = {
                "payload": payload,
                "resource": common["resource"][at_metric],
                "scope_name": common["scope_name"].take(pa.array(at_metric)),
                "metric_name": names.take(pa.array(at_metric)),
                "metric_unit": units.take(pa.array(at_metric)),
                "metric_kind": pa.array([kind] * len(points), pa.string()),
                **_of_metric(data, owner),
                **_of_point(points, kind),
            }
            tables.append(_table(Signal.METRIC, columns))
            owned = self._attributes(points.field("attributes"), payload)
            shifted = np.asarray(owned["owner"]) + n_rows
            attributes.append(owned.set_column(0, "owner", pa.array(shifted, pa.int32())))
            n_rows += len(points)
        return pa.concat_tables(tables).combine_chunks(), pa.concat_tables(attributes)

    def _attributes(self, lists: pa.ListArray, payload: Ints) -> pa.Table:
        pairs, owner = explode(lists)
        payload = payload[owner]
        return self._values(
            pairs.field("value"), self._text(pairs.field("key"), payload), owner, payload
        )

    def _values(
        self, values: pa.StructArray, keys: pa.Array, owner: Ints, payload: Ints
    ) -> pa.Table:
        """Long-form attributes of AnyValues; a missing value has NULL in every column."""
        flat = dict(zip([f.name for f in values.type], values.flatten(), strict=True))
        ints, strings, json = self._lists(flat["array_value"], payload)
        at = valid_at(flat["kvlist_value"])
        for index in at.tolist():
            json[index] = to_json(plain_kvlist(flat["kvlist_value"][index].as_py()))
        columns = [
            pa.array(owner, pa.int32()),
            keys,
            self._text(flat["string_value"], payload),
            flat["bool_value"],
            flat["int_value"],
            flat["double_value"],
            flat["bytes_value"],
            ints,
            strings,
            _sparse(json, len(values)),
        ]
        return pa.table(columns, schema=ATTRIBUTES)

    def _lists(
        self, arrays: pa.StructArray, payload: Ints
    ) -> tuple[pa.Array, pa.Array, dict[int, str]]:
        """(all-int lists, all-text lists, JSON of the others by index)."""
        n = len(arrays)
        at = valid_at(arrays)
        if len(at) == 0:
            return pa.nulls(n, pa.list_(pa.int64())), pa.nulls(n, pa.list_(pa.string())), {}
        leaves, owner = explode(arrays.take(pa.array(at)).field("values"))
        sizes = np.bincount(owner, minlength=len(at))
        leaf = dict(zip([f.name for f in leaves.type], leaves.flatten(), strict=True))
        out = []
        is_other: Mask = sizes > 0
        for name, of_text in (("int_value", False), ("string_value", True)):
            column = leaf[name]
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            whole = np.bincount(owner, weights=valid, minlength=len(at)) == sizes
            column = column.filter(pa.array(whole[owner]))
            if of_text:
                column = self._text(column, payload[at[owner]][whole[owner]])
            offsets = np.concatenate([[0], np.cumsum(np.where(whole, sizes, 0))])
            lists = pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), column, mask=pa.array(~whole)
            )
            is_other &= ~whole
            out.append(scatter(lists, at, n))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        json = {}
        for index in np.flatnonzero(is_other).tolist():
            elements = leaves.slice(starts[index], sizes[index]).to_pylist()
            json[int(at[index])] = to_json([_plain_leaf(element) for element in elements])
        return out[0], out[1], json

    def _text(self, raw: pa.Array, payload: Ints) -> pa.Array:
        """`raw` bytes as text; what isn't UTF-8 is repaired and counted for its payload."""
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            return self._repair(raw, payload)

    def _repair(self, raw: pa.Array, payload: Ints) -> pa.Array:
        out = []
        for index, value in enumerate(raw.to_pylist()):
            text = None if value is None else decode_text(value)
            if text is not None and text.encode() != value:
                self.repaired[payload[index]] += 1
            out.append(text)
        return pa.array(out, pa.string())


def _of_metric(data: pa.StructArray, owner: Ints) -> dict[str, Any]:
    """What a metric says once for all its points; a gauge and a summary say nothing."""
    names = {field.name for field in data.type}
    out = {}
    if "aggregation_temporality" in names:
        out["temporality"] = data.field("aggregation_temporality").take(pa.array(owner))
    if "is_monotonic" in names:
        out["metric_is_monotonic"] = data.field("is_monotonic").take(pa.array(owner))
    return out


def _of_point(points: pa.StructArray, kind: str) -> dict[str, Any]:
    names = {field.name for field in points.type}
    out = {
        "start_unix_ns": points.field("start_time_unix_nano"),
        "unix_ns": points.field("time_unix_nano"),
        "flags": points.field("flags"),
    }
    if kind in ("gauge", "sum"):
        as_double = points.field("as_double")
        as_int = points.field("as_int").cast(pa.float64(), safe=False)
        return out | {"point_value": pc.coalesce(as_double, as_int)}
    out |= {"point_value": points.field("sum"), "point_count": points.field("count")}
    if "explicit_bounds" in names:
        out["bucket_bounds"] = points.field("explicit_bounds")
        out["bucket_counts"] = points.field("bucket_counts")
    return out


def _table(signal: Signal, columns: dict[str, Any]) -> pa.Table:
    """`columns` cast to the signal's row schema; one that isn't there is NULL."""
    schema = ROWS[signal]
    n = len(columns["payload"])
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            arrays.append(pa.nulls(n, field.type))
        else:
            array = pa.array(column) if isinstance(column, np.ndarray) else column
            arrays.append(array.cast(field.type, safe=not pa.types.is_nested(field.type)))
    return pa.table(arrays, schema=schema)


def _sparse(values: dict[int, str], n: int) -> pa.Array:
    at: Ints = np.fromiter(sorted(values), dtype=np.int64, count=len(values))
    return scatter(pa.array([values[i] for i in at.tolist()], pa.string()), at, n)


_LEAF: Final[dict[str, Callable[[Any], Any]]] = {
    "string_value": decode_text,
    "array_value": lambda raw: plain_array(raw, 1),
    "kvlist_value": lambda raw: plain_kvlist(raw, 1),
    "double_value": float_or_name,
    "bytes_value": base64_text,
}


def _plain_leaf(leaf: dict[str, Any]) -> Any:
    """One element of a mixed list as plain Python."""
    for name, value in leaf.items():
        if value is not None:
            return _LEAF.get(name, lambda same: same)(value)
    return None
