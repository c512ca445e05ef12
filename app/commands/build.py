"""`tokenmill build`: the warehouse from what was collected, once or again and again."""

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.options import DATA, DEFAULT_STORE, StoreOption, usable_store
from app.rooms import needs

if TYPE_CHECKING:
    from metrics.build.build import BuildReport

DEFAULT_PRICES = DATA / "prices"
DEFAULT_SLO = DATA / "slo" / "default.toml"


def build(
    store: StoreOption = DEFAULT_STORE,
    watch: Annotated[bool, typer.Option("--watch", help="Keep building until stopped.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds from build to build, with --watch.")
    ] = 1.0,
    prices: Annotated[Path, typer.Option(help="Folder of price cards.")] = DEFAULT_PRICES,
    slo: Annotated[Path, typer.Option(help="File of service-level classes.")] = DEFAULT_SLO,
) -> None:
    """Bring the warehouse up to date with the store and publish it.

    \b
    Example:
      tokenmill build --store ./tokenmill-store --watch --interval 2
    """
    with needs("build", "analytics"):
        from metrics.build.build import BuildConfig, build_once, run_builder

    config = BuildConfig(store=usable_store(store), prices=prices, slo=slo)
    if not watch:
        with Console(stderr=True).status("building"):
            report = build_once(config)
        _say(report)
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    run_builder(config, interval, stop, on_build=_say)


def _say(report: "BuildReport") -> None:
    if report.n_quarantined:
        typer.echo(
            f"{report.n_quarantined} segments could not be read and lie in quarantine/segments,"
            " each with its reason",
            err=True,
        )
    if report.is_published:
        typer.echo(
            f"{report.n_segments} segments, {report.n_requests} requests, {report.n_hours} hours"
            f" in {report.elapsed_s:.2f} s"
        )


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(build)
