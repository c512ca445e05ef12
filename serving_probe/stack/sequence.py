"""One attempt's state inside a worker, from its message to its last token here.

A record that the engine fills in; what goes out as spans is read from it by `legspans`.
"""

import time
from dataclasses import dataclass, field

from opentelemetry.context import Context

from serving_probe.emit import context_from
from serving_probe.stack.core import BLOCK_TOKENS, Decode, Prefill, Sampling
from serving_probe.stack.meter import Spent
from serving_probe.stack.transfer.link import Transfer


@dataclass(slots=True)
class Sequence:
    """Times are wall-clock ns; None means it hasn't happened."""

    attempt_id: str
    context: Context
    prompt: tuple[int, ...]
    sampling: Sampling
    dispatched_ns: int
    cache_scope: str = ""
    hashes: tuple[str, ...] = ()
    pages: list[int] = field(default_factory=list)
    n_computed: int = 0  # tokens whose KV is in the pages
    n_reused: int = 0
    generated: list[int] = field(default_factory=list)
    n_inherited: int = 0  # generated tokens that another worker produced
    spent: Spent = field(default_factory=Spent)
    transfer: Transfer | None = None
    received_ns: int = 0
    prefill_started_ns: int | None = None
    prefill_ended_ns: int | None = None
    kv_ready_ns: int | None = None
    decode_started_ns: int | None = None
    last_token_ns: int | None = None

    @classmethod
    def of(cls, message: Prefill | Decode) -> "Sequence":
        """A fresh sequence for a message that has just arrived."""
        seq = cls(
            attempt_id=message.attempt_id,
            context=context_from(message.traceparent),
            prompt=message.token_ids,
            sampling=message.sampling,
            dispatched_ns=message.dispatched_unix_ns,
            received_ns=time.time_ns(),
        )
        if isinstance(message, Decode):
            seq.generated = [message.first_token]
            seq.n_inherited = 1
            seq.transfer = Transfer.offered(message.export)
        else:
            seq.cache_scope = message.cache_scope
        return seq

    @property
    def n_prompt_left(self) -> int:
        """Prompt tokens still to compute."""
        return max(0, len(self.prompt) - self.n_computed)

    @property
    def n_generated_here(self) -> int:
        """Output tokens this worker produced."""
        return len(self.generated) - self.n_inherited

    def known_tokens(self) -> tuple[int, ...]:
        """Tokens whose KV is in the pages."""
        return (*self.prompt, *self.generated)[: self.n_computed]


def pages_for(n_tokens: int) -> int:
    """Pages that hold `n_tokens`."""
    return -(-n_tokens // BLOCK_TOKENS)
