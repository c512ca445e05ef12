"""Batches by hand: what each policy takes from a state within a budget."""

from serving_probe.stack.scheduler import (
    Batch,
    Budget,
    Chunk,
    Prompt,
    State,
    decode_only,
    prefill_first,
    prefill_only,
)

ROOMY = Budget(max_batch=4, max_prefill_tokens=100, n_free_pages=100)


def test_nothing_to_do_is_an_empty_batch() -> None:
    for policy in (prefill_only, decode_only, prefill_first):
        assert not policy(State(), ROOMY)


def test_prompts_share_a_step_and_the_last_is_cut() -> None:
    state = State(prompts=(Prompt("a", 60, 4), Prompt("b", 60, 4), Prompt("c", 60, 4)))
    assert prefill_only(state, ROOMY).chunks == (Chunk("a", 60), Chunk("b", 40))


def test_a_started_prompt_needs_no_more_pages() -> None:
    state = State(prompts=(Prompt("a", 60, 4, is_admitted=True), Prompt("b", 10, 1)))
    budget = Budget(max_batch=4, max_prefill_tokens=100, n_free_pages=0)
    assert prefill_only(state, budget).chunks == (Chunk("a", 60),)


def test_a_long_prompt_is_not_overtaken() -> None:
    state = State(prompts=(Prompt("long", 60, 9), Prompt("short", 10, 1)))
    budget = Budget(max_batch=4, max_prefill_tokens=100, n_free_pages=8)
    assert not prefill_only(state, budget)


def test_pages_of_earlier_prompts_are_gone_for_later_ones() -> None:
    state = State(prompts=(Prompt("a", 10, 5), Prompt("b", 10, 5)))
    budget = Budget(max_batch=4, max_prefill_tokens=100, n_free_pages=9)
    assert prefill_only(state, budget).chunks == (Chunk("a", 10),)


def test_decoding_takes_the_oldest() -> None:
    state = State(decoding=("a", "b", "c", "d", "e"))
    assert decode_only(state, ROOMY).decodes == ("a", "b", "c", "d")


def test_prefill_comes_first_while_the_batch_has_room() -> None:
    waiting = (Prompt("new", 10, 1),)
    assert prefill_first(State(waiting, ("a",)), ROOMY) == Batch(chunks=(Chunk("new", 10),))
    full = State(waiting, ("a", "b", "c", "d"))
    assert prefill_first(full, ROOMY) == Batch(decodes=("a", "b", "c", "d"))


def test_decoding_goes_on_while_a_prompt_waits_for_pages() -> None:
    state = State((Prompt("new", 10, 50),), ("a",))
    budget = Budget(max_batch=4, max_prefill_tokens=100, n_free_pages=3)
    assert prefill_first(state, budget) == Batch(decodes=("a",))
