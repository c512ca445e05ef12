"""Page books and prefix cache in any order of operations; segments as other processes see them."""

import os
import subprocess
import sys
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.errors import KvError
from serving_probe.stack.kv import segment
from serving_probe.stack.kv.hashing import block_hashes
from serving_probe.stack.kv.pages import PageLedger
from serving_probe.stack.kv.prefix import PrefixCache
from serving_probe.stack.kv.segment import (
    attach_segment,
    create_segment,
    shared_folder,
    sweep,
    unlink_segment,
)

N_PAGES = 12


class PagesMachine(RuleBasedStateMachine):
    """Sequences come (sharing beginnings), are computed, and go; the books always balance."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(N_PAGES)
        self.prefix = PrefixCache(self.ledger)
        self.running: list[tuple[tuple[int, ...], tuple[str, ...], list[int]]] = []
        self.announced: set[str] = set()

    @rule(blocks=st.lists(st.integers(0, 2), min_size=1, max_size=5), tail=st.integers(1, 16))
    def start(self, blocks: list[int], tail: int) -> None:
        tokens = tuple(b for b in blocks for _ in range(BLOCK_TOKENS))
        tokens += (9,) * tail
        hashes = block_hashes(tokens, "m", "float32", "t")
        known = self.prefix.match(tokens, hashes)
        assert len(known) * BLOCK_TOKENS < len(tokens)
        fresh = self.prefix.allocate(-(-len(tokens) // BLOCK_TOKENS) - len(known))
        if fresh is None:
            self.ledger.release(known)
        else:
            self.running.append((tokens, hashes, known + fresh))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_computed=st.booleans())
    def end(self, data: st.DataObject, is_computed: bool) -> None:
        at = data.draw(st.integers(0, len(self.running) - 1))
        tokens, hashes, pages = self.running.pop(at)
        if is_computed:
            self.prefix.insert(tokens, hashes, pages)
        self.ledger.release(pages)

    @invariant()
    def books_balance(self) -> None:
        self.ledger.check()
        in_use = {page for _, _, pages in self.running for page in pages}
        assert self.ledger.n_used == len(in_use)

    @invariant()
    def events_tell_what_is_resident(self) -> None:
        stored, removed = self.prefix.drain_events()
        self.announced |= set(stored)
        self.announced -= set(removed)
        assert len(self.announced) == len(self.prefix)


PagesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPages = PagesMachine.TestCase


def tokens_of(*blocks: int, tail: int = 1) -> tuple[int, ...]:
    """A prompt of whole blocks and a tail."""
    return tuple(b for b in blocks for _ in range(BLOCK_TOKENS)) + (99,) * tail


def hashes_of(tokens: tuple[int, ...], scope: str = "t", dtype: str = "float32") -> tuple[str, ...]:
    return block_hashes(tokens, "model", dtype, scope)


def fill(prefix: PrefixCache, ledger: PageLedger, tokens: tuple[int, ...]) -> None:
    """Compute a prompt and let it go."""
    hashes = hashes_of(tokens)
    known = prefix.match(tokens, hashes)
    fresh = prefix.allocate(-(-len(tokens) // BLOCK_TOKENS) - len(known))
    assert fresh is not None
    prefix.insert(tokens, hashes, known + fresh)
    ledger.release(known + fresh)


def test_hashes_chain_and_keep_tenants_models_and_formats_apart() -> None:
    tokens = tokens_of(1, 2, 1)
    hashes = hashes_of(tokens)
    assert len(hashes) == 3
    assert all(len(h) == 16 for h in hashes)
    assert hashes[0] != hashes[2]  # same tokens, another past
    assert hashes_of(tokens[:32]) == hashes[:2]
    assert not set(hashes) & set(hashes_of(tokens, scope="other"))
    assert not set(hashes) & set(hashes_of(tokens, dtype="bfloat16"))
    assert not set(hashes) & set(block_hashes(tokens, "model2", "float32", "t"))
    assert hashes_of(tokens[:15]) == ()


def test_the_last_token_is_always_computed() -> None:
    ledger = PageLedger(8)
    prefix = PrefixCache(ledger)
    tokens = tokens_of(1, 2, tail=0)
    fill(prefix, ledger, tokens)
    assert len(prefix.match(tokens, hashes_of(tokens))) == 1
    longer = (*tokens, 5)
    assert len(prefix.match(longer, hashes_of(longer))) == 2


def test_a_colliding_hash_is_not_believed() -> None:
    ledger = PageLedger(8)
    prefix = PrefixCache(ledger)
    fill(prefix, ledger, tokens_of(1))
    others = tokens_of(2)
    assert prefix.match(others, hashes_of(tokens_of(1))) == []


def test_leaves_go_first_and_the_longest_unused_of_them() -> None:
    ledger = PageLedger(4)
    prefix = PrefixCache(ledger)
    fill(prefix, ledger, tokens_of(1, 2, tail=0))
    fill(prefix, ledger, tokens_of(3, tail=0))
    fill(prefix, ledger, tokens_of(1, tail=0))  # used again: its leaf is still the oldest
    prefix.drain_events()
    assert prefix.allocate(2) is not None  # one page was free
    _, removed = prefix.drain_events()
    assert removed == hashes_of(tokens_of(1, 2))[1:]


def test_no_page_is_taken_from_a_running_sequence() -> None:
    ledger = PageLedger(3)
    prefix = PrefixCache(ledger)
    tokens = tokens_of(1, 2)
    fill(prefix, ledger, tokens)
    held = prefix.match(tokens, hashes_of(tokens))
    assert len(held) == 2
    assert prefix.allocate(2) is None
    assert prefix.allocate(1) is not None


def test_misuse_of_the_books_is_refused() -> None:
    ledger = PageLedger(2)
    (page,) = ledger.allocate(1)
    with pytest.raises(KvError):
        ledger.allocate(2)
    with pytest.raises(KvError):
        ledger.acquire([1])
    with pytest.raises(KvError):
        ledger.keep(1)
    ledger.release([page])
    with pytest.raises(KvError):
        ledger.release([page])


def test_a_segment_without_room_is_one_sentence() -> None:
    name = f"tmtest-{uuid4().hex}"
    with pytest.raises(KvError, match="lower n_pages in the topology") as caught:
        create_segment(name, 1 << 50)
    assert "\n" not in str(caught.value)
    assert not (shared_folder() / name).exists()


def test_promised_memory_counts_as_taken() -> None:
    name = f"tmtest-{uuid4().hex}"
    before = segment._promised_bytes(shared_folder())
    create_segment(name, 64 << 20)
    try:
        assert segment._promised_bytes(shared_folder()) - before >= 60 << 20
    finally:
        unlink_segment(name)


def test_a_reader_sees_writes_and_leaves_the_segment_and_stderr_alone() -> None:
    name = f"tmtest-{uuid4().hex}"
    memory = create_segment(name, 4096)
    try:
        memory[:5] = b"hello"
        code = (
            "import sys; from serving_probe.stack.kv.segment import attach_segment; "
            "print(bytes(attach_segment(sys.argv[1])[:5]).decode())"
        )
        reader = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, name],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (reader.stdout.strip(), reader.stderr) == ("hello", "")
        assert bytes(attach_segment(name)[:5]) == b"hello"
    finally:
        unlink_segment(name)
    with pytest.raises(KvError, match="can't be opened"):
        attach_segment(name)


def test_sweep_takes_what_a_killed_process_left() -> None:
    prefix = f"tmtest-{os.getpid()}-{uuid4().hex[:6]}"
    code = (
        "import os, sys; from serving_probe.stack.kv.segment import create_segment; "
        "create_segment(sys.argv[1], 4096); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, f"{prefix}-a"], check=False)
    assert sweep(prefix) == [f"{prefix}-a"]
    assert sweep(prefix) == []
    with pytest.raises(ValueError):
        sweep("")
