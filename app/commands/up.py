"""`tokenmill up`: collector, builder and dashboard together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from app.options import (
    DEFAULT_STORE,
    DashboardPortOption,
    OtlpPortOption,
    StoreOption,
    usable_store,
)
from app.ports import require_free
from app.rooms import require
from app.services import STOP_ORDER, House
from app.supervise import Supervisor, stop_on_signals


class Steps:
    """Says each step in one line, with the seconds it took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def done(self, what: str) -> None:
        """One step is done; the next begins."""
        now = time.monotonic()
        typer.echo(f"{now - self._since:6.1f} s  {what}")
        self._since = now


@contextmanager
def supervised(house: House) -> Iterator[Supervisor]:
    """A supervisor that stops at Ctrl-C, logs to the store and speaks on standard error."""
    with (
        stop_on_signals() as stopping,
        Supervisor(
            house.logs, stopping, lambda line: typer.echo(line, err=True), STOP_ORDER
        ) as supervisor,
    ):
        yield supervisor


def up(
    store: StoreOption = DEFAULT_STORE,
    otlp_port: OtlpPortOption = 4318,
    dashboard_port: DashboardPortOption = 8501,
) -> None:
    """Run collector, builder and dashboard until Ctrl-C.

    \b
    Example:
      tokenmill up --store ./tokenmill-store
    """
    require("up", "analytics", "duckdb", "streamlit", "ptars")
    house = House(usable_store(store), otlp_port, dashboard_port)
    require_free(house.wanted_ports())
    steps = Steps()
    with supervised(house) as supervisor:
        supervisor.start(house.collector())
        supervisor.wait_ready("collector")
        steps.done(f"collector takes OTLP/HTTP on {house.otlp_url}")
        supervisor.start(house.builder())
        supervisor.start(house.dashboard())
        supervisor.wait_ready("dashboard")
        steps.done(f"dashboard on {house.dashboard_url}")
        typer.echo("Ctrl-C stops everything.")
        supervisor.watch()
        typer.echo("stopping")


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(up)
