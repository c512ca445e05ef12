"""`tokenmill demo`: the whole house at once, under load from a replay."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from app.commands.replay import DEFAULT_WORKLOAD
from app.commands.stack import ModelOption, StackPortOption, TopologyOption, read_topology
from app.commands.up import Steps, supervised
from app.errors import ChildFailedError, UsageError
from app.format import cell
from app.options import (
    DEFAULT_STORE,
    DEFAULT_TOPOLOGY,
    DashboardPortOption,
    OtlpPortOption,
    StoreOption,
    usable_store,
)
from app.ports import Wanted, require_free
from app.rooms import needs, require
from app.services import STOP_ORDER, House
from app.supervise import Service, Supervisor

CANCEL_RATIO = 0.02
"""Some callers leave midway, so that the page has something to say about it."""

DRAIN_S = 2.0
"""At Ctrl-C, answers under way get this long before their callers leave."""


def demo(
    store: StoreOption = DEFAULT_STORE,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    model: ModelOption = None,
    workload: Annotated[
        str, typer.Option(help="Workload name or trace file to replay.")
    ] = DEFAULT_WORKLOAD,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Load for so long, then stop; else until Ctrl-C.")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="No dashboard.")] = False,
    rate_scale: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Multiplies the workload's request rate.")
    ] = 1.0,
    port: StackPortOption = None,
    otlp_port: OtlpPortOption = 4318,
    dashboard_port: DashboardPortOption = 8501,
) -> None:
    """Serve a small real model, load it, and watch what its tokens cost.

    \b
    Example:
      tokenmill demo
      tokenmill demo --seconds 60 --headless --model tiny
    """
    require(
        "demo", "analytics,stack", "duckdb", "streamlit", "ptars", "torch", "zmq", "safetensors"
    )
    if headless and seconds is None:
        raise UsageError("--headless needs --seconds: say how long the load lasts.")
    chosen = read_topology(topology, model, port)
    _check_load(workload)
    house = House(usable_store(store), otlp_port, None if headless else dashboard_port)
    require_free([*house.wanted_ports(), Wanted("stack's API", chosen.port, "--port")])

    steps = Steps()
    with supervised(house) as supervisor:
        supervisor.start(house.collector())
        supervisor.wait_ready("collector")
        steps.done(f"collector takes OTLP/HTTP on {house.otlp_url}")
        supervisor.start(house.stack(topology, model, chosen.port))
        supervisor.start(house.builder())
        if house.dashboard_port is not None:
            supervisor.start(house.dashboard())
        supervisor.wait_ready("stack")
        steps.done(f"{chosen.model} serves on http://127.0.0.1:{chosen.port}/v1")
        load = _load(house, workload, seconds, rate_scale, chosen.port)
        supervisor.start(load)
        steps.done(f"load from workload {workload}")
        if house.dashboard_port is not None:
            supervisor.wait_ready("dashboard")
            steps.done(f"dashboard on {house.dashboard_url}")
        if seconds is None:
            typer.echo("Ctrl-C stops everything.")
            supervisor.watch()
            typer.echo("stopping")
            return
        _finish(house, supervisor, steps)
    if not supervisor.stopping.is_set():
        _summarise(house)


def _check_load(workload: str) -> None:
    """Raise the replay's own sentence now, not when the stack is up."""
    from serving_probe.replay.core import ReplayConfig
    from serving_probe.replay.plan import plan_run

    plan_run(ReplayConfig.create(url="http://127.0.0.1", source=workload, n_requests=1))


def _load(house: House, workload: str, seconds: float | None, rate: float, port: int) -> Service:
    """The replay as a service; with no end it is started again should it die."""
    started = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    record = house.store / "replay" / f"{started}.jsonl"
    record.parent.mkdir(exist_ok=True)
    limit = () if seconds is None else ("--seconds", str(seconds))
    return Service(
        "replay",
        (
            *("replay", workload, "--url", f"http://127.0.0.1:{port}", "--out", str(record)),
            *("--rate-scale", str(rate), "--cancel-ratio", str(CANCEL_RATIO), *limit),
            *("--drain", str(DRAIN_S)),
        ),
        stop_within_s=15.0,
    )


def _finish(house: House, supervisor: Supervisor, steps: Steps) -> None:
    """Wait for the load's end, then drain everything behind it, in order."""
    code = supervisor.wait_end("replay")
    if code != 0 and not supervisor.stopping.is_set():
        raise ChildFailedError(f"the replay ended with code {code}: see {house.logs}/replay.log.")
    steps.done("load ended")
    for name in STOP_ORDER:
        supervisor.stop(name)
    supervisor.start(house.last_build())
    code = supervisor.wait_end("build")
    if code != 0 and not supervisor.stopping.is_set():
        raise ChildFailedError(
            f"the last build ended with code {code}: see {house.logs}/build.log."
        )
    steps.done("spans flushed, warehouse built and published")


def _summarise(house: House) -> None:
    """What the run cost and how it went, as one table."""
    with needs("demo", "analytics"):
        from metrics.query import Warehouse

    frame = Warehouse(house.store).report("demo_summary")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for measure, value, unit in frame.iter_rows():
        table.add_row(measure, cell(value, unit), unit)
    Console(highlight=False).print(table)


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(demo)
