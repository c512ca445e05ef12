"""Which worker holds which KV blocks, fed by the workers' stored and removed events.

A mirror, late by one message: an overlap is a prediction, and only a worker's own count of reused
tokens ever becomes a number.
"""

from collections.abc import Iterable, Sequence


class PrefixIndex:
    """Block hashes by worker."""

    def __init__(self) -> None:
        self._blocks: dict[str, set[str]] = {}

    def stored(self, worker_id: str, block_hashes: Iterable[str]) -> None:
        """These blocks are now resident on the worker."""
        self._blocks.setdefault(worker_id, set()).update(block_hashes)

    def removed(self, worker_id: str, block_hashes: Iterable[str]) -> None:
        """These blocks have left the worker."""
        self._blocks.get(worker_id, set()).difference_update(block_hashes)

    def forget(self, worker_id: str) -> None:
        """The worker has gone, and its memory with it."""
        self._blocks.pop(worker_id, None)

    def overlap_blocks(self, worker_id: str, block_hashes: Sequence[str]) -> int:
        """Leading blocks of a prompt that the worker holds, without a hole."""
        held = self._blocks.get(worker_id)
        if not held:
            return 0
        for i, block in enumerate(block_hashes):
            if block not in held:
                return i
        return len(block_hashes)
