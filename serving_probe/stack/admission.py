"""Whether a request can ever run on a worker; a person reads the answer.

Only limits that don't change count here; a pool that's full for now is the scheduler's business.
"""

from serving_probe.contract import Role
from serving_probe.stack.model.config import ModelConfig
from serving_probe.stack.sequence import Sequence, pages_for


def pages_needed(seq: Sequence, role: Role) -> int:
    """Pages to reserve for the whole stay; the last token's KV is never needed.

    A prefill worker holds the prompt's alone.
    """
    n_output = 0 if role is Role.PREFILL else seq.sampling.max_tokens - 1
    return pages_for(len(seq.prompt) + n_output)


def refusal(seq: Sequence, role: Role, config: ModelConfig, n_pages: int) -> str | None:
    """Why the sequence can never run in a pool of `n_pages`; None when it can."""
    if seq.transfer is None and role is Role.DECODE:
        return "a decode worker computes no prompts: send it handoffs."
    if seq.transfer is not None and role is not Role.DECODE:
        return f"a {role} worker takes no handoffs: send it prompts."
    n_tokens = len(seq.prompt) + seq.sampling.max_tokens
    if not seq.prompt:
        return "the prompt is empty: at least one token is needed."
    if seq.sampling.max_tokens < 1:
        return f"max_tokens is {seq.sampling.max_tokens}: at least one must be asked for."
    if not all(0 <= token < config.vocab_size for token in seq.prompt):
        return f"the prompt has token ids outside 0..{config.vocab_size - 1}."
    if n_tokens > config.max_context:
        return (
            f"prompt and max_tokens are {n_tokens} tokens together and {config.name} takes "
            f"{config.max_context}: shorten one of them."
        )
    needed = pages_needed(seq, role)
    if needed > n_pages:
        return (
            f"the request needs {needed} KV pages and the worker has {n_pages}: shorten it or "
            "raise n_pages in the topology."
        )
    return None
