"""A worker's inside: tokens, pages and spans of sequences that end in every way there is."""

import time

import msgspec
import pytest
import torch
from engine_rig import PROMPT, Rig, failures, handoff, only, output, prefill, releases, rig
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_probe.contract import Role
from serving_probe.stack.core import KvRemoved, KvStored, Prefill, PrefillDone, Release, Tokens
from serving_probe.stack.meter import shares
from serving_probe.stack.model.llama import Model, load_model


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    return load_model("tiny", "float32")


def assert_books(worker: Rig) -> None:
    """No device second is lost or counted twice, and no page leaks."""
    worker.pool.ledger.check()
    busy_ns = sum(worker.engine.spent.wall_ns.values())
    assert worker.emitted_ns() + worker.running_ns() == busy_ns


@given(st.integers(0, 10**12), st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_shares_add_up_and_are_within_one_of_proportional(total: int, weights: list[int]) -> None:
    parts = shares(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    assert all(abs(p * whole - total * w) < whole for p, w in zip(parts, weights, strict=True))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9, "seed": 7}])
def test_a_handoff_changes_no_token(model: Model, sampling: dict[str, float]) -> None:
    request = prefill(max_tokens=20, **sampling)
    with (
        rig(model, Role.UNIFIED) as whole,
        rig(model, Role.PREFILL) as first,
        rig(model, Role.DECODE) as second,
    ):
        whole.engine.submit(request)
        expected = output(whole.run(), request.attempt_id)
        first.engine.submit(request)
        done = only(first.run(), PrefillDone)
        second.engine.submit(handoff(request, done))
        messages = second.run()
        assert [done.first_token, *output(messages, request.attempt_id)] == expected
        assert len(expected) == 20
        assert releases(messages) == [done.export.lease_id]
        assert first.engine.n_leases == 1
        first.engine.release(done.export.lease_id)
        assert first.engine.n_leases == 0
        assert first.pool.ledger.n_used == second.pool.ledger.n_used == 0
        for worker in (whole, first, second):
            assert_books(worker)


def test_spans_tell_the_whole_way(model: Model) -> None:
    request = prefill(max_tokens=5)
    with rig(model, Role.PREFILL) as first, rig(model, Role.DECODE) as second:
        first.engine.submit(request)
        done = only(first.run(), PrefillDone)
        second.engine.submit(handoff(request, done))
        second.run()
        assert [s.name for s in first.spans] == ["queue", "prefill"]
        assert [s.name for s in second.spans] == ["kv_transfer", "decode_wait", "decode"]
        queue, computed = first.spans
        transfer, wait, decode = second.spans
        assert queue.start_ns == request.dispatched_unix_ns
        assert queue.end_ns == computed.start_ns
        assert computed.attrs["tokenmill.first_token_us"] == (
            (computed.end_ns - computed.start_ns) // 1000
        )
        assert computed.attrs["tokenmill.prompt_tokens"] == len(PROMPT)
        assert computed.attrs["tokenmill.computed_tokens"] == len(PROMPT)
        assert computed.attrs["tokenmill.generated_tokens"] == 1
        assert len(computed.attrs["tokenmill.cache.block_hashes"]) == len(PROMPT) // 16
        n_pages = -(-len(PROMPT) // 16)
        assert transfer.attrs["tokenmill.kv.bytes"] == n_pages * first.pool.shape.n_bytes
        assert transfer.attrs["tokenmill.kv.outcome"] == "done"
        assert transfer.attrs["tokenmill.kv.src_worker_id"] == "prefill-0"
        assert transfer.end_ns == wait.start_ns
        assert wait.end_ns == decode.start_ns
        assert decode.attrs["tokenmill.generated_tokens"] == 4
        for span in second.spans:
            assert span.attrs["tokenmill.worker.id"] == "decode-0"
            assert span.attrs["tokenmill.worker.role"] == "decode"
            assert span.attrs["tokenmill.worker.pool"] == "decode-pool"
            assert "error.type" not in span.attrs


def test_one_token_needs_no_handoff(model: Model) -> None:
    request = prefill(max_tokens=1)
    with rig(model, Role.PREFILL) as worker:
        worker.engine.submit(request)
        done = only(worker.run(), PrefillDone)
        assert (done.finish_reason, done.export) == ("length", None)
        assert worker.pool.ledger.n_used == 0


def test_a_stop_token_ends_the_output_and_is_its_last(model: Model) -> None:
    request = prefill(max_tokens=12)
    with rig(model, Role.UNIFIED) as worker:
        worker.engine.submit(request)
        free_run = output(worker.run(), request.attempt_id)
        stop = free_run[-1]
        sampling = replace_struct(request.sampling, stop_token_ids=(stop,))
        stopped = replace_struct(request, attempt_id="stopped", sampling=sampling)
        worker.engine.submit(stopped)
        messages = worker.run()
        assert output(messages, "stopped") == free_run[: free_run.index(stop) + 1]
        last = [m for m in messages if isinstance(m, Tokens)][-1]
        assert last.finish_reason == "stop"


def test_a_known_beginning_is_reused_and_gives_the_same_tokens(model: Model) -> None:
    with rig(model, Role.UNIFIED) as worker:
        first, again = prefill(max_tokens=6), prefill(max_tokens=6)
        worker.engine.submit(first)
        messages = worker.run()
        stored = {h for m in messages if isinstance(m, KvStored) for h in m.block_hashes}
        expected = output(messages, first.attempt_id)
        worker.engine.submit(again)
        messages = worker.run()
        assert output(messages, again.attempt_id) == expected
        counts = [m.reused_tokens for m in messages if isinstance(m, Tokens)]
        assert counts == [len(PROMPT) // 16 * 16, None, None, None, None, None]
        computed = worker.named("prefill")[1].attrs
        assert computed["tokenmill.cache.reused_tokens"] == len(PROMPT) // 16 * 16
        assert computed["tokenmill.computed_tokens"] == len(PROMPT) % 16
        assert set(computed["tokenmill.cache.block_hashes"]) <= stored


def test_another_tenant_reuses_nothing(model: Model) -> None:
    with rig(model, Role.UNIFIED) as worker:
        worker.engine.submit(prefill(scope="a"))
        worker.run()
        worker.engine.submit(prefill(scope="b"))
        worker.run()
        assert worker.named("prefill")[1].attrs["tokenmill.cache.reused_tokens"] == 0


def test_the_next_turn_reuses_the_answer_too(model: Model) -> None:
    with rig(model, Role.UNIFIED) as worker:
        first = prefill(max_tokens=30)
        worker.engine.submit(first)
        answer = output(worker.run(), first.attempt_id)
        worker.engine.submit(prefill((*PROMPT, *answer, 65)))
        worker.run()
        reused = worker.named("prefill")[1].attrs["tokenmill.cache.reused_tokens"]
        assert reused == (len(PROMPT) + 29) // 16 * 16  # the last answer token has no KV yet


def test_a_long_prompt_in_chunks_gives_the_same_token(model: Model) -> None:
    request = prefill(PROMPT * 4, max_tokens=3)
    with rig(model, Role.UNIFIED) as whole, rig(model, Role.UNIFIED, max_prefill_tokens=50) as cut:
        for worker in (whole, cut):
            worker.engine.submit(request)
            worker.run()
            assert_books(worker)
        assert output(cut.messages, request.attempt_id) == output(
            whole.messages, request.attempt_id
        )


def test_many_at_once_all_end_and_share_steps_exactly(model: Model) -> None:
    requests = [prefill(PROMPT[: 5 + 3 * i], max_tokens=3 + i) for i in range(10)]
    with rig(model, Role.UNIFIED, max_batch=4) as worker:
        for request in requests:
            worker.engine.submit(request)
        for _ in range(6):
            worker.engine.step()
            assert_books(worker)
        messages = worker.messages + worker.engine.take_messages()
        worker.messages = messages
        worker.run()
        for request in requests:
            assert len(output(worker.messages, request.attempt_id)) == request.sampling.max_tokens
        assert_books(worker)
        assert worker.running_ns() == 0


def test_evictions_are_told(model: Model) -> None:
    with rig(model, Role.UNIFIED, n_pages=8) as worker:
        worker.engine.submit(prefill(tuple(range(80)), max_tokens=4))
        stored = set(only(worker.run(), KvStored).block_hashes)
        worker.engine.submit(prefill(tuple(range(100, 200)), max_tokens=4))
        removed = set(only(worker.run(), KvRemoved).block_hashes)
        assert removed
        assert removed <= stored


def test_a_full_decode_pool_queues_in_order(model: Model) -> None:
    requests = [prefill(max_tokens=40) for _ in range(3)]  # 7 pages each
    with rig(model, Role.PREFILL) as first, rig(model, Role.DECODE, n_pages=8) as second:
        for request in requests:
            first.engine.submit(request)
        done = [m for m in first.run() if isinstance(m, PrefillDone)]
        for request, message in zip(requests, done, strict=True):
            second.engine.submit(handoff(request, message))
        second.engine.step()
        assert (second.engine.n_running, second.engine.n_queued) == (1, 2)
        messages = second.run(500)
        finished = [m.attempt_id for m in messages if isinstance(m, Tokens) and m.finish_reason]
        assert finished == [request.attempt_id for request in requests]
        assert len(releases(messages)) == 3
        assert_books(second)
        first.engine.abort_all("closing")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (prefill(()), "the prompt is empty"),
        (prefill((1, 260)), "token ids outside 0..259"),
        (prefill((1,) * 4000, max_tokens=200), "4200 tokens together and tiny takes 4096"),
        (prefill((1,) * 600, max_tokens=9), "needs 38 KV pages and the worker has 16"),
        (prefill(max_tokens=0), "max_tokens is 0"),
    ],
    ids=["empty", "vocabulary", "context", "pool", "no-output"],
)
def test_what_can_never_run_is_refused_in_a_sentence(
    model: Model, request_: object, reason: str
) -> None:
    with rig(model, Role.UNIFIED, n_pages=16) as worker:
        worker.engine.submit(request_)
        (failure,) = failures(worker.run())
        assert reason in failure
        assert "\n" not in failure
        assert [(s.name, s.attrs["error.type"]) for s in worker.spans] == [("queue", "refused")]


def test_the_wrong_kind_of_worker_refuses(model: Model) -> None:
    with rig(model, Role.PREFILL) as first, rig(model, Role.DECODE) as second:
        request = prefill()
        second.engine.submit(request)
        assert "computes no prompts" in failures(second.run())[0]
        first.engine.submit(request)
        done = only(first.run(), PrefillDone)
        first.engine.submit(handoff(request, done))
        messages = first.run()
        assert "takes no handoffs" in failures(messages)[0]
        assert releases(messages) == [done.export.lease_id]
        first.engine.abort_all("closing")


def test_an_abort_in_any_phase_leaves_spans_and_no_pages(model: Model) -> None:
    waiting, computing, offered, decoding = (prefill(PROMPT * 2, max_tokens=9) for _ in range(4))
    with (
        rig(model, Role.PREFILL, max_prefill_tokens=32) as first,
        rig(model, Role.DECODE) as second,
    ):
        first.engine.submit(computing)
        first.engine.submit(waiting)
        first.engine.step()
        first.engine.abort(waiting.attempt_id)
        first.engine.abort(computing.attempt_id)
        names = [(s.name, s.attrs.get("error.type")) for s in first.spans]
        assert names == [("queue", "aborted"), ("queue", None), ("prefill", "aborted")]
        assert first.spans[2].attrs["tokenmill.computed_tokens"] == 32
        assert first.spans[2].attrs["tokenmill.generated_tokens"] == 0
        assert "tokenmill.first_token_us" not in first.spans[2].attrs
        assert first.pool.ledger.n_used == 0

        for request in (offered, decoding):
            first.engine.submit(request)
        done = [m for m in first.run() if isinstance(m, PrefillDone)]
        second.engine.submit(handoff(offered, done[0]))
        second.engine.abort(offered.attempt_id)
        second.engine.submit(handoff(decoding, done[1]))
        for _ in range(6):
            second.engine.step()
        second.engine.abort(decoding.attempt_id)
        names = [(s.name, s.attrs.get("error.type")) for s in second.spans]
        assert names == [
            ("kv_transfer", "aborted"),
            ("kv_transfer", None),
            ("decode_wait", None),
            ("decode", "aborted"),
        ]
        assert second.spans[0].attrs["tokenmill.kv.bytes"] == 0
        assert second.pool.ledger.n_used == 0
        second.messages += second.engine.take_messages()
        assert sorted(releases(second.messages)) == sorted(d.export.lease_id for d in done)
        # The caller has gone while the offer stood: the abort ends the lease at the holder.
        for request in (offered, decoding):
            first.engine.abort(request.attempt_id)
        assert first.engine.n_leases == first.pool.ledger.n_used == 0
        for worker in (first, second):
            assert_books(worker)


def test_a_lease_that_nobody_releases_ends_by_itself(model: Model) -> None:
    with rig(model, Role.PREFILL, lease_s=0.01) as worker:
        worker.engine.submit(prefill())
        done = only(worker.run(), PrefillDone)
        assert worker.pool.ledger.n_used == len(done.export.pages)
        until = time.monotonic() + 20
        while worker.engine.n_leases and time.monotonic() < until:
            worker.engine.step()
            time.sleep(0.01)
        assert worker.pool.ledger.n_used == 0


def test_an_expired_offer_fails_with_its_outcome(model: Model) -> None:
    request = prefill()
    with rig(model, Role.PREFILL) as first, rig(model, Role.DECODE) as second:
        first.engine.submit(request)
        done = only(first.run(), PrefillDone)
        late = replace_struct(done.export, ttl_s=0.0)
        second.engine.submit(handoff(request, replace_struct(done, export=late)))
        messages = second.run()
        assert "the lease of 0.0 s" in failures(messages)[0]
        assert releases(messages) == [late.lease_id]
        (span,) = second.spans
        assert span.attrs["tokenmill.kv.outcome"] == "expired"
        assert span.attrs["error.type"] == "kv_transfer_expired"
        assert_books(second)
        first.engine.abort_all("closing")


ACTIONS = st.sampled_from(["submit", "abort", "prefill", "decode", "decode", "lose"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ACTIONS, st.integers(0, 9)), min_size=10, max_size=60))
def test_books_balance_in_any_order_of_events(model: Model, events: list[tuple[str, int]]) -> None:
    sent: list[Prefill] = []
    with (
        rig(model, Role.PREFILL, n_pages=12, max_batch=3, max_prefill_tokens=40) as first,
        rig(model, Role.DECODE, n_pages=10, max_batch=2) as second,
    ):
        for what, n in events:
            if what == "submit":
                sent.append(prefill(PROMPT[: 1 + 6 * n], max_tokens=1 + 2 * n))
                first.engine.submit(sent[-1])
            elif what == "abort" and sent:
                for worker in (first, second):
                    worker.engine.abort(sent[n % len(sent)].attempt_id)
            elif what == "prefill":
                first.engine.step()
                for message in first.engine.take_messages():
                    if isinstance(message, PrefillDone) and message.export:
                        request = next(r for r in sent if r.attempt_id == message.attempt_id)
                        second.engine.submit(handoff(request, message))
            elif what == "decode":
                second.engine.step()
                for message in second.engine.take_messages():
                    if isinstance(message, Release):
                        first.engine.release(message.lease_id)
            else:
                second.engine.take_messages()  # lost on the way: leases must not need them
            assert_books(first)
            assert_books(second)
        first.engine.abort_all("closing")
        second.engine.abort_all("closing")
        for worker in (first, second):
            assert_books(worker)
            assert worker.running_ns() == worker.pool.ledger.n_used == 0


def test_a_long_step_gives_signs_of_life_from_within(model: Model) -> None:
    beats: list[float] = []
    with rig(model, Role.PREFILL, pulse=lambda: beats.append(time.monotonic())) as worker:
        worker.engine.submit(prefill(max_tokens=1))
        worker.engine.step()
        assert len(beats) == model.config.n_layers


def replace_struct(struct: object, **changes: object) -> object:
    """A message with some fields changed."""
    return msgspec.structs.replace(struct, **changes)
