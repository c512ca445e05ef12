"""Figures of the odd cases: nothing, zero and unknown are drawn as what they are."""

from decimal import Decimal

import polars as pl

from app import charts

STEPS = {"step": pl.String, "usd": pl.Decimal(38, 9), "share_ratio": pl.Float64}


def test_a_bill_of_nothing_has_no_waterfall() -> None:
    assert charts.waterfall(pl.DataFrame([], schema=STEPS, orient="row")) is None
    rows = [("useful", Decimal(0), None)]
    assert charts.waterfall(pl.DataFrame(rows, schema=STEPS, orient="row")) is None


def test_a_waterfall_ends_in_the_bill_and_leaves_out_what_cost_nothing() -> None:
    rows = [
        ("useful", Decimal("0.3"), 0.75),
        ("slo", Decimal(0), 0.0),
        ("idle", Decimal("0.1"), 0.25),
    ]
    figure = charts.waterfall(pl.DataFrame(rows, schema=STEPS, orient="row"))
    assert figure is not None
    assert list(figure.data[0].x) == ["useful", "idle", "bill"]
    assert figure.layout.yaxis.title.text == "US dollars"


def test_unknown_parts_are_not_drawn() -> None:
    known = {column: [None if column == "handoff_s" else 0.1] for column in charts.PARTS}
    figure = charts.ttft_parts(pl.DataFrame({"band": ["all"], **known}))
    assert "handoff" not in [bar.name for bar in figure.data]
    assert len(figure.data) == len(charts.PARTS) - 1


def test_a_quantile_of_zero_is_named_but_has_no_place_on_a_logarithmic_axis() -> None:
    bins = pl.DataFrame({"low_s": [0.001], "high_s": [0.002], "n": [3]})
    figure = charts.distribution(bins, "n", {"p50": 0.0, "p95": 0.0015, "p99": None}, "gap", "gaps")
    names = {trace.name: trace.x for trace in figure.data}
    assert list(names["p50 0 ms"]) == [None, None]
    assert list(names["p95 1.5 ms"]) == [1.5, 1.5]
    assert len(names) == 3
    assert figure.layout.xaxis.type == "log"


def test_stalls_stand_apart_from_gaps() -> None:
    gaps = pl.DataFrame(
        {"gap_index": [1, 2, 3], "gap_s": [0.04, 0.5, 0.04], "is_stall": [False, True, False]}
    )
    gap, stall = charts.gap_bars(gaps).data
    assert list(stall.x) == [2]
    assert list(gap.y) == [40.0, 40.0]
