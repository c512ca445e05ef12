"""Named memory that processes share: a file in the system's memory folder, mapped.

`multiprocessing.shared_memory` isn't used: before Python 3.13 its resource tracker unlinks, or
warns about, what another process owns. The owner unlinks; `sweep` clears up after a killed one.
"""

import mmap
import os
import tempfile
from pathlib import Path

from serving_probe.stack.errors import KvError


def shared_folder() -> Path:
    """Where segments live: /dev/shm, or the temporary folder where there's none."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def create_segment(name: str, n_bytes: int) -> mmap.mmap:
    """A new zeroed segment; raises `KvError` when the memory folder has no room for it.

    Memory is handed out at first touch, and a touch without room kills the process. So room is
    checked first, less what other segments were promised and haven't touched.
    """
    folder = shared_folder()
    space = os.statvfs(folder)
    n_free = space.f_bavail * space.f_frsize - _promised_bytes(folder)
    if n_bytes > n_free:
        raise KvError(
            f"{folder} has {max(0, n_free) >> 20} MiB free and the KV pool needs {n_bytes >> 20} "
            "MiB: lower n_pages in the topology or enlarge it (Docker: --shm-size)."
        )
    path = folder / name
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise KvError(f"shared memory {path} can't be made: {error.strerror}.") from error
    try:
        os.ftruncate(handle, n_bytes)
        return mmap.mmap(handle, n_bytes)
    except OSError as error:
        path.unlink()
        raise KvError(f"shared memory {path} can't be made: {error.strerror}.") from error
    finally:
        os.close(handle)


def attach_segment(name: str) -> mmap.mmap:
    """Another process's segment, whole; raises `KvError` when it's gone."""
    path = shared_folder() / name
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        raise KvError(f"shared memory {path} can't be opened: {error.strerror}.") from error
    try:
        return mmap.mmap(handle, 0)
    except (OSError, ValueError) as error:
        raise KvError(f"shared memory {path} can't be mapped: {error}.") from error
    finally:
        os.close(handle)


def unlink_segment(name: str) -> None:
    """Take the name away; memory goes when the last mapping does."""
    (shared_folder() / name).unlink(missing_ok=True)


def sweep(prefix: str) -> list[str]:
    """Unlink every segment whose name starts with `prefix`; returns their names."""
    if not prefix:
        raise ValueError("an empty prefix would sweep everybody's memory")
    found = sorted(path.name for path in shared_folder().glob(f"{prefix}*"))
    for name in found:
        unlink_segment(name)
    return found


def _promised_bytes(folder: Path) -> int:
    promised = 0
    for path in folder.iterdir():
        try:
            facts = path.stat()
        except OSError:  # gone meanwhile, or not ours to see
            continue
        promised += max(0, facts.st_size - facts.st_blocks * 512) if path.is_file() else 0
    return promised
