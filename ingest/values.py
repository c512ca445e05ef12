"""The text form of attribute values, in one place, so that it can't depend on who decoded them.

Booleans are `true`/`false`; floats the shortest text that reads back equal; bytes are base64; lists
and key-value lists are JSON without spaces, where NaN and the infinities are strings as in OTLP's
own JSON.
"""

import base64
import json
import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, Message

from ingest.descriptor import ARRAY_VALUE, KVLIST_VALUE
from ingest.frames import Ints

MAX_DEPTH: Final = 32
TOO_DEEP: Final = "nested too deep"
UNREADABLE: Final = "unreadable"

Plain = str | bool | int | float | list[Any] | dict[str, Any] | None


def decode_text(raw: bytes | str) -> str:
    """`raw` as text; bytes that aren't UTF-8 become U+FFFD."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def base64_text(value: bytes) -> str:
    """`value` in base64."""
    return base64.b64encode(value).decode()


def to_json(value: Plain) -> str:
    """`value` as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def plain(value: Message, depth: int = 0) -> Plain:
    """An AnyValue (OTLP's own class or the trimmed one) as plain Python, bytes as base64."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    got: Any = getattr(value, kind)
    if kind == "string_value":
        return decode_text(got)
    if kind == "bytes_value":
        return base64_text(got)
    if kind == "double_value":
        return float_or_name(got)
    if kind == "array_value":
        return plain_array(got, depth)
    if kind == "kvlist_value":
        return plain_kvlist(got, depth)
    return got if isinstance(got, bool | int) else None


def plain_array(got: Message | bytes, depth: int = 0) -> Plain:
    """An ArrayValue, or its bytes, as a list."""
    parsed = _parsed(got, ARRAY_VALUE, depth)
    if isinstance(parsed, str):
        return parsed
    return [plain(element, depth + 1) for element in parsed.values]


def plain_kvlist(got: Message | bytes, depth: int = 0) -> Plain:
    """A KeyValueList, or its bytes, as a dict; of a key that comes twice the first stays."""
    parsed = _parsed(got, KVLIST_VALUE, depth)
    if isinstance(parsed, str):
        return parsed
    out: dict[str, Plain] = {}
    for pair in parsed.values:
        out.setdefault(decode_text(pair.key), plain(pair.value, depth + 1))
    return out


def float_or_name(value: float) -> float | str:
    """`value`, or the name OTLP/JSON has for what JSON can't write."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def scalar_text(attributes: pa.Table) -> pa.ChunkedArray:
    """Text of the values that are no lists and no bytes; NULL for the others."""
    return pc.coalesce(
        attributes["string"],
        attributes["bool"].cast(pa.string()),
        attributes["int"].cast(pa.string()),
        attributes["double"].cast(pa.string()),
    )


def text(attributes: pa.Table) -> pa.Array:
    """Text of every value of `attributes` (schema `ATTRIBUTES`); NULL where the value was empty."""
    out = pc.coalesce(scalar_text(attributes), attributes["json"]).combine_chunks()
    for name, write in (("ints", to_json), ("strings", to_json), ("bytes", base64_text)):
        column = attributes[name]
        if column.null_count == len(column):
            continue
        at: Ints = np.flatnonzero(column.is_valid().to_numpy())
        written = [write(value) for value in column.take(pa.array(at)).to_pylist()]
        mask = np.zeros(len(out), dtype=bool)
        mask[at] = True
        out = pc.replace_with_mask(out, pa.array(mask), pa.array(written, pa.string()))
    return out


def _parsed(got: Message | bytes, parser: type[Message], depth: int) -> Any:
    if depth >= MAX_DEPTH:
        return TOO_DEEP
    if not isinstance(got, bytes):
        return got
    try:
        return parser.FromString(got)
    except DecodeError:
        return UNREADABLE
