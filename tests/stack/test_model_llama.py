"""The forward pass against itself: however a sequence is cut, batched or paged, it says the same.

Float32 oracles: parts equal the whole to 1e-3 in logits of size ~10, with the same greedy token.
"""

import os

import pytest
import torch

from serving_probe.stack.kv.pool import PageShape
from serving_probe.stack.model.llama import Model, Row, load_model
from serving_probe.stack.model.tokenizer import load_tokenizer

TOLERANCE = 1e-3


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load_model("tiny", "float32")


def pages_of(model: Model, n: int = 32) -> torch.Tensor:
    """Zeroed pages in private memory."""
    shape = PageShape.of(model.config, model.model_hash, model.dtype)
    return torch.zeros(n, *shape.dims, dtype=getattr(torch, model.dtype))


def prompt(n: int, seed: int = 0) -> list[int]:
    """Seeded token ids of the tiny model."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n,), generator=generator).tolist()


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 50, 69])
def test_prefill_in_two_parts_equals_one_shot(tiny: Model, cut: int) -> None:
    tokens, pages = prompt(70), [5, 3, 9, 1, 7]
    whole_kv, parts_kv = pages_of(tiny), pages_of(tiny)
    whole = tiny.forward([Row(tokens, 0, pages)], whole_kv)
    tiny.forward([Row(tokens[:cut], 0, pages)], parts_kv)
    parts = tiny.forward([Row(tokens[cut:], cut, pages)], parts_kv)
    assert (whole - parts).abs().max() < TOLERANCE
    assert whole.argmax() == parts.argmax()
    assert (whole_kv - parts_kv).abs().max() < TOLERANCE


def test_paged_decode_equals_full_recompute(tiny: Model) -> None:
    tokens, kv, pages = prompt(30), pages_of(tiny), list(range(10, 16))
    logits = tiny.forward([Row(tokens, 0, pages)], kv)
    for _ in range(20):  # crosses two page borders
        tokens.append(int(logits.argmax()))
        logits = tiny.forward([Row(tokens[-1:], len(tokens) - 1, pages)], kv)
        recomputed = tiny.forward([Row(tokens, 0, list(range(8)))], pages_of(tiny))
        assert (logits - recomputed).abs().max() < TOLERANCE


def test_a_batch_says_what_its_rows_say_alone(tiny: Model) -> None:
    # Two prompts, one of them the rest of a longer one, and two decoding rows of unlike lengths.
    kv = pages_of(tiny, 40)
    tiny.forward([Row(prompt(33, 1), 0, [0, 1, 2])], kv)
    tiny.forward([Row(prompt(5, 2), 0, [3])], kv)
    tiny.forward([Row(prompt(20, 3), 0, [4, 5, 6])], kv)
    rows = [
        Row(prompt(18, 4), 0, [7, 8]),
        Row([65], 33, [0, 1, 2]),
        Row(prompt(12, 5), 20, [4, 5, 6]),
        Row([66], 5, [3]),
    ]
    alone = torch.cat([tiny.forward([row], kv.clone()) for row in rows])
    together = tiny.forward(rows, kv)
    assert (alone - together).abs().max() < TOLERANCE


def test_other_sequences_pages_are_left_alone(tiny: Model) -> None:
    kv = pages_of(tiny)
    tiny.forward([Row(prompt(40), 0, [2, 4, 6])], kv)
    touched = kv.flatten(1).abs().sum(1).nonzero().flatten().tolist()
    assert touched == [2, 4, 6]


def test_on_layer_names_each_layer_once_its_kv_is_written(tiny: Model) -> None:
    kv, seen = pages_of(tiny), []

    def on_layer(i: int) -> None:
        seen.append((i, bool(kv[0, i].any()), bool(kv[0, i + 1 :].any())))

    tiny.forward([Row(prompt(4), 0, [0])], kv, on_layer)
    assert seen == [(0, True, False), (1, True, False)]


def test_bfloat16_stays_near_float32(tiny: Model) -> None:
    rounded = load_model("tiny", "bfloat16")
    assert rounded.model_hash == tiny.model_hash
    tokens = prompt(64)
    exact = tiny.forward([Row(tokens, 0, range(4))], pages_of(tiny))
    near = rounded.forward([Row(tokens, 0, range(4))], pages_of(rounded))
    assert near.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(exact, near).item() > 0.99


@pytest.mark.model
def test_the_capital_of_france_is_paris_at_float32() -> None:
    model, tokenizer = load_model("smollm2", "float32"), load_tokenizer("smollm2")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    tokens, pages, kv = tokenizer.chat(question), list(range(8)), pages_of(model, 8)
    logits, answer = model.forward([Row(tokens, 0, pages)], kv), []
    while len(answer) < 20:
        answer.append(int(logits.argmax()))
        if answer[-1] in tokenizer.eos_token_ids:
            break
        n_context = len(tokens) + len(answer) - 1
        logits = model.forward([Row(answer[-1:], n_context, pages)], kv)
    assert tokenizer.decode(answer) == "The capital of France is Paris."


@pytest.mark.model
def test_stored_weights_are_mapped_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_model("smollm2", "float32")
    monkeypatch.setattr(os, "replace", None)  # a second load must convert nothing
    assert load_model("smollm2", "float32").model_hash == first.model_hash
    assert len(first.model_hash) == 16
