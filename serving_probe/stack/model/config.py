"""Sizes of the models the stack serves, and the number format a CPU should compute in.

Knows neither weights nor torch.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_probe.stack.errors import ModelError
from serving_probe.stack.topology import DType

Precision = Literal["float32", "bfloat16"]


class ModelConfig(BaseModel):
    """A Llama's sizes: grouped-query attention, half-split rotary, tied head."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    n_layers: Annotated[int, Field(ge=1)]
    d_model: Annotated[int, Field(ge=1)]
    n_heads: Annotated[int, Field(ge=1)]
    n_kv_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=2, multiple_of=2)]
    d_ff: Annotated[int, Field(ge=1)]
    vocab_size: Annotated[int, Field(ge=1)]
    rope_theta: Annotated[float, Field(gt=0)]
    norm_eps: Annotated[float, Field(gt=0)]
    max_context: Annotated[int, Field(ge=16, description="prompt and output tokens together")]
    eos_token_ids: Annotated[tuple[int, ...], Field(description="tokens that end an output")]

    @property
    def d_q(self) -> int:
        """Width of the query projection."""
        return self.n_heads * self.head_dim

    @property
    def d_kv(self) -> int:
        """Width of the key (or the value) projection."""
        return self.n_kv_heads * self.head_dim


SMOLLM2: Final = ModelConfig(
    name="smollm2",
    n_layers=30,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    head_dim=64,
    d_ff=1536,
    vocab_size=49152,
    rope_theta=1e5,
    norm_eps=1e-5,
    max_context=8192,
    eos_token_ids=(2, 0),  # <|im_end|>, <|endoftext|>
)
"""SmolLM2-135M-Instruct (Hugging Face, Apache-2.0)."""

TINY: Final = ModelConfig(
    name="tiny",
    n_layers=2,
    d_model=64,
    n_heads=4,
    n_kv_heads=2,
    head_dim=16,
    d_ff=128,
    vocab_size=260,
    rope_theta=1e4,
    norm_eps=1e-5,
    max_context=4096,
    eos_token_ids=(257, 258),
)
"""A seeded random Llama over bytes: it says nothing, quickly."""


def model_config(name: str) -> ModelConfig:
    """The sizes of a model by name; raises `ModelError` for one that isn't known."""
    for config in (SMOLLM2, TINY):
        if config.name == name:
            return config
    raise ModelError(f"model {name!r} isn't known: use 'smollm2' or 'tiny'.")


def resolve_dtype(wanted: DType, cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[Precision, str]:
    """The number format to compute in, and why: bfloat16 only pays where the CPU multiplies it."""
    if wanted != "auto":
        return wanted, "asked for"
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "float32", "the CPU's features can't be read here"
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    for feature in ("amx_bf16", "avx512_bf16"):
        if feature in flags:
            return "bfloat16", f"the CPU has {feature}"
    return "float32", "the CPU has neither amx_bf16 nor avx512_bf16"
