"""A frame to segment rows: who sent it, which columns its attributes fill, what is refused.

Everything is kept that can be: a value no column took stays in `attributes`, a wrong optional id is
dropped alone. Only a span without a valid trace and span id is refused, because nothing could ever
name it.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.attributes import AttributeIndex, Promotion
from ingest.columns import in_range, key_values, not_empty, scatter, where
from ingest.dialects import Dialects, Keys
from ingest.frames import Frame, Ints, Mask, Signal
from ingest.schema import N_BUCKETS, SEGMENT
from ingest.values import text

FLAG: Final = "tokenmill.ingest.flag"
"""Left-over attribute of a row of which a number was changed: `gap_clamped`."""

REPAIR: Final = "tokenmill.ingest.repair"
"""Left-over attribute that says what was wrong and dropped, comma-separated."""

_MAX_INT64: Final = 2**63 - 1
_NO_RECORDED_VALUE: Final = 1
_MIX: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
"""Multipliers of MurmurHash3's 64-bit finaliser (A. Appleby)."""

_SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


@dataclass(frozen=True, slots=True)
class Batch:
    """Segment rows of one frame, and what each payload must be told."""

    table: pa.Table
    rejected: Ints  # rows refused, by payload
    repaired: Ints  # strings and ids repaired, duplicate keys dropped, by payload


def segment_rows(
    frame: Frame, dialects: Dialects, received_unix_ns: list[int], receiver: str
) -> Batch:
    """Rows (schema `SEGMENT`) of `frame`; `received_unix_ns` is by payload."""
    return _Rows(frame, dialects).batch(received_unix_ns, receiver)


class _Rows:
    def __init__(self, frame: Frame, dialects: Dialects) -> None:
        self.frame = frame
        self.dialects = dialects
        self.n = frame.rows.num_rows
        self.payload: Ints = frame.rows["payload"].to_numpy().astype(np.int64)
        self.resource: Ints = frame.rows["resource"].to_numpy().astype(np.int64)
        self.attributes = AttributeIndex(frame.attributes, self.n)
        self.resources = AttributeIndex(frame.resources, frame.n_resources)
        self.dialect = dialects.detect(frame, self.attributes, self.resources)
        self.repaired = frame.repaired.copy()
        self.clamped: Ints = np.empty(0, dtype=np.int64)
        self.dropped: list[tuple[Ints, str]] = []
        self.columns: dict[str, Any] = {}

    def batch(self, received_unix_ns: list[int], receiver: str) -> Batch:
        np.add.at(self.repaired, self.payload[self.attributes.duplicates], 1)
        fill = {
            Signal.SPAN: self._span,
            Signal.METRIC: self._metric,
            Signal.LOG: self._log,
        }[self.frame.signal]
        keep = fill()
        promotion = self._promote()
        self._from_resource()
        left = self._left_over(promotion)
        self.columns["point_attributes" if self._is(Signal.METRIC) else "attributes"] = left
        names = pa.array(self.dialects.names, pa.string())
        self.columns |= {
            "signal": pa.repeat(pa.scalar(str(self.frame.signal)), self.n),
            "received_unix_ns": pa.array(np.array(received_unix_ns, np.int64)[self.payload]),
            "receiver": pa.repeat(pa.scalar(receiver), self.n),
            "dialect": names.take(pa.array(self.dialect)),
            "scope_name": not_empty(self._row("scope_name")),
        }
        arrays = [
            self._cast(self.columns[field.name], field.type)
            if field.name in self.columns
            else pa.nulls(self.n, field.type)
            for field in SEGMENT
        ]
        table = pa.table(arrays, schema=SEGMENT)
        n_payloads = len(self.repaired)
        rejected = np.bincount(self.payload[~keep], minlength=n_payloads).astype(np.int64)
        return Batch(table if keep.all() else table.filter(pa.array(keep)), rejected, self.repaired)

    def _is(self, signal: Signal) -> bool:
        return self.frame.signal is signal

    def _row(self, name: str) -> pa.Array:
        return self.frame.rows[name].combine_chunks()

    @staticmethod
    def _cast(column: Any, kind: pa.DataType) -> pa.Array:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return array if array.type == kind else array.cast(kind)

    def _span(self) -> Mask:
        trace, span = self._row("trace_id"), self._row("span_id")
        keep = _is_id(trace, 16) & _is_id(span, 8)
        self.columns |= {
            "bucket": _bucket(trace, keep),
            "trace_id": trace,
            "span_id": span,
            "parent_span_id": self._optional_id("parent_span_id", 8),
            "trace_state": not_empty(self._row("trace_state")),
            "name": self._row("name"),
            "kind": in_range(self._row("kind"), 0, 5),
            "start_unix_ns": self._time("start_unix_ns"),
            "end_unix_ns": self._time("end_unix_ns"),
            # A status that wasn't sent is, by the protocol, "unset".
            "status_code": in_range(self._row("status_code").fill_null(0), 0, 2),
            "status_message": not_empty(self._row("status_message")),
            "dropped_attributes": self._row("dropped_attributes"),
            "dropped_events": self._row("dropped_events"),
        }
        return keep

    def _metric(self) -> Mask:
        temporality = in_range(self._row("temporality"), 1, 2)
        has_value = pc.equal(pc.bit_wise_and(self._row("flags"), _NO_RECORDED_VALUE), 0)
        value, count = self._row("point_value"), self._row("point_count")
        self.columns |= {
            "metric_name": self._row("metric_name"),
            "metric_unit": not_empty(self._row("metric_unit")),
            "metric_kind": self._row("metric_kind"),
            "metric_is_cumulative": pc.equal(temporality, 2),
            "metric_is_monotonic": self._row("metric_is_monotonic"),
            "point_start_unix_ns": self._time("start_unix_ns"),
            "point_unix_ns": self._time("unix_ns"),
            "point_value": where(has_value, value),
            "point_count": in_range(where(has_value, count), 0, _MAX_INT64),
            "bucket_bounds": self._row("bucket_bounds"),
            "bucket_counts": _int64_lists(self._row("bucket_counts")),
        }
        return np.ones(self.n, dtype=bool)

    def _log(self) -> Mask:
        number = self._row("severity_number")
        level = pc.divide(pc.subtract(in_range(number, 1, 24), 1), 4)
        bodies = AttributeIndex(self.frame.bodies, self.n)
        self.columns |= {
            "trace_id": self._optional_id("trace_id", 16),
            "span_id": self._optional_id("span_id", 8),
            "event_name": not_empty(self._row("event_name")),
            "log_unix_ns": pc.coalesce(self._time("unix_ns"), self._time("observed_unix_ns")),
            "severity": pc.coalesce(
                not_empty(self._row("severity_text")), pa.array(_SEVERITIES).take(level)
            ),
            "body": scatter(text(bodies.table), bodies.owner, self.n),
        }
        return np.ones(self.n, dtype=bool)

    def _promote(self) -> Promotion:
        """Fill columns from the rows' own attributes; what a row says of itself stays."""
        promotion = Promotion(self.attributes)
        self._fill(promotion, self.frame.signal, self.dialect, np.arange(self.n, dtype=np.int64))
        self.clamped = np.unique(promotion.clamped)
        return promotion

    def _from_resource(self) -> None:
        """Fill, where the rows say nothing themselves, from what their resource says."""
        self.columns["resource"] = self._resource_lists().take(pa.array(self.resource))
        # A resource whose rows are of several dialects is read once for each.
        for code in np.unique(self.dialect).tolist():
            by = np.full(self.frame.n_resources, code, dtype=np.int64)
            of_rows = pa.array(np.where(self.dialect == code, self.resource, -1))
            of_rows = pc.if_else(pc.less(of_rows, 0), pa.scalar(None, pa.int64()), of_rows)
            self._fill(Promotion(self.resources), "resource", by, of_rows, only=code)

    def _fill(
        self,
        promotion: Promotion,
        table: Signal | str,
        by: Ints,
        take: Any,
        only: int | None = None,
    ) -> None:
        present = np.unique(self.dialect).tolist() if only is None else [only]
        by_code: dict[int, Keys] = {code: self.dialects.keys(code, table) for code in present}
        for column in dict.fromkeys(name for keys in by_code.values() for name in keys):
            keys = {code: found[column] for code, found in by_code.items() if column in found}
            values = promotion.fill(SEGMENT.field(column).type, keys, by)
            if values is None:
                continue
            values = values.take(pa.array(take))
            had = self.columns.get(column)
            self.columns[column] = values if had is None else pc.coalesce(had, values)

    def _left_over(self, promotion: Promotion) -> pa.Array:
        at = np.flatnonzero(~promotion.taken)
        table = self.attributes.table.take(pa.array(at))
        owner = self.attributes.owner[at]
        keys, values = table["key"].combine_chunks(), text(table)
        notes = self._notes()
        if notes:
            owner = np.concatenate([owner, np.array([note[0] for note in notes], np.int64)])
            order = np.argsort(owner, kind="stable")
            owner = owner[order]
            keys = _append(keys, [note[1] for note in notes]).take(pa.array(order))
            values = _append(values, [note[2] for note in notes]).take(pa.array(order))
        return key_values(keys, values, owner, self.n)

    def _notes(self) -> list[tuple[int, str, str]]:
        """(owner, key, value) of the left-over attributes that ingest itself adds."""
        dropped: dict[int, list[str]] = {}
        for owners, what in self.dropped:
            for owner in owners.tolist():
                dropped.setdefault(owner, []).append(what)
        clamped = [(owner, FLAG, "gap_clamped") for owner in self.clamped.tolist()]
        return clamped + [(owner, REPAIR, ",".join(what)) for owner, what in dropped.items()]

    def _resource_lists(self) -> pa.Array:
        table = self.resources.table
        keys = table["key"].combine_chunks()
        return key_values(keys, text(table), self.resources.owner, self.frame.n_resources)

    def _time(self, name: str) -> pa.Array:
        """Unix ns; 0 is OTLP's "unknown", and what no int64 holds is unknown and flagged."""
        raw = self._row(name)
        over = pc.greater(raw, pa.scalar(_MAX_INT64, pa.uint64())).to_numpy(zero_copy_only=False)
        if over.any():
            self.dropped.append((np.flatnonzero(over), "time_out_of_range"))
        return in_range(raw, 1, _MAX_INT64).cast(pa.int64())

    def _optional_id(self, name: str, size: int) -> pa.Array:
        """An id that may be missing; a wrong one is dropped, flagged and counted as repaired."""
        raw = self._row(name)
        good = _is_id(raw, size)
        length = pc.binary_length(raw).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((length != 0) & (length != size))
        if len(wrong):
            self.dropped.append((wrong, f"{name}_dropped"))
            np.add.at(self.repaired, self.payload[wrong], 1)
        return where(pa.array(good), raw)


def _is_id(ids: pa.Array, size: int) -> Mask:
    """Which of `ids` have `size` bytes that aren't all zero."""
    has_size = pc.equal(pc.binary_length(ids), size)
    is_good = pc.and_(has_size, pc.not_equal(ids, pa.scalar(bytes(size), pa.binary())))
    found: Mask = is_good.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _bucket(trace_ids: pa.Array, is_valid: Mask) -> pa.Array:
    """Bucket of each trace, from all its bits: some emitters leave the upper half zero."""
    good = trace_ids.filter(pa.array(is_valid)).cast(pa.binary(16))
    words = np.frombuffer(b"".join(good.to_pylist()), dtype="<u8").reshape(-1, 2)
    mixed = words[:, 0] ^ words[:, 1]
    for factor in _MIX:
        mixed = (mixed ^ (mixed >> np.uint64(33))) * factor
    mixed ^= mixed >> np.uint64(33)
    out = np.zeros(len(trace_ids), dtype=np.int16)
    out[is_valid] = mixed % np.uint64(N_BUCKETS)
    return pa.array(out)


def _append(array: pa.Array, more: list[str]) -> pa.Array:
    return pa.concat_arrays([array, pa.array(more, pa.string())])


def _int64_lists(lists: pa.ListArray) -> pa.Array:
    """Lists of uint64 as int64; NULL where one of the numbers doesn't fit."""
    try:
        return lists.cast(pa.list_(pa.int64()))
    except pa.ArrowInvalid:
        fitting = [
            None if many is None or any(one > _MAX_INT64 for one in many) else many
            for many in lists.to_pylist()
        ]
        return pa.array(fitting, pa.list_(pa.int64()))
