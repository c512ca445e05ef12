"""The few verbs on Arrow columns that pyarrow has no word for. They know no names."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.frames import Ints
from ingest.schema import KEY_VALUES


def where(condition: pa.Array, values: pa.Array) -> pa.Array:
    """`values` where `condition` is true, else NULL."""
    return pc.if_else(condition, values, pa.scalar(None, values.type))


def not_empty(texts: pa.Array) -> pa.Array:
    """`texts`, NULL where they are empty."""
    return where(pc.not_equal(texts, ""), texts)


def in_range(values: pa.Array, low: int, high: int) -> pa.Array:
    """`values`, NULL where they are outside."""
    inside = pc.and_(
        pc.greater_equal(values, pa.scalar(low, values.type)),
        pc.less_equal(values, pa.scalar(high, values.type)),
    )
    return where(inside, values)


def scatter(values: pa.Array, at: Ints, n: int) -> pa.Array:
    """A column of `n`, NULL but for `values` at the indices `at`."""
    slot = np.full(n, -1, dtype=np.int64)
    slot[at] = np.arange(len(at))
    return values.take(pa.array(slot, mask=slot < 0))


def explode(lists: pa.ListArray) -> tuple[Any, Ints]:
    """(the lists' elements in order, for each the index of its list)."""
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.repeat(np.arange(len(lists), dtype=np.int64), sizes)


def valid_at(values: pa.Array) -> Ints:
    """Indices of what isn't NULL."""
    found: Ints = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return found


def key_values(keys: pa.Array, values: pa.Array, owner: Ints, n: int) -> pa.Array:
    """`list<struct<key, value>>` of `n` owners; `owner` is ascending."""
    offsets = np.searchsorted(owner, np.arange(n + 1))
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(KEY_VALUES.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs)
