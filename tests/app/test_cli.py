"""The command line's good side: help with examples, and answers in three formats."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import typer

from app.cli import cli
from tests.app.running import tokenmill
from tests.app.traffic import N_REQUESTS

COMMANDS = {
    ("build",),
    ("collect",),
    ("dashboard",),
    ("demo",),
    ("probe",),
    ("replay",),
    ("sql",),
    ("stack", "up"),
    ("up",),
}


def commands(group: object, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Every leaf command's own help text."""
    found: dict[tuple[str, ...], str] = {}
    for name, command in getattr(group, "commands", {}).items():
        inner = commands(command, (*prefix, name))
        found |= inner or {(*prefix, name): command.help or ""}
    return found


def test_every_command_is_known_and_its_help_has_an_example() -> None:
    found = commands(typer.main.get_command(cli))
    assert found.keys() == COMMANDS
    for path, text in found.items():
        assert f"Example:\n  tokenmill {' '.join(path)}" in text


def test_help_and_version_need_no_store() -> None:
    assert "Commands:" in tokenmill().stdout
    assert tokenmill("--version").stdout[0].isdigit()


def test_sql_in_three_formats(built_store: Path) -> None:
    store = ("--store", str(built_store))
    question = (
        "select tenant_id, count(*) as n, sum(fully_loaded_usd) as usd, null as nothing"
        " from requests join request_costs using (request_key)"
        " group by tenant_id order by tenant_id"
    )
    rows = json.loads(
        tokenmill("sql", question, *store, "--format", "json").stdout, parse_float=Decimal
    )
    assert [row["tenant_id"] for row in rows] == ["acme", "default"]
    assert sum(row["n"] for row in rows) < N_REQUESTS + 1
    assert all(isinstance(row["usd"], Decimal) and row["nothing"] is None for row in rows)
    text = tokenmill("sql", question, *store, "--format", "csv").stdout
    assert [Decimal(row["usd"]) for row in csv.DictReader(io.StringIO(text))] == [
        row["usd"] for row in rows
    ]
    table = tokenmill("sql", question, *store).stdout
    assert "tenant_id" in table
    assert "2 rows" in table


def test_slices_and_the_unallocated_are_the_bill(built_store: Path) -> None:
    question = (
        "select bill_usd - unallocated_usd - (select sum(direct_usd + idle_usd + shared_usd)"
        " from cost_slices) as difference_usd from cost_per_mtok"
        " where grain = 'all' and model is null and slo_class is null"
    )
    answer = tokenmill("sql", question, "--store", str(built_store), "--format", "json").stdout
    assert json.loads(answer, parse_float=Decimal)[0]["difference_usd"] == 0
