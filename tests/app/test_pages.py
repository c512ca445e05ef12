"""Each page, run by Streamlit's own runner: with data, without, and after an interaction."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import app
from tests.app.traffic import N_REQUESTS, SLOW_EVERY

MAIN = Path(app.__file__).parent / "main.py"
REQUESTS = "views/requests.py"


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]  # a factory
    def opened(store: Path, **query: str) -> AppTest:
        monkeypatch.setenv("TOKENMILL_STORE", str(store))
        at = AppTest.from_file(str(MAIN), default_timeout=60)
        for name, value in query.items():
            at.query_params[name] = value
        return at.run()

    return opened


def metrics_of(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def test_overview_shows_the_price_and_every_chart(open_page, built_store: Path) -> None:
    at = open_page(built_store)
    assert not at.exception
    shown = metrics_of(at)
    assert shown["per million accepted output tokens"].startswith("$")
    n_accepted = N_REQUESTS - len(range(0, N_REQUESTS, SLOW_EVERY)) - 2
    assert shown["accepted requests"] == f"{n_accepted} of {N_REQUESTS}"
    assert len(at.get("plotly_chart")) == 9
    as_of = at.caption[0].value
    assert as_of.startswith("as of ")
    assert "newest request ended" in as_of
    assert any("provisional while the hour is open" in caption.value for caption in at.caption)


def test_overview_says_when_nothing_is_published(open_page, tmp_path: Path) -> None:
    at = open_page(tmp_path)
    assert not at.exception
    assert not at.metric
    assert "No data yet" in at.info[0].value


def test_overview_says_when_the_warehouse_is_broken(open_page, tmp_path: Path) -> None:
    (tmp_path / "warehouse.duckdb").write_bytes(b"not a database" * 1000)
    at = open_page(tmp_path)
    assert not at.exception
    assert "can't be read" in at.error[0].value


def test_a_tenant_narrows_the_numbers_and_is_in_the_url(open_page, built_store: Path) -> None:
    at = open_page(built_store)
    at.selectbox(key="tenant").select("acme").run()
    assert not at.exception
    n_acme = len(range(0, N_REQUESTS, 3))
    assert metrics_of(at)["accepted requests"].endswith(f"of {n_acme}")
    again = open_page(built_store, tenant="acme")
    assert metrics_of(again) == metrics_of(at)


def test_requests_lists_the_newest_first(open_page, built_store: Path) -> None:
    at = open_page(built_store)
    at.switch_page(REQUESTS).run()
    assert not at.exception
    table = at.dataframe[0].value
    assert len(table) == N_REQUESTS
    assert table["request_id"][0] == f"req{N_REQUESTS - 1:03d}"
    assert table["ttft_ms"].dropna().between(100, 3000).all()


def test_a_request_opens_from_the_url_with_its_timeline_and_gaps(
    open_page, built_store: Path
) -> None:
    at = open_page(built_store, request="default/req001")
    at.switch_page(REQUESTS).run()
    assert not at.exception
    assert at.subheader[0].value == "Request req001"
    shown = metrics_of(at)
    assert shown["verdict"] == "accepted"
    assert shown["tokens in / cached / out"] == "101 / 32 / 13"
    assert shown["fully loaded cost"].startswith("$")
    assert len(at.get("plotly_chart")) == 2


def test_a_request_without_a_stream_says_so(open_page, built_store: Path) -> None:
    at = open_page(built_store, request="default/req013")
    at.switch_page(REQUESTS).run()
    assert not at.exception
    assert metrics_of(at)["verdict"] == "not accepted"
    assert any("Fewer than two chunks" in caption.value for caption in at.caption)


def test_an_unknown_request_is_said_to_be_unknown(open_page, built_store: Path) -> None:
    at = open_page(built_store)
    at.switch_page(REQUESTS).run()
    at.text_input(key="request").set_value("nobody").run()
    assert not at.exception
    assert "no request `nobody`" in at.warning[0].value


def test_requests_says_when_nothing_is_published(open_page, tmp_path: Path) -> None:
    at = open_page(tmp_path)
    at.switch_page(REQUESTS).run()
    assert not at.exception
    assert "No data yet" in at.info[0].value
