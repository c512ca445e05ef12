"""`tokenmill replay`: open-loop load on any OpenAI-compatible server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.format import count, ms

if TYPE_CHECKING:
    from serving_probe.replay.core import Progress as Sent
    from serving_probe.replay.core import ReplaySummary

DEFAULT_WORKLOAD = "demo"


def replay(
    source: Annotated[
        str,
        typer.Argument(help="Workload name, or a trace file: Azure CSV or Mooncake JSON lines."),
    ] = (DEFAULT_WORKLOAD),
    url: Annotated[str, typer.Option(help="Base URL of the server.")] = "http://127.0.0.1:8100",
    model: Annotated[
        str | None, typer.Option(help="Model to ask for; else the server's first.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop sending after so long; else at the source's end.")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Stop sending after so many.")] = None,
    rate_scale: Annotated[float, typer.Option(help="Multiplies the request rate.")] = 1.0,
    length_scale: Annotated[float, typer.Option(help="Multiplies the token lengths.")] = 1.0,
    cancel_ratio: Annotated[
        float, typer.Option(help="Share of requests that the client leaves midway.")
    ] = 0.0,
    drain: Annotated[
        float, typer.Option(help="Seconds that answers may take to end after a Ctrl-C.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="Makes the run repeatable.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="File for what the client saw: JSONL, a row an attempt.")
    ] = None,
) -> None:
    """Send a workload's or a trace's requests at their times, whatever the server does.

    \b
    Example:
      tokenmill replay demo --url http://127.0.0.1:8100 --seconds 60 --out client.jsonl
    """
    from serving_probe.replay.core import ReplayConfig
    from serving_probe.replay.load import run_replay

    config = ReplayConfig.create(
        source=source,
        url=url,
        model=model,
        seconds=seconds,
        n_requests=requests,
        rate_scale=rate_scale,
        length_scale=length_scale,
        cancel_ratio=cancel_ratio,
        drain_s=drain,
        seed=seed,
        out=out,
    )
    with _progress_bar() as show:
        summary = run_replay(config, show)
    _say(summary)


@contextmanager
def _progress_bar() -> Iterator[Callable[["Sent"], None]]:
    """A bar on standard error, where that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("sending", total=None)

        def show(sent: "Sent") -> None:
            total, done = sent.total_s, sent.elapsed_s
            if sent.n_total is not None:
                total, done = float(sent.n_total), float(sent.n_ended)
            label = f"{sent.n_ended} of {sent.n_sent} sent requests ended"
            bar.update(task, description=label, total=total, completed=done)

        yield show


def _say(summary: "ReplaySummary") -> None:
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in summary.n_by_outcome.items())
    typer.echo(
        f"{summary.n_sent} requests in {summary.elapsed_s:.1f} s: {outcomes or 'none ended'}"
    )
    typer.echo(
        f"tokens: {count(summary.input_tokens)} in ({count(summary.cached_tokens)} cached),"
        f" {count(summary.output_tokens)} out"
    )
    typer.echo(
        f"time to first token from the send: p50 {ms(summary.ttft_p50_s)},"
        f" p95 {ms(summary.ttft_p95_s)}, p99 {ms(summary.ttft_p99_s)}"
    )
    for note in summary.notes:
        typer.echo(f"note: {note}")


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(replay)
