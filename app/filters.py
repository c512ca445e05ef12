"""The sidebar: time range, model, SLO class and tenant, all kept in the page's URL."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

from app.reader import Instant, look, rows
from metrics.errors import MetricsError

RANGES = {
    "15 min": timedelta(minutes=15),
    "1 hour": timedelta(hours=1),
    "6 hours": timedelta(hours=6),
    "24 hours": timedelta(hours=24),
    "7 days": timedelta(days=7),
    "All": None,
}
ALL = "All"
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # the warehouse keeps UTC without a zone


@dataclass(frozen=True, slots=True)
class Filters:
    """What the sidebar asks for; None: all."""

    span: timedelta | None
    model: str | None
    slo_class: str | None
    tenant_id: str | None

    def window(self, instant: Instant) -> dict[str, object]:
        """The parameters `since` and `as_of`, UTC without a zone as the warehouse keeps them."""
        as_of = instant.as_of.astimezone(UTC).replace(tzinfo=None)
        return {"since": EPOCH if self.span is None else as_of - self.span, "as_of": as_of}

    def all(self, instant: Instant) -> dict[str, object]:
        """Every parameter that a report over requests takes."""
        return self.window(instant) | {
            "model": self.model,
            "slo_class": self.slo_class,
            "tenant_id": self.tenant_id,
        }


def sidebar() -> Filters:
    """Draw the filters and return what they say."""
    choices = _choices()
    with st.sidebar:
        span = st.selectbox("Time range", list(RANGES), index=1, key="range", bind="query-params")
        return Filters(
            RANGES[span or ALL],
            _one_of("Model", "model", choices.get("model", [])),
            _one_of("SLO class", "slo_class", choices.get("slo_class", [])),
            _one_of("Tenant", "tenant", choices.get("tenant_id", [])),
        )


def _one_of(label: str, key: str, values: list[str]) -> str | None:
    chosen = st.selectbox(label, [ALL, *values], key=key, bind="query-params")
    return None if chosen in (ALL, None) else chosen


def _choices() -> dict[str, list[str]]:
    try:
        frame = rows("filter_options", look())
    except MetricsError:
        return {}  # the page says what is wrong
    found: dict[str, list[str]] = {}
    for kind, choice in frame.iter_rows():
        found.setdefault(kind, []).append(choice)
    return found
