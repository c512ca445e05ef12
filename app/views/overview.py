"""The overview: what a million accepted tokens cost, where the money and the latency go, live."""

from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import charts
from app.filters import Filters
from app.format import UNKNOWN, clock, count, percent, usd
from app.reader import Instant, look, rows, shown_errors

FILTERS: Filters = st.session_state["filters"]
CHART_CONFIG = {"displayModeBar": False}


def chart(title: str, help_: str, figure: go.Figure | None, alt: str) -> None:
    """A card with one figure, or with the reason that there is none."""
    with st.container(border=True):
        st.markdown(f"**{title}**", help=help_)
        if figure is None:
            st.caption("No data in this window.")
        else:
            st.plotly_chart(figure, key=title, config=CHART_CONFIG, alt=alt)


def side_by_side() -> tuple[DeltaGenerator, DeltaGenerator]:
    """Two places for cards, one under the other where the window is narrow."""
    with st.grid(2, min_column_width=430):
        return st.container(), st.container()


def freshness(instant: Instant) -> None:
    """How far the numbers reach, in words that stay the same."""
    newest = rows("freshness", instant).row(0, named=True)["newest_ended_at"]
    st.caption(f"as of {clock(instant.as_of)} UTC · newest request ended {clock(newest)} UTC")
    if instant.is_stale:
        st.warning(
            f"Stale: nothing new was published since {clock(instant.published_at)} UTC. No traffic,"
            " or the collector or the builder has stopped.",
            icon=":material/history:",
        )


def headline(instant: Instant) -> None:
    """The price of a million accepted output tokens, and all that must stand beside it."""
    row = rows("overview_headline", instant, FILTERS.all(instant)).row(0, named=True)
    with st.grid(4, min_column_width=190):
        st.metric(
            "per million accepted output tokens",
            usd(row["usd_per_mtok_accepted_output"]),
            help="The whole bill (useful work, failed and late requests, idle capacity, shared"
            " lines) divided by the output tokens of accepted requests.",
            border=True,
            height="stretch",
        )
        st.metric(
            "bill",
            usd(row["bill_usd"]),
            delta=f"{usd(row['unallocated_usd'])} unallocated",
            delta_arrow="off",
            delta_color="off",
            border=True,
            height="stretch",
        )
        st.metric(
            "accepted requests",
            f"{count(row['n_accepted'])} of {count(row['n_requests'])}",
            delta=f"{percent(row['attainment_ratio'])} attained"
            f" ({percent(row['wilson_low'])} to {percent(row['wilson_high'])})",
            delta_arrow="off",
            delta_color="off",
            help="Finished, within the SLO class, quality passed. The interval is Wilson's, 95 %."
            f" Left out of the ratio: {count(row['n_excluded'])} excluded,"
            f" {count(row['n_unknown'])} unknown.",
            border=True,
            height="stretch",
        )
        st.metric(
            "accepted output tokens",
            count(row["accepted_output_tokens"]),
            delta=f"{count(row['input_tokens'])} in · {count(row['reused_tokens'])} cached"
            f" · {count(row['output_tokens'])} out",
            delta_arrow="off",
            delta_color="off",
            border=True,
            height="stretch",
        )
    st.caption(_state(row))


def _state(row: dict[str, Any]) -> str:
    """Which hours, whether they may still change, what is missing, and by which rules."""
    start, end = row["window_start"], row["window_end"]
    if start is None:
        return "No hour with a bill in this window."
    said = [f"whole UTC hours {start:%d %b %H:%M} to {end:%d %b %H:%M}"]
    said.append("final" if row["is_final"] else "provisional while the hour is open")
    if row["usd_per_mtok_accepted_output"] is None and row["null_reason"]:
        said.append(f"no price: {row['null_reason'].replace('_', ' ')}")
    if row["is_complete"] is False:
        said.append(f"incomplete: {row['incomplete_reason'] or 'a worker or a verdict is unknown'}")
    said.append(
        f"prompt p50 {count(row['input_tokens_p50'])}, p95 {count(row['input_tokens_p95'])} tokens"
    )
    said.append(
        f"answer p50 {count(row['output_tokens_p50'])},"
        f" p95 {count(row['output_tokens_p95'])} tokens"
    )
    said.append(f"SLO file {', '.join(row['slo_versions'] or [UNKNOWN])}")
    said.append(f"quality {', '.join(row['quality_policies'] or [UNKNOWN])}")
    return " · ".join(said)


def money(instant: Instant) -> None:
    """Where the bill goes, and which promises were kept."""
    left, right = side_by_side()
    with left:
        steps = rows("overview_waterfall", instant, FILTERS.window(instant))
        chart(
            "Where the bill goes",
            "The fleet's whole bill over the same hours, by what each dollar bought: useful work,"
            " work whose request missed its SLO (slo) or failed, requests still in flight, idle"
            " workers, lines that all share. Model, class and tenant filters don't apply.",
            charts.waterfall(steps),
            "Waterfall of the bill in US dollars by step",
        )
    with right:
        classes = rows("overview_attainment", instant, FILTERS.all(instant))
        chart(
            "SLO attainment by class",
            "Share of judged requests that were accepted, with the 95 % Wilson interval.",
            charts.attainment(classes) if classes.height else None,
            "Share of requests that met their SLO class, by class",
        )
        reasons = rows("overview_reject_reasons", instant, FILTERS.all(instant))
        chart(
            "Why requests were not accepted",
            "The first reason that held, for requests that ended in the window: failed, timed_out,"
            " rejected, cancelled, unfinished (no finish reason that counts), slo_ttft (first token"
            " late), slo_tpot and slo_gap (pace), slo_deadline (too many tokens late), slo_e2e,"
            " quality.",
            charts.reject_reasons(reasons) if reasons.height else None,
            "Number of requests by reject reason",
        )


def latency(instant: Instant) -> None:
    """Time to first token, taken apart and as a distribution; then the gaps."""
    left, right = side_by_side()
    with left:
        bands = rows("overview_ttft_parts", instant, FILTERS.all(instant))
        chart(
            "Where time to first token goes",
            "Requests sorted by time to first token and cut into bands; each bar is the band's"
            " mean, by part. Parts that the source can't see lie in other.",
            charts.ttft_parts(bands) if bands.height else None,
            "Mean parts of time to first token by band of requests",
        )
    with right:
        bins = rows("overview_ttft_histogram", instant, FILTERS.all(instant))
        quantiles = rows("overview_ttft_quantiles", instant, FILTERS.all(instant))
        _distribution(
            "Time to first token", bins, quantiles, "n_requests", "time to first token", "requests"
        )
    left, right = side_by_side()
    window = FILTERS.window(instant) | {"model": FILTERS.model}
    bins = rows("overview_token_gaps", instant, window)
    quantiles = rows("overview_gap_quantiles", instant, window)
    for column, kind in ((left, "token"), (right, "chunk")):
        is_kind = pl.col("kind") == kind
        with column:
            _distribution(
                f"Gaps between {kind}s",
                bins.filter(is_kind),
                quantiles.filter(is_kind),
                "n",
                f"gap between {kind}s",
                "gaps",
            )


def _distribution(
    title: str, bins: pl.DataFrame, quantiles: pl.DataFrame, counted: str, x: str, y: str
) -> None:
    """One viewpoint's distribution: the one with the most in it, named."""
    best = quantiles.sort(quantiles.columns[-4], descending=True).head(1)
    figure = None
    viewpoint = UNKNOWN
    if best.height:
        row = best.row(0, named=True)
        viewpoint = row["viewpoint"]
        figure = charts.distribution(
            bins.filter(pl.col("viewpoint") == viewpoint),
            counted,
            {"p50": row["p50_s"], "p95": row["p95_s"], "p99": row["p99_s"]},
            x=f"{x}, {viewpoint}'s clock (ms)",
            y=y,
        )
    chart(
        title,
        f"Measured by the {viewpoint}'s clock; a logarithmic axis. Gaps are filtered by time and"
        " model only."
        if counted == "n"
        else f"Measured by the {viewpoint}'s clock.",
        figure,
        f"Distribution of {x} in milliseconds",
    )


def traffic(instant: Instant) -> None:
    """Requests and tokens a second, and what the cache saved."""
    frame = rows("overview_throughput", instant, FILTERS.all(instant))
    left, right = side_by_side()
    with left:
        names = {"requests_per_s": "ended", "accepted_requests_per_s": "accepted"}
        chart(
            "Requests per second",
            "By the time a request ended; the newest unfinished interval is left out.",
            charts.over_time(frame, names, "requests per second") if frame.height else None,
            "Requests per second over time",
        )
    with right:
        names = {
            "input_tokens_per_s": "input",
            "accepted_output_tokens_per_s": "accepted output",
            "output_tokens_per_s": "output",
        }
        chart(
            "Tokens per second",
            "Counted when the request ended.",
            charts.over_time(frame, names, "tokens per second") if frame.height else None,
            "Tokens per second over time",
        )


def cache(instant: Instant) -> None:
    """What the prefix cache saved, a line a model and worker type."""
    frame = rows("overview_cache", instant, {"model": FILTERS.model})
    with st.container(border=True):
        st.markdown(
            "**Prefix cache, all time**",
            help="Token hit ratio: reused prompt tokens over prompt tokens. Saved prefill is"
            " estimated from measured prefills; capacity freed, never subtracted from the bill.",
        )
        if frame.is_empty():
            st.caption("No prefill with known reuse yet.")
            return
        for row in frame.iter_rows(named=True):
            with st.grid(4, min_column_width=190):
                st.metric(
                    f"token hit ratio · {row['model']} on {row['worker_type']}",
                    percent(row["token_hit_ratio"]),
                )
                st.metric("requests with any reuse", percent(row["request_hit_ratio"]))
                saved_s = row["saved_prefill_s"]
                st.metric("prefill saved", UNKNOWN if saved_s is None else f"{saved_s:,.1f} s")
                st.metric("worth, before keeping it", usd(row["gross_saved_usd"]))


@st.fragment(run_every="2s")
def live() -> None:
    """Everything on the page, from one instant."""
    with shown_errors():
        instant = look()
        with st.container():  # a warning that comes and goes must not move the charts' places
            freshness(instant)
        headline(instant)
        money(instant)
        latency(instant)
        traffic(instant)
        cache(instant)


live()
