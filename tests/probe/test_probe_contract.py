"""The contract's page and the contract's names say the same, both ways."""

import re
from pathlib import Path

from serving_probe import contract
from serving_probe.sidecar import core

PAGE = (Path(__file__).parents[2] / "docs" / "span-contract.md").read_text(encoding="utf-8")


def section(title: str) -> dict[str, list[str]]:
    """First cell to the other cells of the tables under a heading."""
    text = re.split(r"^#+ .*\n", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[
        0
    ]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, flags=re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a name has one row"
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_every_attribute_and_metric_is_on_the_page_and_no_other() -> None:
    assert set(section("Attributes of the root span")) == {*contract.Gen, *contract.Root}
    children = "Attributes of the child spans and of a worker's resource"
    assert set(section(children)) == set(contract.Leg)
    assert set(section("Metrics")) == set(contract.Metric)
    assert set(section("Children")) == set(contract.Span)
    assert set(section("Outcomes of an attempt (`tokenmill.outcome`)")) == set(contract.Outcome)
    assert set(section("Roles of a worker (`tokenmill.worker.role`)")) == set(contract.Role)


def test_every_row_has_a_type_and_a_meaning() -> None:
    for title in ("Attributes of the root span", "Metrics"):
        for name, (kind, unit, _, meaning) in section(title).items():
            assert kind in (
                "string",
                "string[]",
                "int",
                "int[]",
                "double",
                "bool",
                "gauge",
                "counter",
            )
            assert meaning, name
            for suffix, wanted in (("_us", "us"), ("_s", "s"), ("_seconds", "s"), ("_bytes", "By")):
                if name.endswith(suffix):
                    assert unit == wanted, name


def test_scope_version_and_attribute_names_are_named() -> None:
    for word in (contract.SCOPE, contract.CONTRACT_VERSION, contract.PHASE, contract.BLOCK_STATE):
        assert f"`{word}`" in PAGE
    headers = {
        core.REQUEST_ID,
        core.IDEMPOTENCY_KEY,
        core.ATTEMPT,
        core.TENANT_ID,
        core.SLO_CLASS,
        core.INTENDED_START,
        core.CONVERSATION_ID,
    }
    assert headers == set(re.findall(r"`((?:X|Idempotency)-[A-Za-z-]+)`", PAGE))
