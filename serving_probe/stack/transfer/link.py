"""One interface for moving KV pages between workers: one-sided reads under a lease.

The exporter offers pages and holds them until a release or the lease's end; the importer reads
them without the exporter's help. Messages travel elsewhere (`core`); a backend moves bytes only.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from serving_probe.stack.core import KvExport
from serving_probe.stack.kv.pool import PagePool


class TransferState(StrEnum):
    """Where a transfer stands, as its importer sees it."""

    OFFERED = "offered"  # the export has arrived, pages to put it into haven't been given
    ACCEPTED = "accepted"
    MOVING = "moving"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    INCOMPATIBLE = "incompatible"

    @property
    def is_final(self) -> bool:
        """Nothing more will come."""
        return self not in (TransferState.OFFERED, TransferState.ACCEPTED, TransferState.MOVING)


@dataclass(slots=True)
class Transfer:
    """One export on its way into the importer's own pages."""

    export: KvExport
    expires_at: float  # this process's monotonic clock; the lease's remaining time is what travels
    state: TransferState = TransferState.OFFERED
    into: tuple[int, ...] = ()
    n_moved: int = 0  # pages
    setup_s: float = 0.0
    reason: str = ""  # why it failed, for a person
    offered_at: float = field(default_factory=time.monotonic)

    @classmethod
    def offered(cls, export: KvExport) -> "Transfer":
        """A transfer for an export that has just arrived."""
        return cls(export, time.monotonic() + export.ttl_s)

    @property
    def is_late(self) -> bool:
        """The lease has ended: what the pages hold can't be trusted."""
        return time.monotonic() >= self.expires_at

    def fail(self, state: TransferState, reason: str) -> TransferState:
        """End the transfer without success."""
        self.state, self.reason = state, reason
        return state


class Link(Protocol):
    """What a transport does for a worker, as exporter and as importer."""

    def register(self, pool: PagePool) -> None:
        """Serve this pool: its pages are exported, and imports go into it."""

    def export(self, worker_id: str, pages: Sequence[int], n_tokens: int, ttl_s: float) -> KvExport:
        """Offer pages for reading; they must stay as they are until the lease ends."""

    def begin(self, transfer: Transfer, into: Sequence[int]) -> TransferState:
        """Accept an offer into own pages; an offer that can't be read ends here."""

    def poll(self, transfer: Transfer) -> TransferState:
        """Move on by a bounded step; says where the transfer stands."""

    def release(self, lease_id: str) -> tuple[int, ...]:
        """End a lease: the pages to give back, none when it has ended before."""

    def overdue(self) -> tuple[str, ...]:
        """Leases whose time is up and which nobody has released."""
