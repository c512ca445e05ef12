"""How tokens are drawn, and that the quick products equal the plain ones."""

import pytest
import torch

from serving_probe.stack.core import Sampling
from serving_probe.stack.model.linear import Linear
from serving_probe.stack.sampling import choose_token, finish_reason


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


def drawn(logits: torch.Tensor, n: int, **settings: float) -> list[int]:
    """Tokens of `n` places of one seeded output."""
    sampling = Sampling(max_tokens=n, **settings)
    return [choose_token(logits, sampling, place) for place in range(n)]


def test_temperature_zero_takes_the_likeliest() -> None:
    assert drawn(logits_of(0.2, 0.5, 0.3), 5) == [1] * 5


def test_draws_follow_the_probabilities() -> None:
    tokens = drawn(logits_of(0.2, 0.5, 0.3), 4000, temperature=1.0, seed=3)
    shares = [tokens.count(i) / len(tokens) for i in range(3)]
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.03)


def test_temperature_sharpens() -> None:
    # p^(1/0.5): 4, 25, 9 of 38.
    tokens = drawn(logits_of(0.2, 0.5, 0.3), 4000, temperature=0.5, seed=3)
    assert tokens.count(1) / len(tokens) == pytest.approx(25 / 38, abs=0.03)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    logits = logits_of(0.2, 0.5, 0.3)
    assert set(drawn(logits, 300, temperature=1.0, top_p=0.6)) == {1, 2}
    assert set(drawn(logits, 300, temperature=1.0, top_p=0.4)) == {1}
    assert set(drawn(logits, 300, temperature=1.0, top_p=0.0)) == {1}


@pytest.mark.parametrize("scale", [0.0, 3.0], ids=["flat", "peaked"])
def test_a_large_vocabulary_is_cut_the_same_way(scale: float) -> None:
    # Flat logits need more than the first thousand tokens; the cut still is at half the mass.
    logits = torch.randn(8000, generator=torch.Generator().manual_seed(1)) * scale
    probabilities = logits.softmax(0)
    ranks = probabilities.argsort(descending=True).argsort()
    n_kept = int((probabilities.sort(descending=True).values.cumsum(0) < 0.5).sum()) + 1
    tokens = drawn(logits, 400, temperature=1.0, top_p=0.5)
    if scale:
        assert max(int(ranks[token]) for token in tokens) < n_kept
    else:
        assert len(set(tokens)) > 300


def test_a_draw_depends_on_seed_and_place_alone() -> None:
    logits = logits_of(*[0.1] * 10)
    first = drawn(logits, 50, temperature=1.0, seed=1)
    assert drawn(logits, 50, temperature=1.0, seed=1) == first
    assert drawn(logits, 50, temperature=1.0, seed=2) != first
    assert len(set(first)) > 5


@pytest.mark.parametrize(
    ("token", "n", "settings", "expected"),
    [
        (5, 1, {}, None),
        (5, 4, {}, "length"),
        (2, 4, {}, "stop"),
        (2, 1, {"ignore_eos": True}, None),
        (2, 4, {"ignore_eos": True}, "length"),
        (7, 1, {"stop_token_ids": (7,)}, "stop"),
        (7, 1, {"stop_token_ids": (7,), "ignore_eos": True}, "stop"),
        (2, 1, {"stop_token_ids": (2,), "ignore_eos": True}, None),
    ],
)
def test_when_an_output_ends(
    token: int, n: int, settings: dict[str, object], expected: str | None
) -> None:
    assert finish_reason(token, Sampling(max_tokens=4, **settings), n, (2,)) == expected


@pytest.mark.parametrize("n_rows", [1, 3, 4, 16, 64, 65])
def test_packed_products_equal_plain_ones(n_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator)
    x = torch.randn(n_rows, 64, generator=generator)
    plain, packed = Linear(weight, is_packed=False), Linear(weight, is_packed=True)
    assert torch.allclose(plain(x), packed(x), atol=1e-4)
    halved = Linear(weight.bfloat16(), is_packed=True)
    assert halved(x.bfloat16()).dtype is torch.bfloat16
