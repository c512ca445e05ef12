"""The dashboard in a real browser over a real store: content, pictures, no console error."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.app.running import free_port, serving
from tests.conftest import CHROMIUM

ARTIFACTS = Path(__file__).parent.parent.parent / "test-artifacts"
PATIENCE_MS = 90_000
# Opened below the root, Streamlit's page first asks for these beside itself, then at the root.
ASKED_TWICE = re.compile(r"/requests/_stcore/(health|host-config)$")
CLOCK = r"\d\d:\d\d:\d\d\.\d{3}"

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address(built_store: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("dashboard", "--store", str(built_store), "--dashboard-port", str(port))
    with serving(f"{url}/_stcore/health", *command):
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that fails the test on a console error or on a request to elsewhere."""
    page = browser.new_page(viewport={"width": 1440, "height": 2200}, color_scheme=request.param)
    page.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []
    hosts: set[str | None] = set()

    def note(message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        if message.type == "error" and not ASKED_TWICE.search(where):
            faults.append(f"{message.text} ({where})")

    page.on("console", note)
    page.on("request", lambda asked: hosts.add(urlsplit(asked.url).hostname))
    yield page
    page.close()
    assert not faults
    assert hosts <= {"127.0.0.1", None, ""}


def shot(page: Page, name: str, request: pytest.FixtureRequest) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}-{request.node.callspec.params['page']}.png")


def axis_titles(page: Page) -> list[str]:
    return page.locator(".xtitle, .ytitle").all_text_contents()


def test_overview(page: Page, address: str, request: pytest.FixtureRequest) -> None:
    page.goto(address)
    expect(page.get_by_text("per million accepted output tokens")).to_be_visible(
        timeout=PATIENCE_MS
    )
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".js-plotly-plot")).to_have_count(9, timeout=PATIENCE_MS)
    page.get_by_text("Prefix cache, all time").wait_for()
    said = page.get_by_text(re.compile(rf"^as of {CLOCK} UTC · newest request ended {CLOCK} UTC$"))
    first = said.text_content()
    shot(page, "overview", request)
    titles = axis_titles(page)
    for unit in ("US dollars", "(ms)", "(%)", "requests per second", "tokens per second", "(UTC)"):
        assert any(unit in title for title in titles), unit
    # The page is live: its instant moves on by itself.
    expect(said).not_to_have_text(first or "", timeout=PATIENCE_MS)


def test_a_request_by_link(page: Page, address: str, request: pytest.FixtureRequest) -> None:
    page.goto(f"{address}/requests?request=default%2Freq001")
    expect(page.get_by_text("Request req001")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=PATIENCE_MS)
    page.get_by_text("Legs", exact=True).wait_for()
    shot(page, "request", request)
    titles = axis_titles(page)
    assert "since the request's arrival (ms)" in titles
    assert "gap (ms)" in titles


def test_a_filter_is_kept_in_the_link(page: Page, address: str) -> None:
    page.goto(f"{address}/?tenant=acme")
    accepted = page.get_by_text(re.compile(r"^\d+ of 14$"))
    expect(accepted).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("link", name="Requests").click()
    expect(page.get_by_text(re.compile(r"^14 requests · as of"))).to_be_visible(timeout=PATIENCE_MS)
    assert "tenant=acme" in page.url
