"""The books of a page pool: which pages are free, in use, or kept for their content.

Numbers only: the memory is `pool`'s, what kept pages contain is `prefix`'s. Every page is in
exactly one state, which `check` proves.
"""

from collections import deque
from collections.abc import Iterable

from serving_probe.stack.errors import KvError


class PageLedger:
    """Reference counts and the free list of `n_pages` pages.

    A page with references is *used*. Without, it is *cached* when its content is kept, else *free*.
    """

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self._refs = [0] * n_pages
        self._free = deque(range(n_pages))
        self._kept: set[int] = set()
        self._n_cached = 0

    @property
    def n_free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Pages kept for their content and used by nobody."""
        return self._n_cached

    @property
    def n_used(self) -> int:
        """Pages that some sequence or lease refers to."""
        return self.n_pages - len(self._free) - self._n_cached

    def refs(self, page: int) -> int:
        """References to a page."""
        return self._refs[page]

    def allocate(self, n: int) -> list[int]:
        """`n` free pages with one reference each; raises `KvError` when there are fewer."""
        if n > len(self._free):
            raise KvError(f"{n} pages were asked for and {len(self._free)} are free.")
        pages = [self._free.popleft() for _ in range(n)]
        for page in pages:
            self._refs[page] = 1
        return pages

    def acquire(self, pages: Iterable[int]) -> None:
        """One more reference to each used or cached page."""
        for page in pages:
            if self._refs[page] == 0:
                if page not in self._kept:
                    raise KvError(f"page {page} is free and can't be acquired.")
                self._n_cached -= 1
            self._refs[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One reference less to each; the last one makes the page cached or free."""
        for page in pages:
            if self._refs[page] == 0:
                raise KvError(f"page {page} is released once too often.")
            self._refs[page] -= 1
            if self._refs[page] == 0:
                if page in self._kept:
                    self._n_cached += 1
                else:
                    self._free.append(page)

    def keep(self, page: int) -> None:
        """Keep a used page's content beyond its last reference."""
        if self._refs[page] == 0:
            raise KvError(f"page {page} isn't in use and can't be kept.")
        self._kept.add(page)

    def drop(self, page: int) -> None:
        """Keep a page's content no longer; a cached page becomes free."""
        self._kept.remove(page)
        if self._refs[page] == 0:
            self._n_cached -= 1
            self._free.append(page)

    def check(self) -> None:
        """Raise `KvError` unless free, cached and used pages are disjoint and make up the pool."""
        free = set(self._free)
        cached = {page for page in self._kept if self._refs[page] == 0}
        used = {page for page, n in enumerate(self._refs) if n > 0}
        is_balanced = (
            len(free) == len(self._free)
            and len(cached) == self._n_cached
            and not (free & cached or free & used)
            and len(free) + len(cached) + len(used) == self.n_pages
        )
        if not is_balanced:
            raise KvError(
                f"the page books don't balance: {len(free)} free + {len(cached)} cached + "
                f"{len(used)} used of {self.n_pages}."
            )
