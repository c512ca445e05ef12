"""Long-form attributes, indexed by key: which rows have it, and its values fitted to a column.

Fitting is tolerant where emitters are sloppy (numbers and lists as text, whole numbers as floats)
and strict where a number would lie: NaN, infinities and negative sentinels fit no column and stay
among the left-over attributes.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.columns import where
from ingest.frames import Ints, Mask

_INT: Final = r"^\s*\d{1,18}\s*$"
_FLOAT: Final = r"^\s*\d+(\.\d*)?([eE][+-]?\d+)?\s*$"
_INT32: Final = np.iinfo(np.int32)


class AttributeIndex:
    """`attributes` (schema `ATTRIBUTES`) of `n_owners` rows; of a key that comes twice on one owner
    the first stays. `duplicates` has the owners of the others."""

    def __init__(self, attributes: pa.Table, n_owners: int) -> None:
        self.n_owners = n_owners
        owner = attributes["owner"].to_numpy().astype(np.int64)
        encoded = pc.fill_null(attributes["key"], "").combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        together = owner * (len(encoded.dictionary) + 1) + codes
        self.duplicates: Ints = owner[:0]
        if pc.count_distinct(pa.array(together)).as_py() < len(together):
            first = np.sort(np.unique(together, return_index=True)[1])
            self.duplicates = np.delete(owner, first)
            attributes, owner, codes = attributes.take(pa.array(first)), owner[first], codes[first]
        self.table = attributes.combine_chunks()
        self.columns: dict[str, pa.Array] = {
            name: self.table[name].combine_chunks() for name in self.table.column_names
        }
        self.owner: Ints = owner
        self._order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[self._order], np.arange(len(encoded.dictionary) + 1))
        self._slices = {
            key: slice(bounds[code], bounds[code + 1])
            for code, key in enumerate(encoded.dictionary.to_pylist())
        }

    def at(self, key: str) -> Ints:
        """Indices of the attributes named `key`."""
        found = self._slices.get(key)
        return self._order[:0] if found is None else self._order[found]

    def knows(self, key: str) -> bool:
        """Whether any owner has an attribute named `key`."""
        return key in self._slices

    def has(self, accepts: Callable[[str], bool]) -> Mask:
        """Which owners have an attribute whose key `accepts` accepts."""
        out: Mask = np.zeros(self.n_owners, dtype=bool)
        for key in self._slices:
            if accepts(key):
                out[self.owner[self.at(key)]] = True
        return out


class Promotion:
    """Fills columns from the attributes of one index and remembers which of them it used."""

    def __init__(self, index: AttributeIndex) -> None:
        self._index = index
        self.taken: Mask = np.zeros(index.table.num_rows, dtype=bool)
        self.clamped: Ints = np.empty(0, dtype=np.int64)
        """Owners of lists of which an element was cut to int32."""

    def fill(
        self, kind: pa.DataType, keys: Mapping[int, tuple[str, ...]], by: Ints
    ) -> pa.Array | None:
        """For every owner the value of the first of `keys[by[owner]]` that fits `kind`, else NULL.

        None when no owner has one at all.
        """
        present = {
            code: [name for name in names if self._index.knows(name)]
            for code, names in keys.items()
        }
        if not any(present.values()):
            return None
        slot: Ints = np.full(self._index.n_owners, -1, dtype=np.int64)
        parts: list[pa.Array] = []
        n_values = 0
        for code, names in present.items():
            for name in names:
                at = self._index.at(name)
                at = at[by[self._index.owner[at]] == code]
                if len(at) == 0:
                    continue
                values, is_clamped = _Fit(self._index.columns, at).to(kind)
                owner = self._index.owner[at]
                is_used = values.is_valid().to_numpy(zero_copy_only=False) & (slot[owner] < 0)
                slot[owner[is_used]] = n_values + np.flatnonzero(is_used)
                self.taken[at[is_used]] = True
                self.clamped = np.concatenate([self.clamped, owner[is_used & is_clamped]])
                parts.append(values)
                n_values += len(values)
        if not parts:
            return None
        return pa.concat_arrays(parts).take(pa.array(slot, mask=slot < 0))


class _Fit:
    """Some attributes' values, on their way to a column's type; NULL is "doesn't fit"."""

    def __init__(self, columns: Mapping[str, pa.Array], at: Ints) -> None:
        self._columns = columns
        self._at = pa.array(at)

    def to(self, kind: pa.DataType) -> tuple[pa.Array, Mask]:
        """(values, which of them were cut to fit)."""
        whole: Mask = np.zeros(len(self._at), dtype=bool)
        if kind == pa.list_(pa.int32()):
            return self._int32_lists()
        if kind == pa.list_(pa.string()):
            return self._text_lists(), whole
        if kind == pa.string():
            return self._text(), whole
        if kind == pa.bool_():
            return self._bool(), whole
        if kind == pa.float64():
            return self._float(), whole
        assert kind == pa.int64(), kind
        return self._int(), whole

    def _get(self, name: str) -> pa.Array:
        return self._columns[name].take(self._at)

    def _text(self) -> pa.Array:
        text = self._get("string")
        if text.null_count == 0:
            return where(pc.not_equal(text, ""), text)
        text = pc.coalesce(
            text,
            self._get("bool").cast(pa.string()),
            self._get("int").cast(pa.string()),
            self._get("double").cast(pa.string()),
        )
        return where(pc.not_equal(text, ""), text)

    def _bool(self) -> pa.Array:
        bools = self._get("bool")
        if bools.null_count == 0:
            return bools
        low = pc.utf8_lower(pc.utf8_trim_whitespace(self._get("string")))
        of_text = where(pc.is_in(low, pa.array(["true", "false"])), pc.equal(low, "true"))
        return pc.coalesce(bools, of_text)

    def _int(self) -> pa.Array:
        ints = self._get("int")
        if ints.null_count == 0:
            return _not_negative(ints)
        double = self._get("double")
        is_whole = pc.and_(pc.equal(double, pc.floor(double)), pc.less(pc.abs(double), 2.0**63))
        of_double = where(is_whole, double).cast(pa.int64())
        of_text = self._number_text(_INT).cast(pa.int64())
        return _not_negative(pc.coalesce(ints, of_double, of_text))

    def _float(self) -> pa.Array:
        out = self._get("double")
        if out.null_count:
            of_int = self._get("int").cast(pa.float64(), safe=False)
            of_text = self._number_text(_FLOAT).cast(pa.float64())
            out = pc.coalesce(out, of_int, of_text)
        out = _not_negative(out)
        return where(pc.is_finite(out), out)

    def _number_text(self, pattern: str) -> pa.Array:
        text = self._get("string")
        if text.null_count == len(text):
            return text
        return pc.utf8_trim_whitespace(where(pc.match_substring_regex(text, pattern), text))

    def _int32_lists(self) -> tuple[pa.Array, Mask]:
        lists = self._or_from_text("ints", pa.list_(pa.int64()), _is_int)
        flat = lists.flatten().to_numpy(zero_copy_only=False)
        is_over = (flat > _INT32.max) | (flat < _INT32.min)
        clamped: Mask = np.zeros(len(lists), dtype=bool)
        if is_over.any():
            sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
            clamped[np.repeat(np.arange(len(lists)), sizes)[is_over]] = True
            flat = np.clip(flat, _INT32.min, _INT32.max)
        return _with_values(lists, pa.array(flat, pa.int32())), clamped

    def _text_lists(self) -> pa.Array:
        lists = self._or_from_text("strings", pa.list_(pa.string()), lambda v: isinstance(v, str))
        if lists.null_count == 0:
            return lists
        scalars, numbers = self._text(), self._get("ints")
        out = [
            had
            if had is not None
            else [str(number) for number in many]
            if many is not None
            else None
            if one is None
            else [one]
            for had, many, one in zip(
                lists.to_pylist(), numbers.to_pylist(), scalars.to_pylist(), strict=True
            )
        ]
        return pa.array(out, pa.list_(pa.string()))

    def _or_from_text(
        self, column: str, kind: pa.DataType, fits: Callable[[Any], bool]
    ) -> pa.Array:
        """The lists of `column`; where there is none, a JSON list that came as text."""
        lists, text = self._get(column), self._get("string")
        if lists.null_count == 0 or text.null_count == len(text):
            return lists
        parsed = [
            _json_list(raw, fits) if had is None and raw is not None else had
            for had, raw in zip(lists.to_pylist(), text.to_pylist(), strict=True)
        ]
        return pa.array(parsed, kind)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _json_list(raw: str, fits: Callable[[Any], bool]) -> list[Any] | None:
    if not raw.lstrip().startswith("["):
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and all(fits(element) for element in value) else None


def _with_values(lists: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """`lists` with other elements, as many."""
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=pc.is_null(lists))


def _not_negative(values: pa.Array) -> pa.Array:
    return where(pc.greater_equal(values, 0), values)
