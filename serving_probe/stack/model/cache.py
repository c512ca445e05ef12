"""The folder of converted models: where it is, and how a file gets into it whole.

Two processes may convert at once: one works, the other waits on the lock and finds it done.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from serving_probe.stack.errors import ModelError


def cache_folder(name: str) -> Path:
    """Folder for one model's files, made if missing: under `TOKENMILL_CACHE` or ~/.cache."""
    root = os.environ.get("TOKENMILL_CACHE") or Path.home() / ".cache" / "tokenmill"
    folder = Path(root) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"the model cache {folder} can't be made ({error.strerror}): set TOKENMILL_CACHE to a "
            "folder that can be written."
        ) from error
    return folder


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock on making `target`; it goes with the process, however that ends."""
    with target.with_name(f".{target.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path to write to, which becomes `target` only when the block ends well."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb") as handle:
            os.fsync(handle.fileno())
        draft.replace(target)
    except OSError as error:
        raise ModelError(f"{target} can't be written: {error.strerror or error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = sha256()
    with path.open("rb") as handle:
        while piece := handle.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()
