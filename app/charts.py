"""Figures from report rows: every axis has a unit, unknown is not drawn, nothing is computed.

Milliseconds and percent are made here from the seconds and ratios of the reports.
"""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

HEIGHT = 330
TALL = 2 * 200 + 78  # beside two cards of 200
PARTS = {
    "queue_s": "queue",
    "prefill_s": "prefill",
    "handoff_s": "handoff",
    "decode_wait_s": "decode wait",
    "first_step_s": "first step",
    "other_s": "other",
}
GREEN, AMBER, RED, BLUE, VIOLET, GREY, CYAN = (
    "#0d9488",
    "#d97706",
    "#e11d48",
    "#3b82f6",
    "#8b5cf6",
    "#94a3b8",
    "#06b6d4",
)
PHASE_COLORS = {
    "queue": GREY,
    "prefill": BLUE,
    "handoff": VIOLET,
    "decode wait": AMBER,
    "first step": CYAN,
    "other": "#cbd5e1",
    "stream": GREEN,
    "prefill leg": BLUE,
    "decode leg": GREEN,
    "unified leg": CYAN,
}


def waterfall(steps: pl.DataFrame) -> go.Figure | None:
    """The bill, step by step; steps that cost nothing are left out. None: there is no bill."""
    drawn = steps.filter(pl.col("usd") != 0)
    if drawn.is_empty():
        return None
    names = [str(step).replace("_", " ") for step in drawn["step"]]
    usd = [float(value) for value in drawn["usd"]]
    figure = go.Figure(
        go.Waterfall(
            x=[*names, "bill"],
            y=[*usd, None],
            measure=["relative"] * len(usd) + ["total"],
            increasing={"marker": {"color": BLUE}},
            decreasing={"marker": {"color": GREEN}},
            totals={"marker": {"color": GREY}},
            connector={"line": {"width": 1, "color": GREY}},
            customdata=[*drawn["share_ratio"], 1.0],
            hovertemplate="%{x}: $%{delta:.4~g} (%{customdata:.1%} of the bill)<extra></extra>",
        )
    )
    return _laid(figure, x=None, y="US dollars", height=TALL, y_format="$,~g")


def attainment(classes: pl.DataFrame) -> go.Figure:
    """The share of requests that met their class, with its interval."""
    known = classes.filter(pl.col("attainment_ratio").is_not_null())
    met = known["attainment_ratio"] * 100
    figure = go.Figure(
        go.Bar(
            y=known["slo_class"],
            x=met,
            orientation="h",
            marker_color=GREEN,
            width=0.5,
            error_x={
                "type": "data",
                "symmetric": False,
                "array": known["wilson_high"] * 100 - met,
                "arrayminus": met - known["wilson_low"] * 100,
                "color": GREY,
            },
            customdata=known.select("n_accepted", "n_judged").rows(),
            hovertemplate="%{y}: %{x:.1f} % (%{customdata[0]} of %{customdata[1]})<extra></extra>",
        )
    )
    figure.update_xaxes(range=[0, 102])
    return _laid(figure, x="requests that met their SLO class (%)", y=None, height=200)


def reject_reasons(reasons: pl.DataFrame) -> go.Figure:
    """How many requests were not accepted, by the first reason that held."""
    figure = go.Figure(
        go.Bar(
            y=reasons["reject_reason"],
            x=reasons["n_requests"],
            orientation="h",
            marker_color=RED,
            width=0.5,
            hovertemplate="%{y}: %{x} requests<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(dtick=_count_tick(reasons["n_requests"]))
    return _laid(figure, x="requests", y=None, height=200)


def _count_tick(counts: pl.Series) -> int | None:
    """A tick a count where there are few, since nobody sent a fifth of a request."""
    most = counts.max()
    return 1 if isinstance(most, int) and most <= 10 else None


def ttft_parts(bands: pl.DataFrame) -> go.Figure:
    """Stacked parts of time to first token, from the fastest requests to the slowest."""
    figure = go.Figure()
    for column, name in PARTS.items():
        if bands[column].null_count() < bands.height:
            figure.add_bar(
                x=bands["band"],
                y=bands[column] * 1000,
                name=name,
                marker_color=PHASE_COLORS[name],
                hovertemplate="%{x}: %{y:,.1f} ms<extra>" + name + "</extra>",
            )
    figure.update_layout(barmode="stack")
    return _laid(figure, x="requests by time to first token", y="mean (ms)")


def distribution(
    bins: pl.DataFrame, counted: str, quantiles: dict[str, float | None], x: str, y: str
) -> go.Figure:
    """A histogram over a logarithmic axis of milliseconds, with quantiles as lines."""
    figure = go.Figure()
    xs: list[float] = []
    ys: list[int] = []
    for low_s, high_s, n in bins.select("low_s", "high_s", counted).iter_rows():
        xs += [low_s * 1000, low_s * 1000, high_s * 1000, high_s * 1000]
        ys += [0, n, n, 0]
    figure.add_scatter(
        x=xs, y=ys, mode="lines", fill="tozeroy", line={"width": 1, "color": BLUE}, name=y
    )
    for (name, value_s), color in zip(quantiles.items(), (GREEN, AMBER, RED), strict=False):
        if value_s is not None:
            at = value_s * 1000
            figure.add_scatter(
                x=[at, at] if at > 0 else [None, None],  # 0 has no place on a logarithmic axis
                y=[0, max(ys, default=0)],
                mode="lines",
                line={"width": 2, "dash": "dash", "color": color},
                name=f"{name} {at:,.0f} ms" if at >= 100 else f"{name} {at:.3g} ms",
            )
    figure.update_xaxes(type="log", dtick=_log_tick(xs))
    return _laid(figure, x=x, y=y, x_format=",~g")


def over_time(frame: pl.DataFrame, series: dict[str, str], y: str) -> go.Figure:
    """Lines over UTC time; `series` maps columns to names."""
    figure = go.Figure()
    for (column, name), color in zip(series.items(), (BLUE, GREEN, AMBER), strict=False):
        figure.add_scatter(
            x=frame["bucket_at"],
            y=frame[column],
            mode="lines",
            line={"color": color, "width": 2},
            name=name,
            hovertemplate="%{x|%H:%M:%S} UTC: %{y:,.2f}<extra>" + name + "</extra>",
        )
    figure.update_yaxes(rangemode="tozero")
    return _laid(figure, x="time (UTC)", y=y, y_format=",~g")


def timeline(bars: pl.DataFrame) -> go.Figure:
    """One request: phases and legs as bars, a lane a worker."""
    figure = go.Figure()
    for phase in bars["phase"].unique(maintain_order=True):
        own = bars.filter(pl.col("phase") == phase)
        figure.add_bar(
            y=own["lane"],
            x=own["duration_s"] * 1000,
            base=own["start_s"] * 1000,
            orientation="h",
            name=phase,
            width=0.6,
            marker_color=PHASE_COLORS.get(phase, RED),
            customdata=own["start_s"] * 1000,
            hovertemplate="%{y}: %{fullData.name} from %{customdata:,.1f} ms<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    figure.update_yaxes(autorange="reversed")
    lanes = bars["lane"].n_unique()
    return _laid(
        figure,
        x="since the request's arrival (ms)",
        y=None,
        height=150 + 45 * lanes,
        x_format=",~g",
    )


def gap_bars(gaps: pl.DataFrame) -> go.Figure:
    """Every gap of a stream in order; stalls stand out."""
    figure = go.Figure()
    for is_stall, name, color in ((False, "gap", BLUE), (True, "stall", RED)):
        own = gaps.filter(pl.col("is_stall") == is_stall)
        if own.height:
            figure.add_bar(
                x=own["gap_index"],
                y=own["gap_s"] * 1000,
                name=name,
                marker_color=color,
                hovertemplate="gap %{x}: %{y:,.1f} ms<extra></extra>",
            )
    return _laid(figure, x="gap (number in the stream)", y="gap (ms)", height=260)


def _log_tick(values: Sequence[float]) -> str | int:
    """Decades, with 2 and 5 between them where the axis is short."""
    return "D2" if values and max(values) / max(min(values), 1e-9) < 1000 else 1


def _laid(
    figure: go.Figure,
    *,
    x: str | None,
    y: str | None,
    height: int = HEIGHT,
    x_format: str | None = None,
    y_format: str | None = None,
) -> go.Figure:
    """The layout all figures share: titles on both axes, the legend above the plot."""
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
        showlegend=len(figure.data) > 1,
        uirevision="kept",
    )
    figure.update_xaxes(title=x, tickformat=x_format, automargin=True)
    figure.update_yaxes(title=y, tickformat=y_format, automargin=True)
    return figure
