"""The router's pure parts: choices, the prefix mirror, text that is held back, callers' headers."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_probe.contract import Role
from serving_probe.stack.caller import read_headers
from serving_probe.stack.core import Hello, Sampling
from serving_probe.stack.flight import Flight
from serving_probe.stack.kv.hashing import block_hashes
from serving_probe.stack.members import Member, Members
from serving_probe.stack.model.tokenizer import load_tokenizer
from serving_probe.stack.placement import Placement, RoutingConfig
from serving_probe.stack.prefix_index import PrefixIndex
from serving_probe.stack.routing import (
    DecodeCandidate,
    PrefillCandidate,
    least_load,
    least_predicted_seconds,
    predicted_prefill_s,
    shortest_queue,
)
from serving_probe.stack.text_stream import TextStream
from serving_probe.stack.topology import Topology

TOPOLOGIES = Path(__file__).parent.parent.parent / "data" / "topologies"


def test_prefill_goes_where_token_1_is_predicted_first() -> None:
    """(600 + 400) / 500 = 2 s; (0 + 1000) / 250 = 4 s; (900 + 200) / 1000 = 1.1 s."""
    cached = PrefillCandidate("cached", queued_tokens=600, cached_tokens=600, tokens_per_s=500)
    idle = PrefillCandidate("idle", queued_tokens=0, cached_tokens=0, tokens_per_s=250)
    fast = PrefillCandidate("fast", queued_tokens=900, cached_tokens=800, tokens_per_s=1000)
    candidates = [cached, idle, fast]
    assert [predicted_prefill_s(1000, c) for c in candidates] == [2.0, 4.0, 1.1]
    assert least_predicted_seconds(1000, candidates) == "fast"
    assert shortest_queue(1000, candidates) == "idle"


def test_decode_goes_to_the_emptiest_batch_relative_to_its_size() -> None:
    big = DecodeCandidate("big", active=6, max_batch=16)
    small = DecodeCandidate("small", active=2, max_batch=4)
    assert least_load([small, big]) == "big"
    assert least_load([DecodeCandidate("first", 0, 4), DecodeCandidate("second", 0, 8)]) == "first"


def test_overlap_ends_at_the_first_hole() -> None:
    index = PrefixIndex()
    index.stored("w", ("a", "b", "c"))
    assert index.overlap_blocks("w", ("a", "b", "x", "c")) == 2
    index.removed("w", ("a",))
    assert index.overlap_blocks("w", ("a", "b")) == 0
    assert index.overlap_blocks("other", ("b",)) == 0
    index.forget("w")
    assert index.overlap_blocks("w", ("b",)) == 0


def test_speed_is_learned_without_the_queueing() -> None:
    """Dispatched at 0, but the worker was busy until 3: 800 tokens took 1 s of its time."""
    hello = Hello("w", Role.PREFILL, "t", "p", "1", 8, 64, "hash")
    member = Member(hello, b"", heard_s=0.0, tokens_per_s=300.0, prefill_ended_s=3.0)
    member.prefilled(800, dispatched_s=0.0, now_s=4.0)
    assert member.tokens_per_s == pytest.approx(0.8 * 300 + 0.2 * 800)
    members = Members(frozenset({Role.PREFILL, Role.DECODE}))
    members.join(member)
    assert members.missing_roles() == [Role.DECODE]
    assert members.silent(3.0, 2.9) == []
    assert members.silent(3.0, 3.1) == [member]
    member.queued_tokens = 100
    assert members.silent(3.0, 3.9) == []


def test_unfinished_characters_wait_and_their_tokens_with_them() -> None:
    text = TextStream(load_tokenizer("tiny").detokenizer())
    first, second = "é".encode()
    assert text.push([first]) == ("", 0, False)
    assert text.push([second]) == ("é", 2, False)
    assert text.push([first], is_last=True) == ("�", 1, False)


def test_stop_string_over_several_tokens_never_shows() -> None:
    text = TextStream(load_tokenizer("tiny").detokenizer(), ["STOP", "ST!"])
    assert text.push(b"aS") == ("a", 2, False)
    assert text.push(b"T") == ("", 0, False)
    assert text.push(b"S") == ("ST", 2, False)
    assert text.push(b"TOP, and more") == ("", 0, True)


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=3), max_size=3), st.data())
def test_any_split_gives_the_text_before_the_first_stop(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    """Whatever the steps, the pieces join to the text cut at the earliest stop string."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = TextStream(load_tokenizer("tiny").detokenizer(), stop)
    steps = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    sent, n_tokens, is_stopped = "", 0, False
    for i, step in enumerate(steps):
        piece = stream.push(step, is_last=i == len(steps) - 1)
        sent += piece.text
        n_tokens += piece.n_tokens
        is_stopped = piece.is_stopped
        if is_stopped:
            break
    assert is_stopped == any(s in text for s in stop)
    # A step may bring an early end of one stop string before another's earlier start is whole.
    assert text.startswith(sent)
    assert not any(s in sent for s in stop)
    if not is_stopped:
        assert sent == text
        assert n_tokens == len(raw)


def test_headers_say_who_calls() -> None:
    caller, fault = read_headers(
        [(b"X-Request-Id", b"r"), (b"idempotency-key", b"k"), (b"x-stainless-retry-count", b"2")]
    )
    assert (caller.request_id, caller.attempt, caller.tenant_id) == ("r", 3, "default")
    assert fault is None
    assert read_headers([(b"idempotency-key", b"k")])[0].request_id == "k"
    assert len(read_headers([])[0].request_id) == 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-tokenmill-attempt", b"0"),
        (b"x-tokenmill-attempt", b"-1"),
        (b"x-intended-start-unix-nano", b"99999999999999999999"),
        (b"x-tenant-id", b"t" * 300),
    ],
)
def test_headers_out_of_range_are_one_sentence(name: bytes, value: bytes) -> None:
    _, fault = read_headers([(name, value)])
    assert fault is not None
    assert str(fault).startswith(name.decode())
    assert str(fault).endswith(".")


def test_router_and_fleet_import_no_torch() -> None:
    code = (
        "import serving_probe.stack.fleet, serving_probe.stack.router_process, sys;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_prompt_goes_to_the_worker_that_holds_its_blocks() -> None:
    """Alike in load, the second worker holds two of the prompt's blocks: 32 tokens."""
    prompt = tuple(range(40))
    members = Members(frozenset({Role.PREFILL}))
    for worker_id in ("first", "second"):
        hello = Hello(worker_id, Role.PREFILL, "t", "p", "1", 8, 64, "hash", "float32")
        members.join(Member(hello, b"", heard_s=0.0))
    placement = Placement(RoutingConfig(), members, Role.PREFILL)
    flight = Flight("a", "", prompt, "tenant", Sampling(max_tokens=4))
    assert placement.prefill(flight)[0].worker_id == "first"
    placement.index.stored("second", block_hashes(prompt, "hash", "float32", "tenant"))
    member, cached_tokens = placement.prefill(flight)
    assert (member.worker_id, cached_tokens) == ("second", 32)
    stranger = Flight("b", "", prompt, "other tenant", Sampling(max_tokens=4))
    assert placement.prefill(stranger)[1] == 0
    assert placement.decode() is None


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_topologies_load_under_their_names(path: Path) -> None:
    assert Topology.load(path).name == path.stem
