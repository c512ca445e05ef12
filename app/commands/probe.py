"""`tokenmill probe`: the measuring reverse proxy before any OpenAI-compatible server."""

from typing import Annotated

import typer


def probe(
    upstream: Annotated[str, typer.Option(help="Base URL of the server that is measured.")],
    listen: Annotated[str, typer.Option(help="host:port to listen on.")] = "127.0.0.1:8200",
    otlp: Annotated[
        str, typer.Option(help="Base URL that telemetry is sent to.")
    ] = "http://127.0.0.1:4318",
    tenant_salt: Annotated[
        str | None,
        typer.Option(
            envvar="TOKENMILL_TENANT_SALT",
            help="Salts the hash of an API key that names its tenant; the same salt keeps the"
            " names over restarts. Else a new one at every start.",
        ),
    ] = None,
) -> None:
    """Stand before an OpenAI-compatible server and measure every request.

    \b
    Example:
      tokenmill probe --upstream http://127.0.0.1:8000 --listen 127.0.0.1:8200
    """
    from serving_probe.emit import TelemetryConfig
    from serving_probe.sidecar.core import ProbeConfig
    from serving_probe.sidecar.proxy import run_probe

    telemetry = TelemetryConfig(endpoint=otlp)
    config = ProbeConfig.create(
        upstream=upstream, listen=listen, telemetry=telemetry, tenant_salt=tenant_salt
    )
    run_probe(config, on_ready=lambda url: typer.echo(f"probe listens on {url}"))


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(probe)
