"""The store's layout on disk, and how one segment file comes to be there for good.

Knows files, names, fsync and locks; nothing of what the rows say.
"""

import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import ReceiverError, StoreError
from ingest.schema import FORMAT_VERSION, SEGMENT


def _leaf_paths(name: str, kind: pa.DataType) -> list[str]:
    """Parquet's names of the leaves of a column."""
    if pa.types.is_list(kind):
        return _leaf_paths(f"{name}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [path for field in kind for path in _leaf_paths(f"{name}.{field.name}", field.type)]
    return [name]


_GAPS: Final = {
    f"{name}.list.element": "BYTE_STREAM_SPLIT"
    for name in ("chunk_gaps_us", "chunk_tokens", "chunk_choices")
}
"""Two bytes a gap instead of two and a half; such columns can't be dictionary-encoded as well."""

_PATHS: Final = [path for field in SEGMENT for path in _leaf_paths(field.name, field.type)]
_STATISTICS: Final = ["received_unix_ns", "bucket", "start_unix_ns", "end_unix_ns"]
"""Columns readers prune by; in a small file the others' statistics weigh more than the rows."""


def _dictionary_paths(table: pa.Table) -> list[str]:
    """Columns to dictionary-encode: those that hold something, and no gaps."""
    empty = {name for name in table.column_names if table[name].null_count == table.num_rows}
    return [path for path in _PATHS if path not in _GAPS and path.split(".")[0] not in empty]


class Store:
    """A folder of tokenmill's; `open` makes or checks it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """The store at `path`, made if it isn't there; StoreError if it can't be used."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            found = _version(path / "format.json")
            if found is None:
                content = json.dumps({"version": FORMAT_VERSION}) + "\n"
                write_durably(path / "format.json", content.encode())
            elif found > FORMAT_VERSION:
                raise StoreError(
                    f"the store {path} has format {found}, this tokenmill reads up to "
                    f"{FORMAT_VERSION}: use the tokenmill that wrote it, or a newer one"
                )
            for folder in ("incoming", "quarantine"):
                (path / folder).mkdir(exist_ok=True)
            if not os.access(path / "incoming", os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(path / "incoming"))
        except OSError as error:
            raise StoreError(
                f"can't write to the store {path}: {error.strerror}: choose a folder that this "
                "user may write to, with --store or TOKENMILL_STORE"
            ) from error
        return cls(path)

    def writer(self, receiver: str) -> "SegmentWriter":
        """The one writer of `incoming/<receiver>/`; ReceiverError if another process is it."""
        return SegmentWriter(self.path / "incoming" / receiver)


class SegmentWriter:
    """Writes segments into one folder under rising numbers, which go on after a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ReceiverError(
                f"another receiver writes to {folder}: stop it, or choose another store"
            ) from error
        for torn in folder.glob("*.tmp"):
            torn.unlink()  # never acknowledged: its senders still have it
        self.sequence = 1 + max(map(_sequence, folder.glob("*.parquet")), default=-1)
        fsync_folder(folder.parent)

    def write(self, table: pa.Table) -> Path:
        """Where `table` now lies, durably; OSError if it can't, and then nothing is left behind."""
        path = self.folder / f"{self.sequence:012d}-{uuid.uuid4()}.parquet"
        torn = path.with_suffix(".parquet.tmp")
        try:
            with torn.open("wb") as file:
                pq.write_table(
                    table,
                    file,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=_dictionary_paths(table),
                    column_encoding=_GAPS,
                    write_statistics=_STATISTICS,
                    store_schema=False,
                )
                file.flush()
                os.fsync(file.fileno())
            torn.rename(path)
            fsync_folder(self.folder)
        except OSError:
            torn.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise
        self.sequence += 1
        return path

    def close(self) -> None:
        """Let another process write here."""
        os.close(self._lock)


def write_durably(path: Path, content: bytes) -> None:
    """Put `content` at `path` by rename, on disk before this returns."""
    torn = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with torn.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        torn.rename(path)
    except OSError:
        torn.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _version(path: Path) -> int | None:
    """The store's format; None where there is no store yet."""
    if not path.exists():
        return None
    try:
        version = json.loads(path.read_text(encoding="utf-8"))["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path} doesn't say the store's format version: restore it, or use another folder"
        ) from error
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"{path} says version {version!r}, a whole number from 1 was expected")
    return version


def _sequence(path: Path) -> int:
    number = path.name.split("-", 1)[0]
    return int(number) if number.isdigit() else -1
