"""Every report runs on the built store and on a store where nothing has happened yet."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from app.filters import EPOCH
from metrics.build.build import BuildConfig, build_once
from metrics.query import Warehouse
from sql import SQL_ROOT
from tests.app.traffic import N_REQUESTS, SLOW_EVERY

REPORTS = sorted(path.stem.removeprefix("rpt_") for path in (SQL_ROOT / "reports").glob("*.sql"))
ONE_ROW = {"freshness", "overview_headline"}


def parameters(report: str, **known: object) -> dict[str, object]:
    """What the report names, at values that leave nothing out."""
    values = {
        "since": EPOCH,
        "as_of": datetime.now(UTC).replace(tzinfo=None),
        "model": None,
        "slo_class": None,
        "tenant_id": None,
        "max_rows": 100,
        "request": "req001",
        "request_key": "default/req001",
    } | known
    text = (SQL_ROOT / "reports" / f"rpt_{report}.sql").read_text(encoding="utf-8")
    return {name: values[name] for name in set(re.findall(r"\$(\w+)", text))}


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("empty")
    build_once(BuildConfig(store=store))
    return store


@pytest.mark.parametrize("report", REPORTS)
def test_reports_give_rows_for_traffic_and_none_for_silence(
    report: str, built_store: Path, empty_store: Path
) -> None:
    assert not Warehouse(built_store).report(report, parameters(report)).is_empty()
    silent = Warehouse(empty_store).report(report, parameters(report))
    if report in ONE_ROW:
        assert silent.height == 1
    elif report != "demo_summary":
        assert silent.is_empty()


def test_headline_counts_every_request_once(built_store: Path) -> None:
    row = (
        Warehouse(built_store)
        .report("overview_headline", parameters("overview_headline"))
        .row(0, named=True)
    )
    assert row["n_requests"] == N_REQUESTS
    n_slow = len(range(0, N_REQUESTS, SLOW_EVERY))
    assert row["n_accepted"] == N_REQUESTS - n_slow - 2  # one failed, one was refused
    expected = 1e6 * float(row["bill_usd"]) / float(row["accepted_output_tokens"])
    assert row["usd_per_mtok_accepted_output"] == pytest.approx(expected)
    assert row["wilson_low"] < row["attainment_ratio"] < row["wilson_high"]


def test_waterfall_sums_to_the_bill(built_store: Path) -> None:
    warehouse = Warehouse(built_store)
    steps = warehouse.report("overview_waterfall", parameters("overview_waterfall"))
    headline = warehouse.report("overview_headline", parameters("overview_headline"))
    assert sum(steps["usd"], Decimal(0)) == headline["bill_usd"][0]
    assert headline["bill_usd"][0] > 0


def test_tenants_bills_and_the_unallocated_make_the_whole(built_store: Path) -> None:
    warehouse = Warehouse(built_store)

    def bill(tenant: str | None) -> tuple[Decimal, Decimal | None]:
        known = parameters("overview_headline", tenant_id=tenant)
        row = warehouse.report("overview_headline", known).row(0, named=True)
        return row["bill_usd"], row["unallocated_usd"]

    whole, unallocated = bill(None)
    assert unallocated is not None
    assert bill("acme")[0] + bill("default")[0] + unallocated == whole


def test_parts_of_time_to_first_token_add_up_to_it(built_store: Path) -> None:
    bands = Warehouse(built_store).report("overview_ttft_parts", parameters("overview_ttft_parts"))
    for band in bands.iter_rows(named=True):
        parts = ("queue_s", "prefill_s", "handoff_s", "decode_wait_s", "first_step_s", "other_s")
        assert sum(band[part] or 0.0 for part in parts) == pytest.approx(band["ttft_s"], abs=1e-6)


def test_a_requests_gaps_and_its_stall_are_all_there(built_store: Path) -> None:
    gaps = Warehouse(built_store).report("request_gaps", {"request_key": "default/req001"})
    assert gaps.height == 12  # 13 chunks
    assert gaps.filter("is_stall")["gap_index"].to_list() == [5]
    assert gaps["at_s"][-1] == pytest.approx(0.13 + gaps["gap_s"].sum(), abs=1e-3)
