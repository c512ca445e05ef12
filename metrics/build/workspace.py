"""The builder's own database: every model's rows, and what is still to be computed.

`STORE/build.duckdb` is working memory, not record: it can be deleted at any time and the next
build makes it again from the segments. One process holds it at a time, by DuckDB's own lock.
Scratch tables live in memory under `unit`, in front of the stored ones on the search path, so a
model that runs for a unit of data reads the unit's rows where there are any.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl

from metrics.build.models import Model, Unit, load_macros, load_models
from metrics.errors import BuilderBusyError, ModelError

PENDING = {"pending_requests": "request_key varchar", "pending_hours": "hour_at timestamp"}
"""Keys whose rows are out of date: written with the change itself, cleared with its result."""

_KEY_OF = {pending: columns.split()[0] for pending, columns in PENDING.items()}

_BOOKKEEPING = {
    "consumed_segments": "path varchar",
    "ledger_digests": "name varchar, digest varchar",
    "fingerprint": "digest varchar",
}


class Workspace:
    """An open working database with a table for every model."""

    def __init__(self, path: Path | None, ledger: Mapping[str, pl.DataFrame]) -> None:
        """Open `path` (None: in memory, for tests) and lay the ledger's tables into it.

        Raises `BuilderBusyError` when another process holds it.
        """
        self.models = load_models()
        # One thread: on the small units of a live build a second one costs a fifth more CPU.
        self.con = duckdb.connect(config={"threads": 1, "memory_limit": "4GB"})
        self._attach(path)
        self.con.execute("create schema unit")
        self.con.execute("set search_path = 'memory.unit,store.main'")
        for macro in load_macros():
            self.con.execute(macro)
        if path is not None and self._fingerprint_changed():
            self._start_over(path)
        for name, columns in (_BOOKKEEPING | PENDING).items():
            self.con.execute(f"create table if not exists store.main.{name} ({columns})")
        self._new_ledger = {
            name: digest
            for name, frame in ledger.items()
            if (digest := self._lay_ledger(name, frame)) is not None
        }
        self._create_model_tables()

    def close(self) -> None:
        """Let go of the database."""
        self.con.close()

    def of_unit(self, unit: Unit) -> list[Model]:
        """The models of one unit, in running order."""
        return [model for model in self.models if model.unit is unit]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on the stored tables."""
        self.con.execute("begin")
        try:
            yield
        except BaseException:
            self.con.execute("rollback")
            raise
        self.con.execute("commit")

    def accept_ledger(self, marks: Iterable[tuple[str, str]]) -> None:
        """Prices or promises that are new put everything out of date, and are new no longer."""
        if not self._new_ledger:
            return
        with self.transaction():
            for pending, select in marks:
                self.mark(pending, select)
            for name, digest in self._new_ledger.items():
                self.con.execute("delete from store.ledger_digests where name = ?", [name])
                self.con.execute("insert into store.ledger_digests values (?, ?)", [name, digest])
        self._new_ledger.clear()

    def run(self, model: Model) -> None:
        """Compute a model's rows into `unit`."""
        self._execute(model, f"create or replace table memory.unit.{model.name} as {model.select}")

    def set_scratch(self, name: str, select: str) -> None:
        """Compute a query into `unit`."""
        self.con.execute(f"create or replace table memory.unit.{name} as {select}")

    def clear_scratch(self) -> None:
        """Forget the scratch tables."""
        names = self.con.sql(
            "select table_name from duckdb_tables()"
            " where database_name = 'memory' and schema_name = 'unit'"
        ).fetchall()
        for (name,) in names:
            self.con.execute(f'drop table memory.unit."{name}"')

    def mark(self, pending: str, select: str) -> None:
        """Note the keys that `select` gives as out of date."""
        self.con.execute(f"insert into store.{pending} {select}")

    def take(self, pending: str, dirty: str, limit: int) -> int:
        """Make `unit.<dirty>` the next keys of `pending`; how many there are."""
        key = _KEY_OF[pending]
        self.set_scratch(
            dirty, f"select distinct {key} from store.{pending} order by {key} limit {limit}"
        )
        return self.count(dirty)

    def count(self, scratch: str) -> int:
        """How many rows a scratch table has."""
        [(n_rows,)] = self.con.sql(f"select count(*) from memory.unit.{scratch}").fetchall()
        return int(n_rows)

    def append(self, model: Model, into: str | None = None) -> None:
        """Insert a segment model's rows; those already there by its key are left as they are."""
        target = into or model.name
        same = " and ".join(f"old.{c} is not distinct from new.{c}" for c in model.key)
        self.con.execute(
            f"insert into store.{target} by name from memory.unit.{model.name} as new"
            f" where not exists (from store.{target} as old where {same})"
        )

    def replace(self, models: list[Model], pending: str, dirty: str) -> None:
        """Put the unit's rows in the place of the old ones, and clear the unit from `pending`."""
        key = _KEY_OF[pending]
        is_dirty = f"{key} in (select {key} from memory.unit.{dirty})"
        with self.transaction():
            for model in models:
                self.con.execute(f"delete from store.{model.name} where {is_dirty}")
                self._insert(model)
            self.con.execute(f"delete from store.{pending} where {is_dirty}")

    def replace_whole(self, model: Model) -> None:
        """Put a small model's rows in the place of all its old ones."""
        with self.transaction():
            self.con.execute(f"delete from store.{model.name}")
            self._insert(model)

    def advance_watermark(self) -> None:
        """Note how far the record reaches now."""
        [reached] = self.con.execute(
            "select max(received_unix_ns) from ("
            " select received_unix_ns from store.watermark"
            " union all select received_unix_ns from memory.unit.segments)"
        ).fetchall()
        self.con.execute("delete from store.watermark")
        self.con.execute("insert into store.watermark values (?)", reached)

    def note_consumed(self, segments: list[Path]) -> None:
        """These segments' rows are in."""
        self.con.execute(
            "insert into store.consumed_segments select unnest($paths::varchar[])",
            {"paths": [str(path) for path in segments]},
        )

    def export(self, path: Path) -> None:
        """Write the published relations, and when they were, to a new database file."""
        self.con.execute(f"attach {_quoted(str(path))} as warehouse")
        try:
            for model in self.models:
                if model.published_name is not None:
                    self.con.execute(
                        f"create table warehouse.main.{model.published_name}"
                        f" as from store.{model.name}"
                    )
            self.con.execute(
                "create table warehouse.main.publication as"
                " select now()::timestamp as published_at,"
                " (select max(received_unix_ns) from store.watermark) as received_unix_ns"
            )
        finally:
            self.con.execute("detach warehouse")

    def _insert(self, model: Model) -> None:
        self.con.execute(f"insert into store.{model.name} by name from memory.unit.{model.name}")

    def _lay_ledger(self, name: str, frame: pl.DataFrame) -> str | None:
        """Lay a ledger table; its digest when that isn't what the last build accepted."""
        content = f"{frame.schema}{frame.write_ndjson()}"
        digest = hashlib.sha256(content.encode()).hexdigest()
        known = self.con.execute(
            "select digest from store.ledger_digests where name = $name", {"name": name}
        ).fetchall()
        if known == [(digest,)]:
            return None
        self.con.register("incoming_frame", frame)
        self.con.execute(f"create or replace table store.{name} as from incoming_frame")
        self.con.unregister("incoming_frame")
        return digest

    def _attach(self, path: Path | None) -> None:
        target = ":memory:" if path is None else str(path)
        try:
            self.con.execute(f"attach {_quoted(target)} as store")
        except duckdb.IOException as error:
            if "lock" in str(error):
                raise BuilderBusyError(
                    f"another process is building this store ({path} is locked); stop it first."
                ) from error
            raise BuilderBusyError(f"cannot open {path} to build in it: {error}.") from error

    def _create_model_tables(self) -> None:
        for model in self.models:
            sql = f"create table if not exists store.main.{model.name} as select * from ("
            self._execute(model, f"{sql}{model.select}\n) limit 0")
        self.con.execute("delete from store.fingerprint")
        self.con.execute("insert into store.fingerprint values ($d)", {"d": self._fingerprint()})

    def _execute(self, model: Model, statement: str) -> None:
        try:
            self.con.execute(statement)
        except duckdb.Error as error:
            raise ModelError(f"model {model.name} failed: {error}") from error

    def _fingerprint(self) -> str:
        text = "".join(model.select for model in self.models) + "".join(load_macros())
        return hashlib.sha256(text.encode()).hexdigest()

    def _fingerprint_changed(self) -> bool:
        known = self.con.sql(
            "select count(*) from duckdb_tables()"
            " where database_name = 'store' and table_name = 'fingerprint'"
        ).fetchall()
        if known == [(0,)]:
            return False
        return self.con.sql("from store.fingerprint").fetchall() != [(self._fingerprint(),)]

    def _start_over(self, path: Path) -> None:
        """The models have changed: what the old ones computed is worth nothing."""
        self.con.execute("set search_path = 'memory.unit'")
        self.con.execute("detach store")
        for stale in (path, path.with_name(path.name + ".wal")):
            stale.unlink(missing_ok=True)
        self._attach(path)
        self.con.execute("set search_path = 'memory.unit,store.main'")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
