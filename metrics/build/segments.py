"""Which segment files are new, their rows laid over the declared columns, and fewer, larger files.

Receivers write many small segments into `incoming/`; the builder lays the consumed ones together
into `record/`. Knows file names and nothing of what is in them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

MAX_BYTES_PER_BATCH = 64 * 2**20
"""Segment bytes read at once: bounds the builder's memory after a long pause."""

COMPACT_AT = 256
"""Consumed segments of one receiver that are laid together. A reader pays a third of a millisecond
a file, and a folder of a day's segments would have some 300,000."""

_FOLDERS = ("record", "incoming")


def new_segments(con: duckdb.DuckDBPyConnection, store: Path) -> list[Path]:
    """Segments not yet consumed, oldest name first, at most one batch of them."""
    known = _consumed(con)
    fresh = sorted(
        (path for path in _segments(store) if str(path.relative_to(store)) not in known),
        key=lambda path: path.name,
    )
    batch: list[Path] = []
    size = 0
    for path in fresh:
        size += path.stat().st_size
        if batch and size > MAX_BYTES_PER_BATCH:
            break
        batch.append(path)
    return batch


def load_segments(con: duckdb.DuckDBPyConnection, store: Path, paths: list[Path]) -> list[Path]:
    """Make `unit.segments` the rows of `paths`, with every declared column.

    Returns the files whose rows are in: one that can't be read goes whole to the quarantine, with
    the reason, and costs the others nothing.
    """
    try:
        _load(con, paths)
    except duckdb.Error:
        readable = [path for path in paths if _is_readable(con, store, path)]
        _load(con, readable)
        return readable
    return paths


def _load(con: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    described = con.sql("describe store.segments").fetchall()
    rows = (
        " union all by name"
        " select columns(lambda c: list_contains($columns, c))"
        " from read_parquet($paths, union_by_name = true)"
    )
    con.execute(
        f"create or replace table memory.unit.segments as from store.segments{rows * bool(paths)}",
        {"paths": [str(path) for path in paths], "columns": [row[0] for row in described]}
        if paths
        else {},
    )


def _is_readable(con: duckdb.DuckDBPyConnection, store: Path, path: Path) -> bool:
    """Whether a segment's rows can be had; what can't be read is set aside, not lost."""
    try:
        _load(con, [path])
    except duckdb.Error as error:
        folder = store / "quarantine" / "segments"
        folder.mkdir(parents=True, exist_ok=True)
        note = {"path": str(path.relative_to(store)), "reason": str(error)}
        (folder / f"{path.name}.json").write_text(json.dumps(note) + "\n", encoding="utf-8")
        path.rename(folder / path.name)
        return False
    return True


def compact(con: duckdb.DuckDBPyConnection, store: Path) -> int:
    """Lay consumed small segments together; how many files were replaced.

    A crash at any point leaves rows twice in the record, never less than once: staging takes a row
    once. The newest segment of a receiver stays, its number is where the receiver goes on.
    """
    known = _consumed(con)
    n_replaced = 0
    for folder in sorted((store / "incoming").glob("*/")):
        names = sorted(path.name for path in folder.glob("*.parquet"))[:-1]
        done = [folder / name for name in names if f"incoming/{folder.name}/{name}" in known]
        if len(done) < COMPACT_AT:
            continue
        target = store / "record" / folder.name / f"{done[0].stem}+{len(done)}.parquet"
        _lay_together(con, done, target)
        con.execute(
            "insert into store.consumed_segments values ($path)",
            {"path": str(target.relative_to(store))},
        )
        for path in done:
            path.unlink()
        con.execute(
            "delete from store.consumed_segments where list_contains($paths, path)",
            {"paths": [str(path.relative_to(store)) for path in done]},
        )
        n_replaced += len(done)
    return n_replaced


def _lay_together(con: duckdb.DuckDBPyConnection, paths: Sequence[Path], target: Path) -> None:
    """One durable file with the rows of `paths`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    torn = target.with_suffix(".parquet.tmp")
    quoted = str(torn).replace("'", "''")
    con.execute(
        "copy (from read_parquet($paths, union_by_name = true))"
        f" to '{quoted}' (format parquet, compression zstd)",
        {"paths": [str(path) for path in paths]},
    )
    with torn.open("rb") as file:
        os.fsync(file.fileno())
    torn.rename(target)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _segments(store: Path) -> list[Path]:
    return [path for name in _FOLDERS for path in (store / name).glob("*/*.parquet")]


def _consumed(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in con.sql("select path from store.consumed_segments").fetchall()}
