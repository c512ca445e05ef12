"""Lazy doors to the other rooms: which packages they come with, and which errors are theirs.

The command line must start in a base-only environment, so a command imports its room inside
`needs(...)`, which turns a missing package into one sentence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from pydantic import ValidationError

from app.errors import AppError, MissingExtraError

ROOMS = ("app", "ingest", "metrics", "serving_probe", "sql")


@contextmanager
def needs(command: str, extra: str) -> Iterator[None]:
    """Import a room inside; a package that isn't installed raises `MissingExtraError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ROOMS:
            raise
        raise MissingExtraError(
            f"`tokenmill {command}` needs tokenmill[{extra}]: pip install 'tokenmill[{extra}]'"
        ) from error


def require(command: str, extra: str, *packages: str) -> None:
    """Raise `MissingExtraError` unless the packages are there; imports none of them."""
    with needs(command, extra):
        for package in packages:
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)


def explain(error: Exception) -> tuple[str, int] | None:
    """The sentence and exit code for an error a user can act on; None for a fault of ours."""
    if isinstance(error, AppError):
        return str(error), error.exit_code
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = "--" + ".".join(str(part) for part in first["loc"]).replace("_", "-")
        return f"{field}: {first['msg']} (got {first['input']!r})", 2
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return f"cannot use{where}: {error.strerror or error}", 1
    if type(error).__module__.partition(".")[0] in ROOMS:
        return str(error), 1  # every room's errors are sentences
    return None
