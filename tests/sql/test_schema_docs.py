"""`docs/schema.md` and `docs/metrics.md` against the SQL: what they name is what there is."""

import re
from pathlib import Path

import polars as pl
import pytest

from metrics.build.build import DATA
from metrics.build.models import load_models
from metrics.build.workspace import Workspace
from metrics.ledger.prices import load_price_cards
from metrics.ledger.slo import load_slo_classes

DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.compile(r"^## `?(\w+)`?$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
PLACE = re.compile(r"`(\w+)\.(\w+)`")
METRICS = [
    line.split("|")[1:-1]
    for line in (DOCS / "metrics.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|-", "| metric |"))
]
SECTIONS = {
    name: COLUMN.findall(body)
    for name, body in SECTION.findall((DOCS / "schema.md").read_text(encoding="utf-8"))
}


@pytest.fixture(scope="module")
def published() -> dict[str, list[str]]:
    ledger: dict[str, pl.DataFrame] = {
        "price_cards": load_price_cards(DATA / "prices"),
        "slo_classes": load_slo_classes(DATA / "slo" / "default.toml"),
    }
    work = Workspace(None, ledger)
    try:
        return {
            model.published_name: work.con.table(model.name).columns
            for model in load_models()
            if model.published_name is not None
        }
    finally:
        work.close()


@pytest.mark.parametrize("relation", SECTIONS)
def test_section_names_the_columns(relation: str, published: dict[str, list[str]]) -> None:
    assert SECTIONS[relation] == published.get(relation)


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row[0].strip())
def test_metric_is_where_it_says(row: list[str], published: dict[str, list[str]]) -> None:
    _, formula, _, where = row
    places = PLACE.findall(where)
    assert formula.strip()
    assert places
    assert [place for place in places if place[1] not in published.get(place[0], [])] == []


def test_relations_of_requests_are_documented() -> None:
    assert {
        "spans",
        "legs",
        "attempts",
        "requests",
        "handoffs",
        "token_gaps",
        "token_gaps_by_class",
        "data_quality",
    } <= SECTIONS.keys()
