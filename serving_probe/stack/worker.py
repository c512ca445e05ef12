"""A worker process: its settings, and how it begins and ends.

Torch is imported only inside `run_worker`, so that whoever starts workers stays light; what a
worker does between begin and end is `worker_loop`'s.
"""

import os
import signal
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_probe.contract import Role
from serving_probe.emit import TelemetryConfig
from serving_probe.stack.child import die_with_parent
from serving_probe.stack.errors import StackError
from serving_probe.stack.topology import DType


class WorkerConfig(BaseModel):
    """All that one worker process needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role
    worker_type: Annotated[str, Field(min_length=1)]
    pool: Annotated[str, Field(min_length=1)]
    router_endpoint: Annotated[str, Field(description="ZeroMQ address of the router's ROUTER")]
    model: Literal["smollm2", "tiny"] = "smollm2"
    dtype: DType = "auto"
    n_pages: Annotated[int, Field(ge=8, le=1_000_000)] = 512
    max_batch: Annotated[int, Field(ge=1, le=256)] = 16
    max_prefill_tokens: Annotated[int, Field(ge=16, le=65536)] = 2048
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    lease_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    shm_prefix: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$", description="names start with it")
    ]
    telemetry: TelemetryConfig = TelemetryConfig()


def run_worker(config: WorkerConfig) -> None:
    """Serve until `Drain` or SIGTERM; returns when telemetry is flushed and memory unlinked.

    Raises `SystemExit` with one sentence when the worker can't start.
    """
    stop = _until_stopped()
    os.nice(config.nice)
    from serving_probe.stack.worker_loop import serve

    try:
        serve(config, stop)
    except StackError as error:
        raise SystemExit(f"{config.worker_id}: {error}") from error


def _until_stopped() -> Callable[[], bool]:
    """Whether to go on: until SIGTERM, or until the process that started this one is gone."""
    parent = os.getppid()
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the fleet, which then stops us
    die_with_parent()
    return lambda: bool(received) or os.getppid() != parent
