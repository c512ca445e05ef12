"""`tokenmill sql`: one question to the published warehouse, answered as a table, JSON or CSV."""

import sys
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from app.options import DEFAULT_STORE, StoreOption
from app.rooms import needs

if TYPE_CHECKING:
    import polars as pl


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over the published relations.")],
    store: StoreOption = DEFAULT_STORE,
    format_: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = (
        Format.TABLE
    ),
) -> None:
    """Ask the published warehouse; while the builder runs, too.

    \b
    Example:
      tokenmill sql "select model, count(*) as n from requests group by model" --format json
    """
    with needs("sql", "analytics"):
        from metrics.query import Warehouse

    frame = Warehouse(store.resolve()).sql(query)
    match format_:
        case Format.JSON:
            _print_json(frame)
        case Format.CSV:
            sys.stdout.write(_flat(frame).write_csv())
        case Format.TABLE:
            _print_table(frame)


def _print_json(frame: "pl.DataFrame") -> None:
    """An array of objects, one row a line; decimals stay exact, as JSON numbers."""
    import msgspec

    encoder = msgspec.json.Encoder(decimal_format="number")
    lines = [encoder.encode(row).decode() for row in frame.iter_rows(named=True)]
    sys.stdout.write("[" + ",\n ".join(lines) + "]\n")


def _flat(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Lists and structs as JSON text: CSV has no place for them."""
    import msgspec
    import polars as pl

    encoder = msgspec.json.Encoder(decimal_format="number")
    return frame.with_columns(
        pl.Series(
            name,
            [
                None if value is None else encoder.encode(value).decode()
                for value in frame[name].to_list()
            ],
            dtype=pl.String,
        )
        for name, kind in frame.schema.items()
        if kind.is_nested()
    )


def _text(value: object) -> str:
    """A cell; money without an exponent."""
    if value is None:
        return ""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _print_table(frame: "pl.DataFrame") -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, kind in frame.schema.items():
        table.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
    for row in frame.iter_rows():
        table.add_row(*map(_text, row))
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False)
    console.print(table)
    console.print(f"{frame.height} row{'' if frame.height == 1 else 's'}")


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command(name="sql")(sql)
