"""Whose telemetry a row is, and which attribute fills which column: rules read from TOML files.

The rules are data, so that an operator can add an emitter by adding a file. This module knows the
segment's column names and no emitter's; `promote` applies what it reads.
"""

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ingest.attributes import AttributeIndex
from ingest.errors import DialectError
from ingest.frames import Frame, Ints, Mask, Signal
from ingest.schema import COMMON, LOG, SPAN

SHIPPED: Final = Path(__file__).parent / "dialects"
OTHER: Final = "other"
"""Dialect of a row that no rule matched."""

Keys = dict[str, tuple[str, ...]]
"""Column to the attribute keys that can fill it, the preferred first."""

_WHO: Final = {
    "tenant_id",
    "worker_id",
    "worker_role",
    "worker_type",
    "worker_pool",
    "n_accelerators",
    "report_interval_s",
}
_WIRE: Final = {name for name, _ in SPAN[: [n for n, _ in SPAN].index("operation_name")]}
_COLUMNS: Final = {
    "span": {name for name, _ in SPAN} - _WIRE | _WHO,
    "log": {name for name, _ in LOG} | _WHO,
    "resource": {name for name, _ in COMMON if name.startswith("service_")} | _WHO,
}


class Match(BaseModel):
    """Conditions that must all hold; one that isn't given is not asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scope: Annotated[str | None, Field(description="the scope's name, exactly")] = None
    scope_prefix: str | None = None
    attribute: Annotated[str | None, Field(description="an attribute with this key")] = None
    attribute_prefix: str | None = None
    resource_attribute_prefix: str | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("a [[match]] needs at least one condition")
        return self

    def rows(self, frame: Frame, attributes: AttributeIndex, resources: AttributeIndex) -> Mask:
        """Which of the frame's rows it matches."""
        out: Mask = np.ones(frame.rows.num_rows, dtype=bool)
        if self.scope is not None or self.scope_prefix is not None:
            out &= _of_text(frame.rows["scope_name"], self._is_scope)
        if self.attribute is not None:
            out &= attributes.has(lambda key: key == self.attribute)
        if self.attribute_prefix is not None:
            prefix = self.attribute_prefix
            out &= attributes.has(lambda key: key.startswith(prefix))
        if self.resource_attribute_prefix is not None:
            of_resource = self.resource_attribute_prefix
            has = resources.has(lambda key: key.startswith(of_resource))
            out &= has[frame.rows["resource"].to_numpy()]
        return out

    def _is_scope(self, name: str) -> bool:
        if self.scope is not None and name != self.scope:
            return False
        return self.scope_prefix is None or name.startswith(self.scope_prefix)


class Dialect(BaseModel):
    """One file of rules. Without `match` it is a base, whose fields apply to every dialect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, pattern=r"^[a-z][a-z0-9_]*$")]
    order: Annotated[int, Field(ge=0, description="lower is tried first")] = 100
    match: tuple[Match, ...] = ()
    span: Keys = {}
    log: Keys = {}
    resource: Keys = {}

    @model_validator(mode="after")
    def _knows_columns(self) -> Self:
        for table, known in _COLUMNS.items():
            if wrong := sorted(set(getattr(self, table)) - known):
                raise ValueError(f"[{table}] names no column of a segment: {', '.join(wrong)}")
        return self

    def keys(self, table: str) -> Keys:
        """Its fields for `span`, `log` or `resource`."""
        found: Keys = getattr(self, table)
        return found


class Dialects:
    """The rules in force, in the order they are tried."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        everyone = sorted(dialects, key=lambda d: (d.order, d.name))
        names = [dialect.name for dialect in everyone]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DialectError(f"two dialect files are named {', '.join(twice)}: rename one")
        self._bases = [dialect for dialect in everyone if not dialect.match]
        self._matching = [dialect for dialect in everyone if dialect.match]
        self.names = [*(dialect.name for dialect in self._matching), OTHER]
        self._keys = {
            (code, table): self._merged(code, table)
            for code in range(len(self.names))
            for table in _COLUMNS
        }

    @classmethod
    def load(cls, *extra: Path) -> Self:
        """The shipped rules and the operator's files; DialectError names the file that is wrong."""
        files = [*sorted(SHIPPED.glob("*.toml")), *extra]
        return cls(_read(path) for path in files)

    def detect(self, frame: Frame, attributes: AttributeIndex, resources: AttributeIndex) -> Ints:
        """For every row of `frame` the index in `names` of the first dialect that matches."""
        codes = np.full(frame.rows.num_rows, len(self._matching), dtype=np.int64)
        for code, dialect in reversed(list(enumerate(self._matching))):
            for match in dialect.match:
                codes[match.rows(frame, attributes, resources)] = code
        return codes

    def keys(self, code: int, table: Signal | str) -> Keys:
        """Fields of dialect `code`, the bases' keys after its own; a metric's point has none."""
        return self._keys.get((code, str(table)), {})

    def _merged(self, code: int, table: str) -> Keys:
        own = self._matching[code : code + 1]
        merged: Keys = {}
        for dialect in [*own, *self._bases]:
            for column, keys in dialect.keys(table).items():
                had = merged.get(column, ())
                merged[column] = had + tuple(key for key in keys if key not in had)
        return merged


def _read(path: Path) -> Dialect:
    try:
        return Dialect.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DialectError(f"can't read the dialect file {path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DialectError(f"dialect file {path}: {where}: {first['msg']}") from error


def _of_text(column: pa.ChunkedArray, accepts: Callable[[str], bool]) -> Mask:
    encoded = column.combine_chunks().dictionary_encode()
    accepted = [accepts(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(accepted)).to_numpy(zero_copy_only=False)
    found: Mask = np.array([*accepted, False], dtype=bool)[codes]
    return found
