"""Weights as named tensors: converted once from the GGUF, mapped from safetensors after that.

Projections that read the same input are stored as one matrix (`qkv`, `gate_up`), so a step makes
fewer, larger products. Float32 keeps the dequantised values exactly; bfloat16 rounds them.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from serving_probe.stack.errors import ModelError
from serving_probe.stack.model.cache import cache_folder, file_sha256, locked, whole_file
from serving_probe.stack.model.config import TINY, ModelConfig, Precision
from serving_probe.stack.model.source import gguf_path, open_gguf

Tensors = dict[str, torch.Tensor]

TORCH_DTYPES: Final[dict[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}
_FORMAT: Final = 1  # raised when the names or the fusing of the stored tensors change
_TINY_SEED: Final = 20260101
_READABLE: Final = range(0x20, 0x7F)


def load_weights(config: ModelConfig, dtype: Precision) -> tuple[Tensors, str]:
    """All tensors and the model hash (16 hex digits, the same for every dtype)."""
    if config.name == TINY.name:
        return _tiny_weights(config, TORCH_DTYPES[dtype])
    folder = cache_folder(config.name)
    weights = folder / f"weights-{dtype}.safetensors"
    manifest_path = folder / f"weights-{dtype}.json"
    manifest = _valid_manifest(manifest_path, weights)
    if manifest is None:
        with locked(weights):
            manifest = _valid_manifest(manifest_path, weights)
            if manifest is None:
                manifest = _convert(config, dtype, weights, manifest_path)
    try:
        with safe_open(weights, framework="pt", device="cpu") as stored:
            names = stored.keys()
            return {name: stored.get_tensor(name) for name in names}, manifest["model_hash"]
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{weights} can't be read ({error}); delete it to convert anew."
        ) from error


def _valid_manifest(manifest_path: Path, weights: Path) -> dict[str, str] | None:
    # The size is compared, not the digest: hashing half a gigabyte would double a worker's start.
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        is_valid = manifest["format"] == _FORMAT and manifest["n_bytes"] == weights.stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if is_valid else None


def _convert(
    config: ModelConfig, dtype: Precision, weights: Path, manifest_path: Path
) -> dict[str, Any]:
    source = gguf_path()
    tensors = dict(_from_gguf(open_gguf(source), config, TORCH_DTYPES[dtype]))
    with whole_file(weights) as draft:
        save_file(tensors, draft)
    source_sha256 = file_sha256(source)
    manifest = {
        "format": _FORMAT,
        "model_hash": hashlib.sha256(f"{source_sha256}:{_FORMAT}".encode()).hexdigest()[:16],
        "source": source.name,
        "source_sha256": source_sha256,
        "sha256": file_sha256(weights),
        "n_bytes": weights.stat().st_size,
        "dtype": dtype,
    }
    # Written last: a manifest says that its weights are whole.
    with whole_file(manifest_path) as draft:
        draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def _from_gguf(
    reader: Any, config: ModelConfig, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    from gguf.quants import dequantize

    stored = {tensor.name: tensor for tensor in reader.tensors}

    def read(name: str) -> torch.Tensor:
        try:
            tensor = stored[name]
        except KeyError:
            raise ModelError(f"the GGUF file has no tensor {name!r}.") from None
        values = dequantize(tensor.data, tensor.tensor_type)
        return torch.tensor(np.asarray(values, dtype=np.float32))

    yield "embed", read("token_embd.weight").to(dtype)
    yield "norm", read("output_norm.weight").to(dtype)
    for i in range(config.n_layers):
        block, name = f"blk.{i}", f"layers.{i}"
        query = unpermute(read(f"{block}.attn_q.weight"), config.n_heads)
        key = unpermute(read(f"{block}.attn_k.weight"), config.n_kv_heads)
        value = read(f"{block}.attn_v.weight")
        gate, up = read(f"{block}.ffn_gate.weight"), read(f"{block}.ffn_up.weight")
        yield f"{name}.attn_norm", read(f"{block}.attn_norm.weight").to(dtype)
        yield f"{name}.qkv", torch.cat([query, key, value]).to(dtype)
        yield f"{name}.out", read(f"{block}.attn_output.weight").to(dtype)
        yield f"{name}.mlp_norm", read(f"{block}.ffn_norm.weight").to(dtype)
        yield f"{name}.gate_up", torch.cat([gate, up]).to(dtype)
        yield f"{name}.down", read(f"{block}.ffn_down.weight").to(dtype)


def unpermute(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order: it interleaves rotary pairs, half-split rotary keeps halves."""
    rows, width = weight.shape
    paired = weight.view(n_heads, rows // n_heads // 2, 2, width)
    return paired.transpose(1, 2).reshape(rows, width)


def _tiny_weights(config: ModelConfig, dtype: torch.dtype) -> tuple[Tensors, str]:
    generator = torch.Generator().manual_seed(_TINY_SEED)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) / math.sqrt(shape[-1])

    # The head is tied: rows near zero can't win, so greedy output is readable text without end.
    embed = draw(config.vocab_size, config.d_model)
    is_readable = torch.zeros(config.vocab_size, 1)
    is_readable[_READABLE.start : _READABLE.stop] = 1.0
    tensors = {
        "embed": embed * is_readable.clamp(min=1e-2),
        "norm": torch.ones(config.d_model) * 4.0,
    }
    for i in range(config.n_layers):
        name = f"layers.{i}"
        tensors[f"{name}.attn_norm"] = torch.ones(config.d_model)
        tensors[f"{name}.qkv"] = draw(config.d_q + 2 * config.d_kv, config.d_model)
        tensors[f"{name}.out"] = draw(config.d_model, config.d_q)
        tensors[f"{name}.mlp_norm"] = torch.ones(config.d_model)
        tensors[f"{name}.gate_up"] = draw(2 * config.d_ff, config.d_model)
        tensors[f"{name}.down"] = draw(config.d_model, config.d_ff)
    seeded = f"{config.model_dump_json()}:{_TINY_SEED}:{_FORMAT}"
    model_hash = hashlib.sha256(seeded.encode()).hexdigest()[:16]
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}, model_hash
