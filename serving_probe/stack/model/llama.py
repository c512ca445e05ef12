"""The forward pass: one flat token batch of any sequences, K and V in pages.

Linear layers see all tokens at once; attention is per sequence for prompts and batched for
decoding. Knows pages by number only; who owns them is the scheduler's and the pool's business.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.model.config import ModelConfig, Precision, model_config
from serving_probe.stack.model.linear import Linear
from serving_probe.stack.model.weights import TORCH_DTYPES, Tensors, load_weights

OnLayer = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a batch: its new tokens, what came before, and where its KV lies."""

    token_ids: Sequence[int]  # the tokens to compute now
    n_context: int  # tokens whose KV is in the pages already
    pages: Sequence[int]  # enough for n_context + len(token_ids)


@dataclass(frozen=True, slots=True)
class _Layer:
    attn_norm: torch.Tensor
    qkv: Linear
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Model:
    """A Llama ready to compute; stateless but for its weights."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: Precision,
        tensors: Tensors,
        model_hash: str,
        *,
        is_packed: bool = False,
    ) -> None:
        """`is_packed` holds the weights a second time, for quicker small batches (`linear`)."""
        self.config = config
        self.dtype = dtype
        self.model_hash = model_hash
        self._embed = tensors["embed"]
        self._norm = tensors["norm"]
        self._head = Linear(self._embed, is_packed=is_packed)

        def layer(i: int) -> _Layer:
            def linear(part: str) -> Linear:
                return Linear(tensors[f"layers.{i}.{part}"], is_packed=is_packed)

            return _Layer(
                attn_norm=tensors[f"layers.{i}.attn_norm"],
                qkv=linear("qkv"),
                out=linear("out"),
                mlp_norm=tensors[f"layers.{i}.mlp_norm"],
                gate_up=linear("gate_up"),
                down=linear("down"),
            )

        self._layers = [layer(i) for i in range(config.n_layers)]
        self._cos, self._sin = _rotary(config)

    @torch.inference_mode()
    def forward(
        self, rows: Sequence[Row], kv: torch.Tensor, on_layer: OnLayer | None = None
    ) -> torch.Tensor:
        """Float32 logits [n_rows, vocab] of each row's last token; K and V go into the pages.

        `kv` is [page, layer, 2, kv_heads, BLOCK_TOKENS, head_dim]. `on_layer(i)` is called when
        layer i's K and V are in place.
        """
        batch = _Batch(rows, self.config, kv)
        cos = self._cos[batch.positions].unsqueeze(1)  # [tokens, 1, head_dim]
        sin = self._sin[batch.positions].unsqueeze(1)
        x = functional.embedding(batch.token_ids, self._embed)  # [tokens, d_model]
        last_layer = len(self._layers) - 1
        for i, layer in enumerate(self._layers):
            qkv = layer.qkv(self._normed(x, layer.attn_norm))
            query, key, value = self._heads(qkv, cos, sin)
            batch.write(i, key, value)
            if on_layer is not None:
                on_layer(i)
            mixed = batch.attend(i, query, key, value)
            if i == last_layer:  # only each row's last token goes on to the head
                x, mixed = x[batch.last], mixed[batch.last]
            x = x + layer.out(mixed)
            gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        return self._head(self._normed(x, self._norm)).float()

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)

    def _heads(
        self, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        config = self.config
        heads = qkv.view(qkv.shape[0], -1, config.head_dim)  # [tokens, q + k + v heads, head_dim]
        turning = heads[:, : config.n_heads + config.n_kv_heads]
        first, second = turning.chunk(2, dim=-1)
        turned = turning * cos + torch.cat([-second, first], dim=-1) * sin
        turned = turned.to(heads.dtype)
        query, key = turned[:, : config.n_heads], turned[:, config.n_heads :]
        return query, key, heads[:, config.n_heads + config.n_kv_heads :]


class _Batch:
    """Index tensors of one forward pass, made once and used by every layer."""

    def __init__(self, rows: Sequence[Row], config: ModelConfig, kv: torch.Tensor) -> None:
        self._config = config
        self._kv = kv
        self._kv_rows = kv.view(-1, BLOCK_TOKENS, config.head_dim)  # one row a (page, layer, 2, h)
        self._scratch: dict[int, torch.Tensor] = {}
        counts = [len(row.token_ids) for row in rows]
        self.token_ids = torch.tensor([t for row in rows for t in row.token_ids])
        spans = [
            range(row.n_context, row.n_context + n) for row, n in zip(rows, counts, strict=True)
        ]
        self.positions = torch.tensor([p for span in spans for p in span])
        ends = torch.tensor(counts).cumsum(0)
        self.last = ends - 1
        self._slot_pages = torch.tensor(
            [
                row.pages[p // BLOCK_TOKENS]
                for row, span in zip(rows, spans, strict=True)
                for p in span
            ]
        )
        self._slot_offsets = self.positions % BLOCK_TOKENS
        starts = [int(end) - n for end, n in zip(ends, counts, strict=True)]
        self._prompts = [
            (start, row, self._gather_index([row]) if row.n_context else None)
            for start, row, n in zip(starts, rows, counts, strict=True)
            if n > 1
        ]
        self._decode_at = [s for s, n in zip(starts, counts, strict=True) if n == 1]
        decoding = [row for row, n in zip(rows, counts, strict=True) if n == 1]
        if decoding:
            self._decode_index = self._gather_index(decoding)
            n_slots = self._decode_index.shape[-1] * BLOCK_TOKENS
            lengths = torch.tensor([row.n_context + 1 for row in decoding])
            is_seen = torch.arange(n_slots) < lengths[:, None]
            self._decode_mask = (
                torch.zeros(is_seen.shape, dtype=kv.dtype)
                .masked_fill_(~is_seen, float("-inf"))
                .view(len(decoding), 1, 1, n_slots)
            )

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put each token's K and V [tokens, kv_heads, head_dim] into its slot."""
        pages = self._kv[:, layer]
        pages[self._slot_pages, 0, :, self._slot_offsets] = key
        pages[self._slot_pages, 1, :, self._slot_offsets] = value

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Attention output [tokens, d_q] of every row."""
        if not self._prompts:
            return self._attend_decode(layer, query)
        mixed = torch.empty_like(query)
        for start, row, index in self._prompts:
            part = slice(start, start + len(row.token_ids))
            if index is None:
                seen_key, seen_value = key[part].transpose(0, 1), value[part].transpose(0, 1)
            else:
                n_seen = row.n_context + len(row.token_ids)
                gathered = self._gather(layer, index)[0, :, :, :n_seen]
                seen_key, seen_value = gathered[0], gathered[1]
            mixed[part] = _attend_prompt(query[part], seen_key, seen_value)
        if self._decode_at:
            mixed[self._decode_at] = self._attend_decode(layer, query[self._decode_at]).view(
                len(self._decode_at), *query.shape[1:]
            )
        return mixed.view(query.shape[0], -1)

    def _attend_decode(self, layer: int, query: torch.Tensor) -> torch.Tensor:
        config = self._config
        gathered = self._gather(layer, self._decode_index)  # [rows, 2, kv_heads, slots, head_dim]
        # Query heads that share a KV head stand where a prompt's positions would: no K is repeated.
        grouped = query.reshape(query.shape[0], config.n_kv_heads, -1, config.head_dim)
        mixed = functional.scaled_dot_product_attention(
            grouped, gathered[:, 0], gathered[:, 1], attn_mask=self._decode_mask
        )
        return mixed.reshape(query.shape[0], -1)

    def _gather_index(self, rows: Sequence[Row]) -> torch.Tensor:
        # Rows of `_kv_rows` for layer 0, [rows, 2, kv_heads, pages]; short rows repeat page 0,
        # which the mask hides.
        config = self._config
        counts = [-(-(row.n_context + len(row.token_ids)) // BLOCK_TOKENS) for row in rows]
        most = max(counts)
        pages = torch.tensor(
            [
                [*row.pages[:n], *[row.pages[0]] * (most - n)]
                for row, n in zip(rows, counts, strict=True)
            ]
        )
        first = pages * (config.n_layers * 2 * config.n_kv_heads)
        within = torch.arange(2 * config.n_kv_heads).view(1, 2, config.n_kv_heads, 1)
        return first.view(len(rows), 1, 1, most) + within

    def _gather(self, layer: int, index: torch.Tensor) -> torch.Tensor:
        config = self._config
        at = (index + layer * 2 * config.n_kv_heads).flatten()
        found = self._scratch.get(len(at))
        if found is None:
            # Layers take turns in one buffer: fresh memory for each costs more than the copy.
            found = self._scratch[len(at)] = self._kv_rows.new_empty(
                len(at), BLOCK_TOKENS, config.head_dim
            )
        torch.index_select(self._kv_rows, 0, at, out=found)
        return found.view(*index.shape[:3], -1, config.head_dim)


def _attend_prompt(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[new, heads, head_dim] of new tokens; key and value are [kv_heads, seen, head_dim]."""
    n_new, n_seen = query.shape[0], key.shape[1]
    is_whole = n_new == n_seen
    mask = None
    if not is_whole:
        mask = torch.ones(n_new, n_seen, dtype=torch.bool).tril(n_seen - n_new)
    mixed = functional.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key.unsqueeze(0),
        value.unsqueeze(0),
        attn_mask=mask,
        is_causal=is_whole,
        enable_gqa=True,
    )
    return mixed[0].transpose(0, 1)


def _rotary(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(config.max_context).float(), config.rope_theta**-half)
    angles = torch.cat([angles, angles], dim=-1)  # [max_context, head_dim]
    return angles.cos(), angles.sin()


def load_model(name: str, dtype: Precision, *, is_packed: bool = False) -> Model:
    """A model by name in a number format; raises `ModelError` when it can't be had.

    `is_packed` is for workers that decode: see `Model`.
    """
    config = model_config(name)
    if dtype not in TORCH_DTYPES:
        raise ValueError(f"dtype is one of {sorted(TORCH_DTYPES)}, not {dtype!r}")
    tensors, model_hash = load_weights(config, dtype)
    return Model(config, dtype, tensors, model_hash, is_packed=is_packed)
