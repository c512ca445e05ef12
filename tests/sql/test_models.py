"""Every SQL model against its cases: rows in, rows out.

A case is a folder `tests/sql/<model>/<case>/`: `<relation>.json` holds the rows of an input (a
column that is left out is NULL), `expect.json` the rows that must come out. Only the columns that
the expectation names are compared; both sides are sorted by them.
"""

import json
import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest

from metrics.build.build import DATA
from metrics.build.models import Unit, load_models
from metrics.build.workspace import Workspace
from metrics.ledger.prices import load_price_cards
from metrics.ledger.slo import load_slo_classes

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/*/expect.json"))


@pytest.fixture(scope="module")
def empty() -> Iterator[Workspace]:
    """A workspace that every case finds empty."""
    work = Workspace(None, _empty_ledger())
    yield work
    work.close()


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_case(case: Path, empty: Workspace) -> None:
    model = next(model for model in empty.models if model.name == case.parent.name)
    inputs = [path for path in case.glob("*.json") if path.name != "expect.json"]
    expected = json.loads((case / "expect.json").read_text(encoding="utf-8"))
    columns = list(expected[0]) if expected else ["*"]
    try:
        for path in inputs:
            _fill(empty.con, path)
        empty.run(model)
        got = empty.con.sql(f"select {', '.join(columns)} from memory.unit.{model.name}")
        rows = [dict(zip(got.columns, map(_plain, row), strict=True)) for row in got.fetchall()]
    finally:
        for path in inputs:
            empty.con.execute(f"delete from store.{path.stem}")
        empty.clear_scratch()
    assert len(rows) == len(expected), rows
    for row, wanted in zip(sorted(rows, key=_order), sorted(expected, key=_order), strict=True):
        assert {name: _Near(row[name]) for name in wanted} == wanted


def test_every_mart_has_a_minimal_an_empty_and_a_boundary_case() -> None:
    marts = {model.name for model in load_models() if model.name.startswith(("fct_", "mart_"))}
    named = {
        name: {case.name.split("_")[0] for case in CASES if case.parent.name == name}
        for name in marts
    }
    missing = {
        name: sorted({"minimal", "empty", "boundary"} - cases)
        for name, cases in named.items()
        if not {"minimal", "empty", "boundary"} <= cases
    }
    assert not missing


def test_every_case_belongs_to_a_model() -> None:
    names = {model.name for model in load_models() if model.unit is not Unit.SOURCE}
    assert {case.parent.name for case in CASES} <= names


class _Near:
    """Equal to what a case expects: floats within 1e-9, relative or absolute."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return _is_near(self.value, other)

    def __repr__(self) -> str:
        return repr(self.value)

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up


def _is_near(got: object, wanted: object) -> bool:
    if isinstance(got, list) and isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(_is_near, got, wanted))
    if isinstance(got, float) and isinstance(wanted, int | float):
        return math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(got, Decimal) and isinstance(wanted, str | int):
        return got == Decimal(wanted)
    if isinstance(got, datetime) and isinstance(wanted, str):
        return got == datetime.fromisoformat(wanted)
    return type(got) is type(wanted) and got == wanted


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _order(row: dict[str, object]) -> str:
    """Rows in the same order on both sides, whatever spelling a value has."""
    return repr([_sortable(row[name]) for name in sorted(row)])


def _sortable(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return f"{float(value):.6e}"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).isoformat()
        except ValueError:
            return _number_text(value)
    if isinstance(value, list):
        return [_sortable(item) for item in value]
    return value


def _number_text(value: str) -> str:
    try:
        return f"{float(value):.6e}"
    except ValueError:
        return value


def _fill(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Insert a case's rows into an input, cast by the input's own types."""
    name = path.stem
    types = dict(
        con.sql(f"select column_name, column_type from (describe store.{name})").fetchall()
    )
    for row in json.loads(path.read_text(encoding="utf-8")):
        unknown = row.keys() - types.keys()
        assert not unknown, f"{path}: {name} has no column {sorted(unknown)}"
        # Text is cast as it stands (names, times, decimals); lists and structs come as JSON.
        is_json = {column: isinstance(value, list | dict) for column, value in row.items()}
        values = ", ".join(
            f"${column}{'::json' if is_json[column] else ''}::{types[column]}" for column in row
        )
        con.execute(
            f"insert into store.{name} ({', '.join(row)}) values ({values})",
            {c: json.dumps(value) if is_json[c] else value for c, value in row.items()},
        )


def _empty_ledger() -> dict[str, pl.DataFrame]:
    return {
        "price_cards": load_price_cards(DATA / "prices").clear(),
        "slo_classes": load_slo_classes(DATA / "slo" / "default.toml").clear(),
    }
