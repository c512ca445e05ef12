"""The KV pages themselves: one tensor over a shared segment, block-major.

A page holds all layers of 16 tokens, so that one sequence's handoff is a few large copies.
"""

from dataclasses import dataclass

import torch

from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.kv.pages import PageLedger
from serving_probe.stack.kv.segment import attach_segment, create_segment, unlink_segment
from serving_probe.stack.model.config import ModelConfig, Precision
from serving_probe.stack.model.weights import TORCH_DTYPES


@dataclass(frozen=True, slots=True)
class PageShape:
    """What one page looks like; pages move only between like layouts."""

    model_hash: str
    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: Precision

    @classmethod
    def of(cls, config: ModelConfig, model_hash: str, dtype: Precision) -> "PageShape":
        """The page shape a model needs."""
        return cls(model_hash, config.n_layers, config.n_kv_heads, config.head_dim, dtype)

    @property
    def dims(self) -> tuple[int, ...]:
        """[layer, K or V, kv_heads, tokens, head_dim]."""
        return (self.n_layers, 2, self.n_kv_heads, BLOCK_TOKENS, self.head_dim)

    @property
    def n_bytes(self) -> int:
        """Bytes of one page."""
        n_values = self.n_layers * 2 * self.n_kv_heads * BLOCK_TOKENS * self.head_dim
        return n_values * TORCH_DTYPES[self.dtype].itemsize

    @property
    def layout(self) -> str:
        """Model hash and dims, without the number format: that may be converted on the way."""
        return f"{self.model_hash}/{'x'.join(str(n) for n in self.dims)}"


class PagePool:
    """A worker's own pages: memory and books."""

    def __init__(self, name: str, shape: PageShape, n_pages: int) -> None:
        self.name = name
        self.shape = shape
        self.ledger = PageLedger(n_pages)
        memory = create_segment(name, n_pages * shape.n_bytes)
        self.tensor = _as_pages(memory, shape)  # [page, *shape.dims]

    def unlink(self) -> None:
        """Take the segment's name away; the mapping lasts as long as the tensor."""
        unlink_segment(self.name)


def attach_pages(name: str, shape: PageShape) -> torch.Tensor:
    """Another worker's pages, [page, *shape.dims], to be read only; `KvError` if they're gone."""
    return _as_pages(attach_segment(name), shape)


def _as_pages(memory: object, shape: PageShape) -> torch.Tensor:
    flat = torch.frombuffer(memory, dtype=TORCH_DTYPES[shape.dtype])
    return flat.view(-1, *shape.dims)
