"""Bodies that could not be read, kept whole with the reason, within a bound.

The sender was told "400" and won't send again, so this is the only copy: an operator can find out
what it was. It decides nothing about what is readable.
"""

import json
import threading
import time
import uuid
from pathlib import Path

from ingest.segments import write_durably


class Quarantine:
    """`folder` holds at most `max_files` bodies and `max_bytes` of them; the oldest go first."""

    def __init__(self, folder: Path, max_files: int, max_bytes: int) -> None:
        self.n_kept = 0
        self.n_dropped = 0
        self.n_failed = 0
        self._folder = folder
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def keep(self, body: bytes, reason: str, **about: str) -> None:
        """Keep `body`; where the disk refuses, count it: the answer to the sender stands."""
        name = f"{time.time_ns():020d}-{uuid.uuid4()}"
        note = {"reason": reason, "bytes": len(body), "received_unix_ns": time.time_ns(), **about}
        with self._lock:
            try:
                if len(body) > self._max_bytes:
                    self.n_dropped += 1
                    return
                write_durably(self._folder / f"{name}.bin", body)
                text = json.dumps(note, ensure_ascii=False, indent=1) + "\n"
                write_durably(self._folder / f"{name}.json", text.encode())
                self.n_kept += 1
                self._make_room()
            except OSError:
                self.n_failed += 1

    def _make_room(self) -> None:
        bodies = sorted(self._folder.glob("*.bin"))
        total = sum(path.stat().st_size for path in bodies)
        while bodies and (len(bodies) > self._max_files or total > self._max_bytes):
            oldest = bodies.pop(0)
            total -= oldest.stat().st_size
            oldest.unlink()
            oldest.with_suffix(".json").unlink(missing_ok=True)
            self.n_dropped += 1
