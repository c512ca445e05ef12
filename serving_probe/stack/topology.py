"""What runs where: a topology file in TOML, read into frozen models.

Knows nothing of processes; `fleet` starts what this describes.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving_probe.contract import Role

DType = Literal["auto", "float32", "bfloat16"]


class TopologyError(Exception):
    """A topology file that can't be read or makes no sense; the message is one sentence."""


class WorkerGroup(BaseModel):
    """`count` workers alike: one role, one type, one pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    count: Annotated[int, Field(ge=1, le=64)] = 1
    worker_type: Annotated[str, Field(min_length=1, description="names a price card")]
    pool: Annotated[str, Field(min_length=1)]
    dtype: DType = "auto"
    n_pages: Annotated[int, Field(ge=8, le=1_000_000, description="KV pages in the pool")] = 512
    max_batch: Annotated[int, Field(ge=1, le=256, description="sequences in one step")] = 16
    max_prefill_tokens: Annotated[int, Field(ge=16, le=65536, description="tokens a step")] = 2048
    nice: Annotated[int, Field(ge=0, le=19, description="keeps the router responsive")] = 10

    def worker_ids(self) -> Iterator[str]:
        """`{pool}-0`, `{pool}-1`, …: stable over restarts."""
        return (f"{self.pool}-{i}" for i in range(self.count))


class Topology(BaseModel):
    """The whole stack: its model, its API address and its workers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    model: Literal["smollm2", "tiny"] = "smollm2"
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="0 takes a free port")] = 8100
    lease_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    request_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    max_queue: Annotated[int, Field(ge=1, le=100_000, description="then 429")] = 256
    workers: Annotated[tuple[WorkerGroup, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        roles = {group.role for group in self.workers}
        if roles not in ({Role.UNIFIED}, {Role.PREFILL, Role.DECODE}):
            raise ValueError("workers must be all unified, or prefill and decode together")
        pools = [group.pool for group in self.workers]
        if len(pools) != len(set(pools)):
            raise ValueError("each worker group needs a pool name of its own")
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a topology file; raises `TopologyError` with one sentence on any fault."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise TopologyError(f"cannot read topology {path}: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TopologyError(f"topology {path} is not valid TOML: {error}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "file"
            raise TopologyError(f"topology {path}: {where}: {first['msg']}.") from error
