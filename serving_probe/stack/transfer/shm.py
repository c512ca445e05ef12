"""Handoff over shared memory: the importer maps the exporter's pool and copies pages itself.

A page of another number format is converted as it is copied. Knows nothing of messages.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import torch

from serving_probe.stack.core import KvExport
from serving_probe.stack.errors import KvError
from serving_probe.stack.kv.pool import PagePool, attach_pages
from serving_probe.stack.model.config import Precision
from serving_probe.stack.model.weights import TORCH_DTYPES
from serving_probe.stack.transfer.lease import LeaseBook
from serving_probe.stack.transfer.link import Transfer, TransferState

_PAGES_A_POLL: Final = 8
"""About 6 MB of SmolLM2's KV: a few ms, so that decoding goes on between the steps."""


class ShmLink:
    """`Link` between processes of one machine."""

    def __init__(self) -> None:
        self._pool: PagePool | None = None
        self._leases = LeaseBook()
        self._peers: dict[str, tuple[str, torch.Tensor]] = {}  # worker → its segment, mapped

    def register(self, pool: PagePool) -> None:
        """Serve this pool."""
        self._pool = pool

    def export(self, worker_id: str, pages: Sequence[int], n_tokens: int, ttl_s: float) -> KvExport:
        """Offer pages by the segment's name and their numbers."""
        pool = self._own_pool()
        return KvExport(
            lease_id=self._leases.grant(tuple(pages), ttl_s),
            worker_id=worker_id,
            segment=pool.name,
            pages=tuple(pages),
            n_tokens=n_tokens,
            page_bytes=pool.shape.n_bytes,
            dtype=pool.shape.dtype,
            layout=pool.shape.layout,
            ttl_s=ttl_s,
        )

    def begin(self, transfer: Transfer, into: Sequence[int]) -> TransferState:
        """Check the layout, map the exporter's pool on the first time, accept."""
        started = time.perf_counter()
        export, shape = transfer.export, self._own_pool().shape
        if export.layout != shape.layout or export.dtype not in TORCH_DTYPES:
            return transfer.fail(
                TransferState.INCOMPATIBLE,
                f"pages of layout {export.layout} ({export.dtype}) from {export.worker_id} don't "
                f"fit this worker's {shape.layout}: run both with the same model and block size.",
            )
        if len(into) < len(export.pages):
            raise ValueError(f"{len(export.pages)} pages don't fit into {len(into)}")
        try:
            source = self._source(export)
        except KvError as error:
            return transfer.fail(TransferState.FAILED, f"{export.worker_id} is gone: {error}")
        if export.pages and max(export.pages) >= source.shape[0]:
            return transfer.fail(
                TransferState.FAILED, f"{export.worker_id} offers pages that its pool hasn't."
            )
        transfer.into = tuple(into[: len(export.pages)])
        transfer.setup_s = time.perf_counter() - started
        transfer.state = TransferState.ACCEPTED
        return transfer.state

    def poll(self, transfer: Transfer) -> TransferState:
        """Copy the next few pages; the last step looks at the lease once more."""
        if transfer.state.is_final or transfer.state is TransferState.OFFERED:
            return transfer.state
        transfer.state = TransferState.MOVING
        export, own = transfer.export, self._own_pool().tensor
        source = self._source(export)
        until = min(transfer.n_moved + _PAGES_A_POLL, len(export.pages))
        if not transfer.is_late:
            for i in range(transfer.n_moved, until):
                own[transfer.into[i]].copy_(source[export.pages[i]])
            transfer.n_moved = until
        # A lease that ended while pages were read may have let them be overwritten.
        if transfer.is_late:
            return transfer.fail(
                TransferState.EXPIRED,
                f"the lease of {export.ttl_s:.1f} s on {export.worker_id}'s pages ended before "
                "they were read: add decode capacity or raise lease_s.",
            )
        if transfer.n_moved == len(export.pages):
            transfer.state = TransferState.DONE
        return transfer.state

    def release(self, lease_id: str) -> tuple[int, ...]:
        """End one of this exporter's leases."""
        return self._leases.end(lease_id)

    def overdue(self) -> tuple[str, ...]:
        """Leases past their time."""
        return self._leases.overdue()

    def _own_pool(self) -> PagePool:
        assert self._pool is not None, "register() comes first"
        return self._pool

    def _source(self, export: KvExport) -> torch.Tensor:
        known = self._peers.get(export.worker_id)
        if known is None or known[0] != export.segment:
            shape = replace(self._own_pool().shape, dtype=cast("Precision", export.dtype))
            known = (export.segment, attach_pages(export.segment, shape))
            self._peers[export.worker_id] = known
        return known[1]
