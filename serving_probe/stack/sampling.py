"""Chooses the next token from logits, and says when an output has ended.

A draw depends on the request's seed and the token's place in the output alone: not on the worker,
nor on who else is in the batch. A handoff between two tokens doesn't change what follows.
"""

import random
from typing import Final

import torch

from serving_probe.stack.core import Sampling

_FEW: Final = 1024  # finding these among 49,152 takes a tenth of sorting all


def choose_token(logits: torch.Tensor, sampling: Sampling, n_generated: int) -> int:
    """The token after `n_generated` others, from float32 logits [vocab]."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits / sampling.temperature, dim=-1)
    order = None
    if sampling.top_p < 1.0:
        probabilities, order = _likeliest(probabilities, sampling.top_p)
        before = probabilities.cumsum(0) - probabilities
        probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
        probabilities[0] = probabilities[0].clamp(min=1e-30)  # top_p = 0 still keeps the best
    steps = probabilities.cumsum(0, dtype=torch.float64)
    drawn = random.Random(f"{sampling.seed}/{n_generated}").random() * steps[-1]
    index = int(torch.searchsorted(steps, drawn, right=True).clamp(max=len(steps) - 1))
    return index if order is None else int(order[index])


def _likeliest(probabilities: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities in falling order with their tokens, at least as many as make up `mass`."""
    if len(probabilities) > _FEW:
        few, order = probabilities.topk(_FEW)
        if few.sum() > mass:
            return few, order
    return probabilities.sort(descending=True)


def finish_reason(
    token_id: int, sampling: Sampling, n_generated: int, eos_token_ids: tuple[int, ...]
) -> str | None:
    """`stop`, `length` or None for an output of `n_generated` tokens that ends in `token_id`.

    `ignore_eos` leaves out the model's own end tokens, wherever they were named.
    """
    is_eos = token_id in eos_token_ids
    if (is_eos or token_id in sampling.stop_token_ids) and not (is_eos and sampling.ignore_eos):
        return "stop"
    return "length" if n_generated >= sampling.max_tokens else None
