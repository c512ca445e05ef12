"""The dashboard's way to the warehouse: one instant a run, rows kept while nothing new came.

Runs named reports and hands their rows on; knows no SQL.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import streamlit as st

from metrics.errors import MetricsError, NothingPublishedError
from metrics.query import Warehouse

KEEP_S = 10
"""A window's end moves at least so often, even when nothing new was published."""

Parameters = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Instant:
    """What one run of a page looks at: now, and the publication that answers."""

    as_of: datetime  # UTC, aware
    published_at: datetime

    @property
    def is_stale(self) -> bool:
        """Nothing was published for half a minute."""
        return datetime.now(UTC) - self.published_at > timedelta(seconds=30)


@st.cache_resource(show_spinner=False)
def warehouse(store: str) -> Warehouse:
    """The store's reader, shared by all sessions."""
    return Warehouse(Path(store))


def store() -> str:
    """The folder that the dashboard was started over."""
    return os.environ.get("TOKENMILL_STORE", "tokenmill-store")


def look() -> Instant:
    """The instant of this run, the same for every query; raises before the first publication."""
    published_at = warehouse(store()).published_at()
    if published_at is None:
        raise NothingPublishedError("nothing is published yet.")
    now = datetime.now(UTC)
    last = st.session_state.get("_instant")
    if (
        isinstance(last, Instant)
        and last.published_at == published_at
        and now - last.as_of < timedelta(seconds=KEEP_S)
    ):
        return last
    instant = Instant(now, published_at)
    st.session_state["_instant"] = instant
    return instant


def rows(
    report: str, instant: Instant, parameters: dict[str, object] | None = None
) -> pl.DataFrame:
    """A report's rows as of this instant."""
    return _rows(store(), report, instant.published_at, tuple((parameters or {}).items()))


@st.cache_data(ttl=60, max_entries=400, show_spinner=False)
def _rows(store: str, report: str, published_at: datetime, parameters: Parameters) -> pl.DataFrame:
    """`published_at` is in the key only: a new publication asks again."""
    del published_at
    return warehouse(store).report(report, dict(parameters))


@contextmanager
def shown_errors() -> Iterator[None]:
    """Inside, what can't be read is said where the numbers would be: no data apart from errors."""
    try:
        yield
    except NothingPublishedError:
        st.info(
            f"No data yet in `{store()}`. Numbers appear here once telemetry has arrived and"
            " `tokenmill build` has published.",
            icon=":material/hourglass_empty:",
        )
    except MetricsError as error:
        st.error(f"The warehouse can't be read: {error}", icon=":material/error:")
