"""What the client saw of each attempt, one JSON row written the moment it ends."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self, TextIO

from serving_probe.errors import ReplayError


@dataclass(slots=True)
class Record:
    """One attempt on the client's clock; None is unknown. `ttft_s` and `e2e_s` count from the send.

    `gaps_us` has one entry fewer than there were chunks. Token counts are the server's usage.
    """

    request_id: str
    attempt: int
    trace_id: str
    conversation_id: str | None
    tenant_id: str | None
    slo_class: str | None
    planned_input_tokens: int
    planned_output_tokens: int
    scheduled_unix_ns: int
    sent_unix_ns: int | None = None
    first_chunk_unix_ns: int | None = None
    ended_unix_ns: int | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    n_chunks: int = 0
    gaps_us: list[int] = field(default_factory=list)
    outcome: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None


class RecordFile:
    """Appends rows to a new file; without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8", buffering=1)
            except OSError as error:
                raise ReplayError(
                    f"cannot write records to {self._path}: {error.strerror};"
                    " choose another file with --out."
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, record: Record) -> None:
        """Add a row; it is in the file when this returns."""
        if self._file is not None:
            self._file.write(json.dumps(asdict(record)) + "\n")


def read_records(path: Path) -> list[Record]:
    """The rows of a record file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Record(**json.loads(line)) for line in lines]
