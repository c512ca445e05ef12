"""The SQL models as data: what each file says about itself, and the order they run in.

Knows the files and their references; runs nothing.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import duckdb

from metrics.errors import ModelError
from sql import SQL_ROOT


class Unit(StrEnum):
    """What a model's rows are computed for, and replaced by."""

    SOURCE = "source"  # declares the columns of what the runner provides
    SEGMENT = "segment"  # rows of new segments, appended once
    REQUEST = "request"  # rows of the request keys that changed
    HOUR = "hour"  # rows of the hours that changed
    ALL = "all"  # small: computed whole at every build


FOLDERS = ("sources", "staging", "intermediate", "facts", "marts")
PUBLISHED_PREFIXES = ("fct_", "mart_")
_HEADER = re.compile(r"^-- (unit|key): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Model:
    """One SQL file: a relation's name, its SELECT, its unit and what it reads."""

    name: str
    select: str
    unit: Unit
    key: tuple[str, ...]  # of a segment model: columns that make a row the same row
    inputs: frozenset[str]

    @property
    def published_name(self) -> str | None:
        """The relation's name in the warehouse; None for what stays inside."""
        for prefix in PUBLISHED_PREFIXES:
            if self.name.startswith(prefix):
                return self.name.removeprefix(prefix)
        return None


@cache
def load_models(root: Path = SQL_ROOT) -> tuple[Model, ...]:
    """Every model, each after the ones it reads; raises `ModelError` on a cycle or bad header."""
    models = {
        path.stem: _read(path)
        for folder in FOLDERS
        for path in sorted((root / folder).glob("*.sql"))
    }
    graph = {model.name: model.inputs & models.keys() for model in models.values()}
    try:
        return tuple(models[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ModelError(f"SQL models read each other in a circle: {error.args[1]}.") from error


def load_macros(root: Path = SQL_ROOT) -> tuple[str, ...]:
    """The text of every macro file, in name order."""
    return tuple(
        path.read_text(encoding="utf-8") for path in sorted((root / "macros").glob("*.sql"))
    )


def load_runner_query(name: str) -> str:
    """The text of one of the runner's own questions, `sql/runner/<name>.sql`."""
    return (SQL_ROOT / "runner" / f"{name}.sql").read_text(encoding="utf-8")


def _read(path: Path) -> Model:
    text = path.read_text(encoding="utf-8")
    header = dict(_HEADER.findall(text))
    try:
        unit = Unit(header.get("unit", "").strip())
    except ValueError:
        raise ModelError(
            f"{path.name} needs a header line '-- unit: {' | '.join(Unit)}'."
        ) from None
    key = tuple(part.strip() for part in header.get("key", "").split(",") if part.strip())
    if (unit is Unit.SEGMENT) != bool(key):
        raise ModelError(f"{path.name}: '-- key:' goes with '-- unit: segment', and only there.")
    return Model(path.stem, text.rstrip().rstrip(";"), unit, key, _relations_in(path.name, text))


def _relations_in(name: str, select: str) -> frozenset[str]:
    """Relations a SELECT reads, its own CTEs apart."""
    with duckdb.connect() as con:
        [(text,)] = con.execute(
            "select json_serialize_sql($sql::varchar)", {"sql": select}
        ).fetchall()
    tree = json.loads(text)
    if tree.get("error"):
        raise ModelError(f"{name} is not one valid SELECT: {tree.get('error_message')}.")
    tables: set[str] = set()
    ctes: set[str] = set()
    stack: list[object] = [tree]
    while stack:
        match stack.pop():
            case dict() as node:
                if node.get("type") == "BASE_TABLE":
                    tables.add(str(node["table_name"]))
                ctes.update(entry["key"] for entry in node.get("cte_map", {}).get("map", []))
                stack.extend(node.values())
            case list() as nodes:
                stack.extend(nodes)
    return frozenset(tables - ctes)
