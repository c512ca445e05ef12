"""Which segment files are new, and their rows laid over the declared columns.

Knows file names and nothing of what is in them.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb

MAX_BYTES_PER_BATCH = 64 * 2**20
"""Segment bytes read at once: bounds the builder's memory after a long pause."""


def new_segments(con: duckdb.DuckDBPyConnection, store: Path) -> list[Path]:
    """Segments not yet consumed, oldest name first, at most one batch of them."""
    known = {name for (name,) in con.sql("select path from store.consumed_segments").fetchall()}
    fresh = [
        path
        for path in sorted((store / "incoming").glob("*/*.parquet"), key=lambda p: p.name)
        if str(path.relative_to(store)) not in known
    ]
    batch: list[Path] = []
    size = 0
    for path in fresh:
        size += path.stat().st_size
        if batch and size > MAX_BYTES_PER_BATCH:
            break
        batch.append(path)
    return batch


def load_segments(con: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Make `unit.segments` the rows of `paths`, with every declared column."""
    con.execute(
        "create or replace table memory.unit.segments as"
        " from store.segments"
        " union all by name"
        " select columns(lambda c: list_contains($columns, c))"
        " from read_parquet($paths, union_by_name = true)",
        {
            "paths": [str(path) for path in paths],
            "columns": [row[0] for row in con.sql("describe store.segments").fetchall()],
        },
    )
