"""The one door for readers of the published warehouse.

Reads, never writes: any number of processes may hold a `Warehouse`, and none can block the
builder. Sees the newest publication at every question.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb
import polars as pl

from metrics.errors import NothingPublishedError, QueryFailedError
from sql import SQL_ROOT

_SEARCH_PATH = "set search_path = 'warehouse.main,memory.main'"


class Warehouse:
    """A store's published relations; safe to share between threads."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.path = store / "warehouse.duckdb"
        self._lock = threading.Lock()
        self._con: duckdb.DuckDBPyConnection | None = None
        self._seen: tuple[int, int] | None = None

    def sql(self, query: str, parameters: Mapping[str, object] | None = None) -> pl.DataFrame:
        """The rows of one SELECT over the published relations.

        Raises `NothingPublishedError` before the first build and `QueryFailedError`, with
        DuckDB's reason, when the query can't be answered.
        """
        with self._lock:
            con = self._connect().cursor()
        try:
            con.execute(_SEARCH_PATH)
            relation = con.sql(query, params=dict(parameters or {}))
            if relation is None:
                raise QueryFailedError("the query gives no rows: ask with a SELECT.")
            frame: pl.DataFrame = relation.pl()
            return frame
        except duckdb.Error as error:
            raise QueryFailedError(f"the query failed: {error}") from error
        finally:
            con.close()

    def report(self, name: str, parameters: Mapping[str, object] | None = None) -> pl.DataFrame:
        """The rows of the report `sql/reports/rpt_<name>.sql`; errors as for `sql`."""
        return self.sql(_report_text(name), parameters)

    def published_at(self) -> datetime | None:
        """When the newest publication was made (UTC); None before the first."""
        try:
            frame = self.sql("select published_at from publication")
        except NothingPublishedError:
            return None
        value = frame.item()
        assert isinstance(value, datetime)
        return value.replace(tzinfo=UTC)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._con is not None:
                self._con.close()
            self._con = self._seen = None

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """A connection to the newest file.

        A process that holds a connection to a path keeps getting the old file after a rename;
        an in-memory connection that attaches it anew sees the new one.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise NothingPublishedError(
                f"nothing is published in {self.store} yet: run `tokenmill build`, or wait for"
                " the running builder."
            ) from None
        identity = (status.st_ino, status.st_mtime_ns)
        if self._con is None or self._seen != identity:
            fresh = duckdb.connect(config={"threads": 2})
            quoted = str(self.path).replace("'", "''")
            try:
                fresh.execute(f"attach '{quoted}' as warehouse (read_only)")
                fresh.execute(_SEARCH_PATH)
                for macro in _report_macros():
                    fresh.execute(macro)
                fresh.execute("set enable_external_access = false")  # a reader writes no files
            except duckdb.Error as error:
                fresh.close()
                raise QueryFailedError(f"cannot read {self.path}: {error}") from error
            if self._con is not None:
                self._con.close()
            self._con, self._seen = fresh, identity
        return self._con


@cache
def _report_macros() -> tuple[str, ...]:
    """What several reports say alike: table macros over the published relations."""
    paths = sorted((SQL_ROOT / "reports" / "macros").glob("*.sql"))
    return tuple(path.read_text(encoding="utf-8") for path in paths)


@cache
def _report_text(name: str) -> str:
    path = SQL_ROOT / "reports" / f"rpt_{name}.sql"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise QueryFailedError(f"there is no report named {name!r}.") from None
