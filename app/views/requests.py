"""The requests: the newest in a table, and one of them taken apart, phase by phase, gap by gap."""

from datetime import datetime

import polars as pl
import streamlit as st

from app import charts
from app.filters import Filters
from app.format import UNKNOWN, clock, count, ms, usd
from app.reader import Instant, look, rows, shown_errors

FILTERS: Filters = st.session_state["filters"]
MAX_ROWS = 2000
CHART_CONFIG = {"displayModeBar": False}


def in_milliseconds(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The named columns of seconds as milliseconds, `_s` become `_ms`; money as floats."""
    return frame.with_columns(
        *((pl.col(name) * 1000).alias(name.removesuffix("_s") + "_ms") for name in columns),
        pl.selectors.decimal().cast(pl.Float64),
    ).drop(columns)


# What the rows of the table were asked for with, as of when, and the rows. A plain tuple: a class
# of this script would be another one at every run, and an instance of the last run not its own.
Listed = tuple[Filters, datetime, pl.DataFrame]


def take_selection() -> None:
    """A row was chosen: its key, not its place, goes to the bound field and the URL."""
    chosen = st.session_state[table_key()].selection.rows
    _, _, found = st.session_state["_listed"]
    if chosen and chosen[0] < found.height:
        st.session_state["request"] = found["request_key"][chosen[0]]


def forget_selection() -> None:
    """Untick the row, so that the newest requests are listed again."""
    st.session_state.pop("_listed", None)
    st.session_state["_n_tables"] = st.session_state.get("_n_tables", 0) + 1


def table_key() -> str:
    """The table's key; a new table has no tick."""
    return f"request_table_{st.session_state.get('_n_tables', 0)}"


def listed_now(instant: Instant) -> Listed:
    """The newest rows; while one is ticked, the ones it was ticked in: ticks go by place."""
    last: Listed | None = st.session_state.get("_listed")
    state = st.session_state.get(table_key())
    if last is not None and last[0] == FILTERS and state and state.selection.rows:
        return last
    parameters = FILTERS.all(instant) | {"max_rows": MAX_ROWS}
    return FILTERS, instant.as_of, rows("requests_list", instant, parameters)


def table(instant: Instant) -> None:
    """The newest requests of the window, the newest first."""
    _, as_of, found = st.session_state["_listed"] = listed_now(instant)
    if found.is_empty():
        st.info("No request ended in this window.", icon=":material/search_off:")
        return
    shown = in_milliseconds(found, "ttft_s", "tpot_s", "worst_gap_s", "e2e_s").with_columns(
        verdict=pl.when("is_accepted").then(pl.lit("accepted")).otherwise("reject_reason")
    )
    number = st.column_config.NumberColumn
    st.dataframe(
        shown.select(
            "ended_at",
            "request_id",
            "tenant_id",
            "model",
            "slo_class",
            "verdict",
            "ttft_ms",
            "tpot_ms",
            "worst_gap_ms",
            "e2e_ms",
            "input_tokens",
            "reused_tokens",
            "output_tokens",
            "n_attempts",
            "fully_loaded_usd",
        ),
        hide_index=True,
        height=320,
        key=table_key(),
        on_select=take_selection,
        selection_mode="single-row",
        placeholder=UNKNOWN,
        alt="Newest requests with verdict, latency, tokens and cost",
        column_config={
            "ended_at": st.column_config.DatetimeColumn("ended (UTC)", format="HH:mm:ss.SSS"),
            "request_id": st.column_config.TextColumn("request", width="medium"),
            "tenant_id": "tenant",
            "slo_class": "SLO class",
            "ttft_ms": number("TTFT (ms)", format="%.1f"),
            "tpot_ms": number("TPOT (ms)", format="%.1f"),
            "worst_gap_ms": number("worst gap (ms)", format="%.1f"),
            "e2e_ms": number("end to end (ms)", format="%.0f"),
            "input_tokens": number("input (tokens)"),
            "reused_tokens": number("cached (tokens)"),
            "output_tokens": number("output (tokens)"),
            "n_attempts": number("attempts"),
            "fully_loaded_usd": number("fully loaded (USD)", format="%.9f"),
        },
    )
    newest = f"the newest {MAX_ROWS:,}" if found.height == MAX_ROWS else f"{found.height:,}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{newest} requests · as of {clock(as_of)} UTC · choose a row to open it")
        st.button("Refresh", icon=":material/refresh:", on_click=forget_selection)


def detail(instant: Instant, request: str) -> None:
    """One request: verdict, timeline, every gap, and what it cost."""
    found = rows("request", instant, {"request": request})
    if found.is_empty():
        st.warning(f"There is no request `{request}` in the warehouse.", icon=":material/search:")
        return
    if found.height > 1 and found["request_key"][0] != request:
        keys = ", ".join(f"`{key}`" for key in found["request_key"])
        st.info(f"Several tenants have used this id: {keys}. The newest is shown.")
    row = found.row(0, named=True)
    key = {"request_key": row["request_key"]}
    st.subheader(f"Request {row['request_id']}")
    st.caption(
        f"{row['model']} · tenant {row['tenant_id'] or UNKNOWN}"
        f" · SLO class {row['slo_class'] or UNKNOWN} · arrived {clock(row['arrived_at'])} UTC"
        f" · judged by {row['verdict_basis'] or UNKNOWN}"
    )
    attempts = rows("request_attempts", instant, key)
    costs = {
        name: None if attempts[name].null_count() else attempts[name].sum()
        for name in ("fully_loaded_usd", "direct_usd", "idle_usd", "shared_usd")
    }
    with st.grid(5, min_column_width=170):
        st.metric("verdict", "accepted" if row["is_accepted"] else "not accepted")
        st.metric(f"time to first token ({row['ttft_viewpoint'] or UNKNOWN})", ms(row["ttft_s"]))
        st.metric("end to end", ms(row["e2e_s"]))
        st.metric(
            "tokens in / cached / out",
            f"{count(row['input_tokens'])} / {count(row['reused_tokens'])}"
            f" / {count(row['output_tokens'])}",
        )
        st.metric("fully loaded cost", usd(costs["fully_loaded_usd"]))
    reason = "" if row["is_accepted"] else f"Not accepted because of {row['reject_reason']} · "
    st.caption(
        f"{reason}cost: {usd(costs['direct_usd'])} direct, {usd(costs['idle_usd'])} idle,"
        f" {usd(costs['shared_usd'])} shared",
    )
    bars = rows("request_phases", instant, key)
    with st.container(border=True):
        st.markdown(
            "**Timeline**",
            help="Upper lanes: the parts of time to first token, then the stream, as the gateway"
            " saw them. Lower lanes: what each worker did.",
        )
        if bars.is_empty():
            st.caption("No attempt with known times.")
        else:
            st.plotly_chart(
                charts.timeline(bars),
                key="timeline",
                config=CHART_CONFIG,
                alt="Phases and legs of the request over time",
            )
    gaps = rows("request_gaps", instant, key)
    with st.container(border=True):
        st.markdown("**Every gap between chunks**", help="Stalls stand out: see the definition.")
        if gaps.is_empty():
            st.caption("Fewer than two chunks were streamed, or their times aren't known.")
        else:
            st.plotly_chart(
                charts.gap_bars(gaps), key="gaps", config=CHART_CONFIG, alt="Each gap in order"
            )
    tables(attempts, rows("request_legs", instant, key))


def tables(attempts: pl.DataFrame, legs: pl.DataFrame) -> None:
    """The same as rows, for copying."""
    number = st.column_config.NumberColumn
    money = {
        name: number(f"{name[:-4]} (USD)", format="%.9f")
        for name in ("direct_usd", "idle_usd", "shared_usd", "fully_loaded_usd")
    }
    st.markdown("**Attempts**")
    parts = ("ttft_s", *charts.PARTS)
    st.dataframe(
        in_milliseconds(attempts, *parts),
        hide_index=True,
        key="attempts",
        placeholder=UNKNOWN,
        alt="Attempts of the request",
        column_config=money
        | {
            f"{name.removesuffix('_s')}_ms": number(
                f"{name.removesuffix('_s').replace('_', ' ')} (ms)", format="%.1f"
            )
            for name in parts
        }
        | {
            name: st.column_config.DatetimeColumn(f"{name[:-3]} (UTC)", format="HH:mm:ss.SSS")
            for name in ("arrived_at", "ended_at")
        },
    )
    st.markdown("**Legs**")
    st.dataframe(
        in_milliseconds(legs, "wall_s", "device_seconds"),
        hide_index=True,
        key="legs",
        placeholder=UNKNOWN,
        alt="Legs of the request",
        column_config=money
        | {
            "started_at": st.column_config.DatetimeColumn("started (UTC)", format="HH:mm:ss.SSS"),
            "wall_ms": number("wall (ms)", format="%.1f"),
            "device_seconds_ms": number("device (ms)", format="%.1f"),
        },
    )


with shown_errors():
    now = look()
    asked = st.text_input(
        "Request id",
        key="request",
        bind="query-params",
        type="search",
        placeholder="a request's id, or choose a row",
    )
    table(now)
    if asked:
        detail(now, asked)
