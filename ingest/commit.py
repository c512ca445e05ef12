"""Group commit: bodies that arrive together become one durable file, and only then are answered.

One bounded queue, one worker thread: the caller's event loop goes on accepting while it decodes and
writes. It knows bodies, futures and files; HTTP and gRPC are its callers' matter.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from ingest import wire_upb
from ingest.dialects import Dialects
from ingest.errors import BusyError, IngestError, UnreadableBodyError
from ingest.frames import Frame, Signal
from ingest.quarantine import Quarantine
from ingest.rows import Batch, segment_rows
from ingest.segments import SegmentWriter

Decode = Callable[[Signal, list[bytes]], Frame]

_UNUSABLE = (IngestError, pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError)
"""What a hostile body may raise on its way to rows: it costs that body, never its neighbours."""


class CommitLimits(BaseModel):
    """How much is gathered before a write, and how much may wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    linger_s: Annotated[float, Field(ge=0, le=0.05, description="wait for company")] = 0.05
    commit_bytes: Annotated[int, Field(gt=0, description="write at once above this")] = 4 * 2**20
    queue_bodies: Annotated[int, Field(gt=0, description="full above this")] = 4096
    queue_bytes: Annotated[int, Field(gt=0, description="full above this")] = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one body came to, now that it is on disk."""

    rejected: int = 0
    repaired: int = 0


@dataclass(slots=True)
class CommitStats:
    """Counters since the start."""

    bodies: int = 0
    body_bytes: int = 0
    rows: int = 0
    rejected_rows: int = 0
    repaired: int = 0
    unreadable_bodies: int = 0
    busy: int = 0
    segments: int = 0
    segment_bytes: int = 0
    write_errors: int = 0


@dataclass(slots=True)
class _Waiting:
    signal: Signal
    body: bytes
    received_unix_ns: int
    answer: Future[Receipt] = field(default_factory=Future)


class Committer:
    """Takes bodies, answers each when its rows are durable. `close` writes what still waits."""

    def __init__(
        self,
        writer: SegmentWriter,
        receiver: str,
        dialects: Dialects,
        quarantine: Quarantine,
        limits: CommitLimits,
        decode: Decode,
    ) -> None:
        self.stats = CommitStats()
        self._writer = writer
        self._receiver = receiver
        self._dialects = dialects
        self._quarantine = quarantine
        self._limits = limits
        self._decode = decode
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._is_open = True
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    @property
    def queue_depth(self) -> int:
        """Bodies that wait."""
        return len(self._queue)

    @property
    def queue_bytes(self) -> int:
        """Bytes that wait."""
        return self._queue_bytes

    @property
    def is_running(self) -> bool:
        """Whether bodies are still taken."""
        return self._is_open and self._thread.is_alive()

    def submit(self, signal: Signal, body: bytes) -> Future[Receipt]:
        """A future of what `body` came to. It raises UnreadableBodyError or BusyError.

        BusyError at once when the queue is full or closing; nothing of the body is kept then.
        """
        waiting = _Waiting(signal, body, time.time_ns())
        waiting.answer.set_running_or_notify_cancel()  # what is being written can't be cancelled
        with self._changed:
            if not self.is_running:
                self.stats.busy += 1
                raise BusyError("the receiver is closing: send again")
            full = len(self._queue) >= self._limits.queue_bodies
            if full or (self._queue and self._queue_bytes + len(body) > self._limits.queue_bytes):
                self.stats.busy += 1
                raise BusyError(
                    f"the queue is full ({len(self._queue)} bodies, {self._queue_bytes} bytes): "
                    "send again"
                )
            self._queue.append(waiting)
            self._queue_bytes += len(body)
            self._changed.notify()
        return waiting.answer

    def close(self) -> None:
        """Take no more, write what waits, stop."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        group: list[_Waiting] = []
        try:
            while group := self._gather():
                self._commit(group)
        finally:
            with self._changed:
                self._is_open = False
                lost = [*group, *self._queue]
            for waiting in lost:
                if not waiting.answer.done():
                    waiting.answer.set_exception(BusyError("the receiver stopped: send again"))

    def _gather(self) -> list[_Waiting]:
        """The next group, oldest first; empty once closed and drained."""
        with self._changed:
            while self._is_open and not self._queue:
                self._changed.wait()
            deadline = time.monotonic() + self._limits.linger_s
            while self._is_open and self._queue_bytes < self._limits.commit_bytes:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            group: list[_Waiting] = []
            size = 0
            while self._queue and (not group or size < self._limits.commit_bytes):
                waiting = self._queue.popleft()
                size += len(waiting.body)
                group.append(waiting)
            self._queue_bytes -= size
            return group

    def _commit(self, group: list[_Waiting]) -> None:
        tables: list[pa.Table] = []
        receipts: list[tuple[_Waiting, Receipt]] = []
        for signal in Signal:
            of_signal = [waiting for waiting in group if waiting.signal is signal]
            for batch, waiters in self._read(signal, of_signal):
                tables.append(batch.table)
                receipts += [
                    (waiting, Receipt(rejected, repaired))
                    for waiting, rejected, repaired in zip(
                        waiters, batch.rejected.tolist(), batch.repaired.tolist(), strict=True
                    )
                ]
        rows = pa.concat_tables(tables) if tables else None
        try:
            if rows is not None and rows.num_rows:
                path = self._writer.write(rows)
                self.stats.segments += 1
                self.stats.segment_bytes += path.stat().st_size
        except OSError as error:
            self.stats.write_errors += 1
            refused = BusyError(f"can't write to the store now ({error.strerror}): send again")
            for waiting, _ in receipts:
                waiting.answer.set_exception(refused)
            return
        self._answer(receipts, 0 if rows is None else rows.num_rows)

    def _answer(self, receipts: list[tuple[_Waiting, Receipt]], n_rows: int) -> None:
        self.stats.rows += n_rows
        for waiting, receipt in receipts:
            self.stats.bodies += 1
            self.stats.body_bytes += len(waiting.body)
            self.stats.rejected_rows += receipt.rejected
            self.stats.repaired += receipt.repaired
            waiting.answer.set_result(receipt)

    def _read(self, signal: Signal, waiters: list[_Waiting]) -> list[tuple[Batch, list[_Waiting]]]:
        """Rows of the bodies that can be read; the others are kept aside and answered here."""
        if not waiters:
            return []
        try:
            return [(self._rows(self._decode, signal, waiters), waiters)]
        except _UNUSABLE as error:
            if len(waiters) > 1:
                return [read for waiting in waiters for read in self._read(signal, [waiting])]
            return self._second_opinion(signal, waiters[0], error)

    def _second_opinion(
        self, signal: Signal, waiting: _Waiting, first: Exception
    ) -> list[tuple[Batch, list[_Waiting]]]:
        """What the slow decoder makes of a body that the fast one refused."""
        try:
            return [(self._rows(wire_upb.decode, signal, [waiting]), [waiting])]
        except _UNUSABLE:
            reason = str(first) or type(first).__name__
            self.stats.unreadable_bodies += 1
            self._quarantine.keep(waiting.body, reason, signal=str(signal))
            waiting.answer.set_exception(UnreadableBodyError(reason))
            return []

    def _rows(self, decode: Decode, signal: Signal, waiters: list[_Waiting]) -> Batch:
        frame = decode(signal, [waiting.body for waiting in waiters])
        received = [waiting.received_unix_ns for waiting in waiters]
        return segment_rows(frame, self._dialects, received, self._receiver)
