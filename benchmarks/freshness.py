"""How long after its end a request is on the page: the demo with its dashboard, a real browser.

    python benchmarks/freshness.py [--seconds 60] [--model smollm2]

The page says when the newest request it shows ended. A request is visible from the first moment
the page names an end at or after its own. Ends are on the gateway's clock, the same machine's.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from playwright.sync_api import Page, sync_playwright

from metrics.query import Warehouse

SHOWN = re.compile(r"newest request ended (\d\d):(\d\d):(\d\d\.\d+) UTC")
PORT = 8501


def main() -> None:
    """Run the demo, watch the page, print the quantiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--model", default="smollm2")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo = (sys.executable, "-m", "app.cli", "demo", "--store", folder)
        limits = ("--seconds", str(chosen.seconds), "--model", chosen.model)
        with subprocess.Popen([*demo, *limits]) as running:
            seen = _watch(running, chosen.seconds)
        ended = Warehouse(Path(folder)).sql(
            "select epoch(ended_at) as ended_s from requests where ended_at is not null"
        )["ended_s"]
    lags = [first - end for end in ended if (first := _first_shown(seen, end)) is not None]
    print(f"\nrequests that ended {len(ended)}, of them seen on the page {len(lags)}")
    for quantile in (0.5, 0.95, 1.0):
        lag = pl.Series(lags).quantile(quantile, "linear")
        print(f"end → page p{quantile * 100:g}: {lag:.2f} s")


def _watch(running: "subprocess.Popen[bytes]", seconds: float) -> list[tuple[float, float]]:
    """(instant, newest end shown), whenever the page showed another."""
    seen: list[tuple[float, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        until = time.time() + seconds + 60
        while time.time() < until and running.poll() is None:
            shown = _newest(page)
            if shown is not None and (not seen or seen[-1][1] != shown):
                seen.append((time.time(), shown))
            time.sleep(0.1)
        browser.close()
    return seen


def _newest(page: Page) -> float | None:
    try:
        if page.url == "about:blank":
            page.goto(f"http://localhost:{PORT}")
        found = SHOWN.search(page.inner_text("body", timeout=1000))
    except Exception:  # noqa: BLE001  # the page isn't up yet, or is going down
        return None
    if found is None:
        return None
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    return today + int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3])


def _first_shown(seen: list[tuple[float, float]], end: float) -> float | None:
    # The page shows milliseconds, cut off.
    return next((at for at, shown in seen if shown + 0.001 >= end), None)


if __name__ == "__main__":
    main()
