"""`tokenmill collect`: the OTLP receiver."""

from typing import Annotated

import typer

from app.options import DEFAULT_STORE, OtlpPortOption, StoreOption, usable_store
from app.ports import Wanted, require_free
from app.rooms import needs


def collect(
    store: StoreOption = DEFAULT_STORE,
    otlp_port: OtlpPortOption = 4318,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Receive OTLP/HTTP and keep it in the store, durable before it is answered.

    \b
    Example:
      tokenmill collect --store ./tokenmill-store --otlp-port 4318
    """
    with needs("collect", "analytics"):
        from ingest.receiver import ReceiverConfig, run_receiver

    require_free([Wanted("collector", otlp_port, "--otlp-port", host)])
    run_receiver(ReceiverConfig(store=usable_store(store), host=host, port=otlp_port))


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(collect)
