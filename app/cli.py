"""`tokenmill`: the commands, and the one place where an error becomes a sentence and an exit code.

Each command lives in `app.commands` and imports its room only when it runs.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.exceptions import TyperException

from app.commands import build, collect, dashboard, demo, probe, query, replay, stack, up
from app.rooms import explain
from app.supervise import adopt

cli = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for register in (demo, up, collect, build, dashboard, query, stack, replay, probe):
    register.add_to(cli)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(version("tokenmill"))
        raise typer.Exit


@cli.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """What a million accepted output tokens cost, and where the money and the latency go.

    \b
    Example:
      tokenmill demo
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    try:
        code = cli(list(arguments) or ["--help"], prog_name="tokenmill", standalone_mode=False)
    except TyperException as error:
        return _say(
            f"{error.format_message().rstrip('.')}: see `tokenmill --help`.", error.exit_code
        )
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        told = explain(error)
        if told is None:
            raise
        return _say(*told)
    return code if isinstance(code, int) else 0


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"tokenmill: {sentence}\n")
    return code


def main() -> None:
    """The `tokenmill` script."""
    adopt()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
