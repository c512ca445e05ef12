"""What decoding a batch of OTLP bodies gives: flat Arrow tables, before any name has a meaning.

Every decoder (`wire`, `wire_upb`) fills these same schemas, so that one can stand in for the other
and prove it. Which attribute becomes which column is `dialects`' business.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Signal(StrEnum):
    """The three signals, named as in a segment's `signal` column."""

    SPAN = "span"
    METRIC = "metric"
    LOG = "log"


ATTRIBUTES: Final = pa.schema(
    [
        ("owner", pa.int32()),  # index of the row, or of the resource, it belongs to; ascending
        ("key", pa.string()),
        # At most one of these is set (an empty list sets both lists); none: the value was empty.
        ("string", pa.string()),
        ("bool", pa.bool_()),
        ("int", pa.int64()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("ints", pa.list_(pa.int64())),
        ("strings", pa.list_(pa.string())),
        ("json", pa.string()),  # mixed or nested lists, key-value lists
    ]
)
"""Attributes in long form, a row a key-value."""

_ROW = [("payload", pa.int32()), ("resource", pa.int32()), ("scope_name", pa.string())]

SPAN_ROWS: Final = pa.schema(
    [
        *_ROW,
        ("trace_id", pa.binary()),
        ("span_id", pa.binary()),
        ("parent_span_id", pa.binary()),
        ("trace_state", pa.string()),
        ("name", pa.string()),
        ("kind", pa.int32()),
        ("start_unix_ns", pa.uint64()),
        ("end_unix_ns", pa.uint64()),
        ("status_code", pa.int32()),
        ("status_message", pa.string()),
        ("dropped_attributes", pa.int64()),
        ("dropped_events", pa.int64()),
    ]
)

METRIC_ROWS: Final = pa.schema(
    [
        *_ROW,
        ("metric_name", pa.string()),
        ("metric_unit", pa.string()),
        ("metric_kind", pa.string()),
        ("temporality", pa.int32()),  # OTLP enum: 1 delta, 2 cumulative; NULL: has none
        ("metric_is_monotonic", pa.bool_()),
        ("start_unix_ns", pa.uint64()),
        ("unix_ns", pa.uint64()),
        ("flags", pa.int64()),  # bit 0: no recorded value
        ("point_value", pa.float64()),
        ("point_count", pa.uint64()),
        ("bucket_bounds", pa.list_(pa.float64())),
        ("bucket_counts", pa.list_(pa.uint64())),
    ]
)

LOG_ROWS: Final = pa.schema(
    [
        *_ROW,
        ("trace_id", pa.binary()),
        ("span_id", pa.binary()),
        ("event_name", pa.string()),
        ("unix_ns", pa.uint64()),
        ("observed_unix_ns", pa.uint64()),
        ("severity_text", pa.string()),
        ("severity_number", pa.int32()),
    ]
)

ROWS: Final = {Signal.SPAN: SPAN_ROWS, Signal.METRIC: METRIC_ROWS, Signal.LOG: LOG_ROWS}


@dataclass(frozen=True, slots=True)
class Frame:
    """One signal's decoded bodies.

    `rows`: a row a span, point or record; `attributes.owner` counts them. `resources.owner` is the
    `resource` of a row. `bodies` (logs only) has the records' bodies, key "". `repaired[i]` counts
    the strings of payload i that were not UTF-8 and had bytes replaced.
    """

    signal: Signal
    rows: pa.Table
    attributes: pa.Table
    resources: pa.Table
    bodies: pa.Table
    repaired: Ints
    n_resources: int
