"""The options that many commands share, and the check of the store they name."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app.errors import StoreUnusableError

DATA = Path(__file__).resolve().parent.parent / "data"
DEFAULT_TOPOLOGY = DATA / "topologies" / "1p1d.toml"

StoreOption = Annotated[
    Path,
    typer.Option("--store", envvar="TOKENMILL_STORE", help="Folder that holds everything."),
]
DEFAULT_STORE = Path("tokenmill-store")
OtlpPortOption = Annotated[
    int, typer.Option("--otlp-port", min=1, max=65535, help="OTLP/HTTP port of the collector.")
]
DashboardPortOption = Annotated[
    int, typer.Option("--dashboard-port", min=1, max=65535, help="Port of the dashboard.")
]


class ModelName(StrEnum):
    """The models that the bundled stack can serve."""

    TINY = "tiny"
    SMOLLM2 = "smollm2"


def usable_store(store: Path) -> Path:
    """The store's absolute path, made if need be; raises `StoreUnusableError`."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnusableError(
            f"store {store} can't be made ({error.strerror}): choose another folder with --store."
        ) from error
    if not os.access(store, os.W_OK | os.X_OK):
        raise StoreUnusableError(
            f"store {store} can't be written: choose another folder with --store."
        )
    return store.resolve()
