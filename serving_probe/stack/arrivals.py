"""Sequences handed over to a decode worker: from the message to their pages being in place.

In order of arrival: one that waits for pages holds up those behind it, so that a long sequence
isn't starved by short ones.
"""

import time
from collections.abc import Callable, Iterator

from serving_probe.stack.kv.pages import PageLedger
from serving_probe.stack.meter import Phase, Spent, Stopwatch
from serving_probe.stack.sequence import Sequence
from serving_probe.stack.transfer.link import Link, Transfer, TransferState


class Arrivals:
    """Transfers under way and those that wait for pages."""

    def __init__(
        self, link: Link, ledger: PageLedger, n_pages: Callable[[Sequence], int], spent: Spent
    ) -> None:
        """`n_pages` says how many pages a sequence takes; time goes to `spent` as well."""
        self._link = link
        self._ledger = ledger
        self._n_pages = n_pages
        self._spent = spent
        self._sequences: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._sequences.values()))

    def add(self, seq: Sequence) -> None:
        """Take up a sequence that has an offered transfer."""
        self._sequences[seq.attempt_id] = seq

    def pop(self, attempt_id: str) -> Sequence | None:
        """Take a sequence out; None when it isn't here."""
        return self._sequences.pop(attempt_id, None)

    def advance(self) -> tuple[list[Sequence], bool]:
        """Move each transfer a step: those that ended, which leave, and whether anything moved."""
        ended = []
        did_move = is_full = False
        for seq in self:
            transfer = seq.transfer
            assert transfer is not None, "only handoffs arrive"
            watch = Stopwatch()
            if transfer.state is TransferState.OFFERED and not self._begin(seq, transfer, is_full):
                is_full = True
                continue
            self._link.poll(transfer)
            wall_ns, cpu_ns = watch.read()
            seq.spent.add(Phase.KV_TRANSFER, wall_ns, cpu_ns)
            self._spent.add(Phase.KV_TRANSFER, wall_ns, cpu_ns)
            did_move = True
            if transfer.state.is_final:
                del self._sequences[seq.attempt_id]
                ended.append(seq)
        return ended, did_move

    def _begin(self, seq: Sequence, transfer: Transfer, is_full: bool) -> bool:
        # False: no pages yet.
        if transfer.is_late:
            transfer.fail(
                TransferState.EXPIRED,
                f"the lease of {transfer.export.ttl_s:.1f} s on {transfer.export.worker_id}'s "
                "pages ended while no pages were free here: add decode capacity or raise lease_s.",
            )
            return True
        n_pages = self._n_pages(seq)
        if is_full or n_pages > self._ledger.n_free:
            return False
        seq.pages = self._ledger.allocate(n_pages)
        self._link.begin(transfer, seq.pages)
        transfer.setup_s = time.monotonic() - transfer.offered_at
        return True
