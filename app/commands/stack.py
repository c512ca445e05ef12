"""`tokenmill stack up`: the bundled serving stack."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.options import DEFAULT_TOPOLOGY, ModelName
from app.ports import Wanted, require_free
from app.rooms import needs, require

if TYPE_CHECKING:
    from serving_probe.stack.topology import Topology

TopologyOption = Annotated[Path, typer.Option(help="Topology file: what runs where.")]
ModelOption = Annotated[
    ModelName | None, typer.Option(help="Model to serve, instead of the topology's.")
]
StackPortOption = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, help="Port of the API, instead of the topology's."),
]


def read_topology(path: Path, model: ModelName | None, port: int | None) -> "Topology":
    """The topology file with the command line's overrides."""
    with needs("stack up", "stack"):
        from serving_probe.stack.topology import Topology

    changes = {"model": model and model.value, "port": port}
    topology = Topology.load(path)
    return topology.model_copy(update={k: v for k, v in changes.items() if v is not None})


def stack_up(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    model: ModelOption = None,
    port: StackPortOption = None,
    otlp: Annotated[
        str, typer.Option(help="Base URL that telemetry is sent to.")
    ] = "http://127.0.0.1:4318",
    ready_file: Annotated[
        Path | None, typer.Option(help="File to write the API's URL to, once it serves.")
    ] = None,
) -> None:
    """Serve a model on separated prefill and decode workers, measured by the probe.

    \b
    Example:
      tokenmill stack up --topology data/topologies/1p1d.toml --model tiny
    """
    chosen = read_topology(topology, model, port)
    require("stack up", "stack", "torch", "zmq", "safetensors")
    with needs("stack up", "stack"):
        from serving_probe.emit import TelemetryConfig
        from serving_probe.stack.fleet import run_stack

    require_free([Wanted("stack's API", chosen.port, "--port", chosen.host)])
    run_stack(
        chosen,
        TelemetryConfig(endpoint=otlp),
        ready_file,
        on_ready=lambda url: typer.echo(
            f"{chosen.model} serves on {url}/v1, telemetry goes to {otlp}; Ctrl-C stops it."
        ),
    )


def add_to(cli: typer.Typer) -> None:
    """Register the command group."""
    group = typer.Typer(help="The bundled serving stack.", rich_markup_mode=None)
    group.command(name="up")(stack_up)

    @group.callback()
    def _group() -> None:
        """The bundled serving stack."""

    cli.add_typer(group, name="stack")
