"""The bill and its parts on generated fleets: nothing is lost or made up, to the nano-dollar."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.build.workspace import Workspace
from metrics.ledger.prices import HOUR_NS
from metrics.ledger.prices import SCHEMA as CARD_SCHEMA
from metrics.ledger.slo import SCHEMA as SLO_SCHEMA

FIRST_HOUR = datetime(2026, 1, 1, 10, tzinfo=UTC)
START_NS = int(FIRST_HOUR.timestamp()) * 1_000_000_000
N_HOURS = 4
POOLS = {"p0": "prefill", "p1": "prefill", "d0": "decode", "u0": None, "x0": "decode"}
TYPES = {"p0": "cheap", "p1": "dear", "d0": "cheap", "u0": "dear", "x0": "unpriced"}
COST_MODELS = [
    "int_worker_intervals",
    "int_cache_byte_hours",
    "fct_cost_lines",
    "int_cost_leg_hours",
    "int_cost_sweep",
    "int_cost_units",
    "int_cost_direct",
    "int_cost_pots",
    "fct_cost_slices",
]


@dataclass(frozen=True)
class Fleet:
    """What a generated fleet did and costs."""

    points: list[dict[str, object]]
    legs: list[dict[str, object]]
    cards: list[dict[str, Any]]


offsets = st.integers(0, N_HOURS * HOUR_NS - 1)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Workers, legs that may overlap, lack a worker, a pool or a measure, and odd prices."""
    points: list[dict[str, object]] = []
    for worker in draw(st.sets(st.sampled_from(sorted(POOLS)), min_size=1)):
        for offset in draw(st.lists(offsets, min_size=1, max_size=6)):
            points.append(
                {
                    "worker_id": worker,
                    "worker_type": TYPES[worker],
                    "worker_pool": POOLS[worker],
                    "n_accelerators": 3 if worker == "p1" else 1,
                    "report_interval_s": draw(st.sampled_from([5.0, 700.0])),
                    "metric_name": "tokenmill.kv.cached_bytes",
                    "point_unix_ns": START_NS + offset,
                    "point_value": float(draw(st.integers(0, 10**11))),
                }
            )
    legs: list[dict[str, object]] = []
    for index in range(draw(st.integers(0, 12))):
        where = draw(st.sampled_from([*POOLS, "pool only", "nowhere"]))
        start = START_NS + draw(offsets)
        end = start + draw(st.sampled_from([0, 1, 7, HOUR_NS // 3, HOUR_NS, 2 * HOUR_NS + 1]))
        measured = draw(st.one_of(st.none(), st.floats(0, 4000, allow_nan=False)))
        legs.append(
            {
                "request_key": f"t/{index // 2}",
                "request_id": f"{index // 2}",
                "attempt": 1,
                "leg_index": index % 2,
                "role": "decode",
                "worker_id": where if where in POOLS else None,
                "worker_type": TYPES.get(where),
                "pool": POOLS.get(where, "prefill" if where == "pool only" else None),
                "started_unix_ns": start,
                "ended_unix_ns": end,
                "device_seconds": measured,
            }
        )
    return Fleet(points, legs, _cards(draw))


def _cards(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Two worker types, one repriced midway, one with every line there is, and the fleet's."""
    nano = st.integers(0, 10**11)
    change_ns = START_NS + draw(offsets)
    rows = [
        ("cheap-old", "cheap", "capacity", "rental", "accelerator", HOUR_NS, None, change_ns),
        ("cheap-new", "cheap", "capacity", "rental", "accelerator", HOUR_NS, change_ns, None),
        ("dear", "dear", "capacity", "capital", "accelerator", 7919 * HOUR_NS, None, None),
        ("dear", "dear", "capacity", "energy", "accelerator", HOUR_NS, None, None),
        ("dear", "dear", "host", "host", "worker", HOUR_NS, None, None),
        ("dear", "dear", "network", "network", "worker", HOUR_NS, None, None),
        ("dear", "dear", "cache_storage", "memory", "gigabyte", HOUR_NS, None, None),
        ("fleet", None, "operations", "operations", "fleet", 730 * HOUR_NS, None, None),
    ]
    names = ("card_id", "worker_type", "line", "component", "basis", "period_ns")
    return [
        dict(
            zip(names, row[:6], strict=True),
            nano_usd=draw(nano),
            valid_from_unix_ns=row[6],
            valid_to_unix_ns=row[7],
        )
        for row in rows
    ]


@pytest.fixture(scope="module")
def work() -> Iterator[Workspace]:
    ledger = {
        "price_cards": pl.DataFrame(schema=CARD_SCHEMA),
        "slo_classes": pl.DataFrame(schema=SLO_SCHEMA),
    }
    workspace = Workspace(None, ledger)
    yield workspace
    workspace.close()


def lay(work: Workspace, fleet: Fleet) -> None:
    """Put a fleet's rows in place of what was there."""
    rows = {"stg_worker_points": fleet.points, "fct_legs": fleet.legs, "price_cards": fleet.cards}
    for name, entries in rows.items():
        work.con.execute(f"delete from store.{name}")
        if entries:
            frame = pl.DataFrame(entries, infer_schema_length=None)
            work.con.register("rows", frame)
            work.con.execute(f"insert into store.{name} by name from rows")
            work.con.unregister("rows")


def compute(work: Workspace, hours: list[datetime]) -> None:
    """Run the cost models for `hours`, into scratch."""
    work.clear_scratch()
    work.con.execute(
        "create table memory.unit.dirty_hours as select unnest($hours::timestamp[]) as hour_at",
        {"hours": [hour.replace(tzinfo=None) for hour in hours]},
    )
    by_name = {model.name: model for model in work.models}
    for name in COST_MODELS:
        work.run(by_name[name])


def all_hours() -> list[datetime]:
    return [FIRST_HOUR + timedelta(hours=index) for index in range(N_HOURS + 5)]


def by_hour(work: Workspace, query: str) -> dict[datetime, int]:
    return {hour: int(nano) for hour, nano in work.con.sql(query).fetchall() if nano}


given_fleet = given(fleet=fleets())
quick = settings(max_examples=20, deadline=None)


@given_fleet
@quick
def test_slices_and_unallocated_are_the_bill_in_every_hour(work: Workspace, fleet: Fleet) -> None:
    lay(work, fleet)
    compute(work, all_hours())
    bill = by_hour(work, "select hour_at, sum(nano_usd) from fct_cost_lines group by hour_at")
    parts: dict[datetime, int] = defaultdict(int)
    for query in (
        "select hour_at, sum(direct_nano + idle_nano + shared_nano) from fct_cost_slices"
        " group by hour_at",
        "select hour_at, sum(nano_usd) from int_cost_pots where is_unallocated group by hour_at",
    ):
        for hour, nano in by_hour(work, query).items():
            parts[hour] += nano
    assert {hour: nano for hour, nano in parts.items() if nano} == bill
    negative = (
        "select count(*) from fct_cost_slices where least(direct_nano, idle_nano, shared_nano) < 0"
    )
    assert work.con.sql(negative).fetchall() == [(0,)]


@given_fleet
@settings(quick, max_examples=5)
def test_hours_computed_one_by_one_are_the_hours_computed_together(
    work: Workspace, fleet: Fleet
) -> None:
    lay(work, fleet)
    compute(work, all_hours())
    together = work.con.sql("from fct_cost_slices order by all").fetchall()
    alone = []
    for hour in all_hours():
        compute(work, [hour])
        alone += work.con.sql("from fct_cost_slices").fetchall()
    assert sorted(alone, key=repr) == sorted(together, key=repr)


@given_fleet
@quick
def test_a_workers_hours_telescope_to_its_whole_life(work: Workspace, fleet: Fleet) -> None:
    lay(work, fleet)
    compute(work, all_hours())
    billed = {
        (worker, card, component): int(nano)
        for worker, card, component, nano in work.con.sql(
            "select worker_id, price_card, component, sum(nano_usd) from fct_cost_lines"
            " where is_priced and line in ('capacity', 'host') group by all"
        ).fetchall()
    }
    owed: dict[tuple[str, str, str], int] = defaultdict(int)
    for worker, start, end in whole_intervals(fleet):
        for card in fleet.cards:
            if card["worker_type"] != TYPES[worker] or card["line"] not in ("capacity", "host"):
                continue
            since = max(start, card["valid_from_unix_ns"] or start)
            until = min(end, card["valid_to_unix_ns"] or end)
            if since < until:
                n = 3 if worker == "p1" and card["basis"] == "accelerator" else 1
                key = (worker, str(card["card_id"]), str(card["component"]))
                owed[key] += card["nano_usd"] * n * (until - since) // card["period_ns"]
    # A worker known only from its legs says no accelerator count, so only points make it payable.
    counted = {str(point["worker_id"]) for point in fleet.points}
    owed = {key: nano for key, nano in owed.items() if key[0] in counted or key[2] == "host"}
    assert billed == owed


def whole_intervals(fleet: Fleet) -> list[tuple[str, int, int]]:
    """Up intervals worked out the plain way: sort the signs of life and close over short gaps."""
    signs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    reports: dict[str, tuple[int, float]] = {}
    for point in fleet.points:
        worker, at = str(point["worker_id"]), int(str(point["point_unix_ns"]))
        signs[worker].append((at, at))
        reports[worker] = max(
            reports.get(worker, (0, 0.0)), (at, float(str(point["report_interval_s"])))
        )
    for leg in fleet.legs:
        if leg["worker_id"] is not None:
            span = (int(str(leg["started_unix_ns"])), int(str(leg["ended_unix_ns"])))
            signs[str(leg["worker_id"])].append(span)
    intervals = []
    for worker, spans in signs.items():
        interval_ns = int(reports.get(worker, (0, 60.0))[1] * 1e9)
        start, last = min(spans)
        for since, until in sorted(spans):
            if since - last >= 3 * interval_ns:
                intervals.append((worker, start, last + interval_ns))
                start = since
            last = max(last, until)
        intervals.append((worker, start, last + interval_ns))
    return intervals


@given_fleet
@quick
def test_each_leg_pays_its_share_of_its_units_busy_money(work: Workspace, fleet: Fleet) -> None:
    """Against exact fractions: largest remainder is never a nano-dollar off the true share."""
    lay(work, fleet)
    compute(work, all_hours())
    units = work.con.sql(
        "select hour_at, cost_unit, allocation_basis, direct_nano from int_cost_units"
        " where allocation_basis is not null and direct_nano is not null"
    ).fetchall()
    for hour, unit, basis, direct in units:
        legs = work.con.sql(
            "select legs.request_key, legs.leg_index, from_ns, to_ns, measured_ns,"
            " slices.direct_nano from int_cost_leg_hours as legs"
            " join fct_cost_slices as slices"
            " using (hour_at, request_key, attempt, leg_index)"
            " where hour_at = $hour and cost_unit = $unit",
            params={"hour": hour, "unit": unit},
        ).fetchall()
        if basis == "measured":
            weights = [Fraction(int(leg[4])) for leg in legs]
        else:
            weights = swept([(leg[2], leg[3]) for leg in legs])
        assert sum(leg[5] for leg in legs) == direct
        for leg, weight in zip(legs, weights, strict=True):
            true_share = Fraction(int(direct)) * weight / sum(weights) if any(weights) else 0
            assert abs(leg[5] - true_share) <= 1 + Fraction(1, 1000)


def swept(spans: list[tuple[int, int]]) -> list[Fraction]:
    """Each span's time, an instant that k spans share counting 1/k."""
    edges = sorted({edge for span in spans for edge in span})
    shares = [Fraction(0)] * len(spans)
    for since, until in pairwise(edges):
        running = [i for i, (start, end) in enumerate(spans) if start <= since and until <= end]
        for index in running:
            shares[index] += Fraction(until - since, len(running))
    return shares
