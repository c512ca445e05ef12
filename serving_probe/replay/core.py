"""The replay's vocabulary: what a run is asked to do, the shape of a request, what came of it.

A *shape* is a request without text: when, how long, who, and what it shares with others.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from serving_probe.errors import ReplayError

Api = Literal["chat", "completions"]


class ReplayConfig(BaseModel):
    """One run. Without `n_requests` and `seconds` a trace runs to its end, a workload for ever."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(description="base URL of an OpenAI-compatible server")]
    source: Annotated[str, Field(min_length=1, description="trace file or workload name")] = "demo"
    n_requests: Annotated[int | None, Field(ge=1, le=10_000_000)] = None
    seconds: Annotated[
        float | None, Field(gt=0, description="of sending; answers may end later")
    ] = None
    rate_scale: Annotated[float, Field(gt=0, le=1000, description="2 sends twice as fast")] = 1.0
    length_scale: Annotated[float, Field(gt=0, le=100, description="of inputs and outputs")] = 1.0
    max_input_tokens: Annotated[int | None, Field(ge=1)] = None
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    seed: int = 0
    model: Annotated[str | None, Field(description="None asks the server for its first")] = None
    api: Api = "chat"
    out: Annotated[Path | None, Field(description="JSONL, a row an attempt")] = None
    tenant: Annotated[str | None, Field(description="overrides the workload's callers")] = None
    slo_class: str | None = None
    api_key: SecretStr | None = None
    ignore_eos: Annotated[
        bool, Field(description="ask for the trace's output length (vLLM, SGLang, bundled stack)")
    ] = True
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    timeout_s: Annotated[float, Field(gt=0, le=86400, description="then the client leaves")] = 120.0
    cancel_ratio: Annotated[float, Field(ge=0, le=1, description="left by the client midway")] = 0.0
    drain_s: Annotated[float, Field(ge=0, le=3600, description="after a stop")] = 10.0

    @field_validator("url")
    @classmethod
    def _base(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"must begin with http:// or https://, not {url!r}")
        return url.rstrip("/").removesuffix("/v1")

    @property
    def endpoint(self) -> str:
        """Where completions are asked for."""
        return f"{self.url}/v1/{'chat/completions' if self.api == 'chat' else 'completions'}"

    @classmethod
    def create(cls, **fields: object) -> Self:
        """A checked config; raises `ReplayError` with one sentence on any fault."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "replay"
            raise ReplayError(f"{where}: {first['msg'].removeprefix('Value error, ')}.") from error


@dataclass(frozen=True, slots=True)
class Lengths:
    """How a source's token counts become the run's: scaled, then capped, at least one."""

    scale: float = 1.0
    max_input: int | None = None
    max_output: int | None = None

    def input(self, tokens: float) -> int:
        """A prompt's length in this run."""
        return self._fit(tokens, self.max_input)

    def output(self, tokens: float) -> int:
        """An answer's length in this run."""
        return self._fit(tokens, self.max_output)

    def _fit(self, tokens: float, most: int | None) -> int:
        scaled = max(1, round(tokens * self.scale))
        return scaled if most is None else min(scaled, most)


@dataclass(frozen=True, slots=True)
class Shape:
    """One request of a source; lengths are the run's, time is the source's."""

    offset_s: float  # since the source's first moment
    input_tokens: int  # the whole prompt, history included
    output_tokens: int
    block_ids: tuple[int, ...] = ()  # equal id: equal block after an equal prefix
    block_tokens: int = 0  # scaled
    conversation: int | None = None
    system_prompt: int | None = None
    system_tokens: int = 0
    tenant: str | None = None
    slo_class: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; totals are None where the run is unbounded."""

    n_sent: int
    n_ended: int
    elapsed_s: float
    n_total: int | None
    total_s: float | None


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """A run in numbers, as the client saw it. TTFT counts from the send; None: nothing to count."""

    n_sent: int
    n_by_outcome: dict[str, int]
    input_tokens: int | None  # over the attempts whose usage came; None: none said
    cached_tokens: int | None
    output_tokens: int | None
    n_without_usage: int
    elapsed_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    worst_lag_s: float | None  # sent minus scheduled: the load generator's own lateness
    model: str
    notes: tuple[str, ...]
    out: Path | None
