"""Finds the KV of prompts' beginnings that were computed before.

Full blocks hang in chains by their hash (`hashing`). A block stays while a later block of its
chain does, so eviction takes leaves first, the longest unused one of them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.kv.hashing import n_reusable_blocks
from serving_probe.stack.kv.pages import PageLedger


@dataclass(slots=True)
class _Block:
    page: int
    parent: str | None
    token_ids: tuple[int, ...]
    n_children: int = 0


class PrefixCache:
    """Hash → page for the blocks of one pool."""

    def __init__(self, ledger: PageLedger) -> None:
        self._ledger = ledger
        self._blocks: OrderedDict[str, _Block] = OrderedDict()  # longest unused first
        self._stored: list[str] = []
        self._removed: list[str] = []

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def n_allocatable(self) -> int:
        """Pages that `allocate` can give: free ones, and cached ones after eviction."""
        return self._ledger.n_free + self._ledger.n_cached

    def match(self, token_ids: Sequence[int], hashes: Sequence[str]) -> list[int]:
        """Pages of the longest known beginning, acquired; at least one token is left to compute.

        A hash that is known under other tokens is a collision and ends the match.
        """
        found: list[str] = []
        for i, block_hash in enumerate(hashes[: n_reusable_blocks(len(token_ids))]):
            block = self._blocks.get(block_hash)
            parent = found[-1] if found else None
            if block is None or block.parent != parent or block.token_ids != _tokens(token_ids, i):
                break
            found.append(block_hash)
        self._touch(found)
        pages = [self._blocks[block_hash].page for block_hash in found]
        self._ledger.acquire(pages)
        return pages

    def insert(self, token_ids: Sequence[int], hashes: Sequence[str], pages: Sequence[int]) -> None:
        """Make the full blocks of a computed sequence findable; its pages must be in use.

        A block that is known already keeps its older page; the newer one stays its sequence's own.
        """
        chain: list[str] = []
        for i, block_hash in enumerate(hashes[: len(token_ids) // BLOCK_TOKENS]):
            parent = chain[-1] if chain else None
            known = self._blocks.get(block_hash)
            if known is None:
                block = _Block(pages[i], parent, _tokens(token_ids, i))
                self._ledger.keep(block.page)
                self._blocks[block_hash] = block
                self._stored.append(block_hash)
                if parent is not None:
                    self._blocks[parent].n_children += 1
            elif known.parent != parent or known.token_ids != _tokens(token_ids, i):
                break
            chain.append(block_hash)
        self._touch(chain)

    def allocate(self, n: int) -> list[int] | None:
        """`n` pages, evicting as needed; None when even that doesn't give enough."""
        missing = n - self._ledger.n_free
        if missing > self._ledger.n_cached or (missing > 0 and self._evict(missing) < missing):
            return None
        return self._ledger.allocate(n)

    def drain_events(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Hashes stored and hashes removed since the last call, by how each of them ended up."""
        stored = tuple(h for h in dict.fromkeys(self._stored) if h in self._blocks)
        removed = tuple(h for h in dict.fromkeys(self._removed) if h not in self._blocks)
        self._stored, self._removed = [], []
        return stored, removed

    def _evict(self, n: int) -> int:
        n_evicted = 0
        # A pass frees leaves; their parents, touched later than they, follow in the same pass.
        for block_hash in list(self._blocks):
            if n_evicted == n:
                break
            block = self._blocks[block_hash]
            if block.n_children or self._ledger.refs(block.page):
                continue
            del self._blocks[block_hash]
            if block.parent is not None:
                self._blocks[block.parent].n_children -= 1
            self._ledger.drop(block.page)
            self._removed.append(block_hash)
            n_evicted += 1
        return n_evicted

    def _touch(self, chain: Sequence[str]) -> None:
        # Ends first: a block is then never younger than what it hangs on.
        for block_hash in reversed(chain):
            self._blocks.move_to_end(block_hash)


def _tokens(token_ids: Sequence[int], block: int) -> tuple[int, ...]:
    return tuple(token_ids[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS])
