"""The exporter's book of leases: which pages are promised to a reader, and until when."""

import time
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

_GRACE_S: Final = 1.0
"""Held beyond what was told, for the time the offer was on its way."""


@dataclass(frozen=True, slots=True)
class _Lease:
    pages: tuple[int, ...]
    ends_at: float


class LeaseBook:
    """Leases by id; time is this process's monotonic clock."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, pages: tuple[int, ...], ttl_s: float) -> str:
        """A new lease on `pages`; its id."""
        lease_id = uuid4().hex[:16]
        self._leases[lease_id] = _Lease(pages, time.monotonic() + ttl_s + _GRACE_S)
        return lease_id

    def end(self, lease_id: str) -> tuple[int, ...]:
        """The lease's pages, once; nothing for a lease that isn't there any more."""
        lease = self._leases.pop(lease_id, None)
        return lease.pages if lease else ()

    def overdue(self) -> tuple[str, ...]:
        """Leases whose time is up."""
        now = time.monotonic()
        return tuple(i for i, lease in self._leases.items() if lease.ends_at <= now)
