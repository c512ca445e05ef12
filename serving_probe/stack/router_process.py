"""The router process: the API on its socket, the router behind it, until SIGTERM.

Started by `fleet`, which also tells it of workers that died.
"""

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Final

import uvicorn
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette

from serving_probe.emit import Telemetry, TelemetryConfig
from serving_probe.stack.api import Lifespan, create_app
from serving_probe.stack.gateway import Gateway
from serving_probe.stack.model.tokenizer import load_tokenizer
from serving_probe.stack.placement import RoutingConfig
from serving_probe.stack.router import Router
from serving_probe.stack.topology import Topology

DRAIN_S: Final = 4.0
"""After SIGTERM, requests in flight have this long to end by themselves."""


class RouterConfig(BaseModel):
    """All that the router process needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topology: Topology
    endpoint: Annotated[str, Field(description="ZeroMQ address to bind for the workers")]
    listen_fd: Annotated[int, Field(ge=0, description="inherited listening socket")]
    telemetry: TelemetryConfig = TelemetryConfig()


Watch = Callable[[Callable[[str], None]], None]
"""Calls back with the id of every worker that died; runs until the parent goes."""


class _Server(uvicorn.Server):
    """uvicorn, with flights interrupted (and so answered and measured) before it gives up."""

    router: Router

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(DRAIN_S, self.router.interrupt_all)
        await super().shutdown(sockets)
        timer.cancel()


def run_router(config: RouterConfig, watch: Watch) -> None:
    """Serve until SIGTERM; returns when requests have ended and telemetry is flushed."""
    # uvicorn raises the signal it caught once more when done: by then it must not kill.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    topology = config.topology
    resource = {"service.name": "tokenmill-stack", "service.instance.id": "router"}
    tokenizer = load_tokenizer(topology.model)
    router = Router(
        RoutingConfig(max_queue=topology.max_queue),
        frozenset(group.role for group in topology.workers),
        config.endpoint,
    )
    with Telemetry(config.telemetry, {**resource}) as telemetry:
        gateway = Gateway(router, tokenizer, telemetry, topology)
        app = create_app(gateway, _lifespan(router, watch))
        server = _Server(
            uvicorn.Config(
                app,
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(DRAIN_S) + 1,
            )
        )
        server.router = router
        server.run(sockets=[socket.socket(fileno=config.listen_fd)])


def _lifespan(router: Router, watch: Watch) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        router.start()

        def died(worker_id: str) -> None:
            loop.call_soon_threadsafe(router.worker_died, worker_id)

        threading.Thread(target=watch, args=(died,), daemon=True, name="parent").start()
        # What exists now lives as long as the process: no collection need look at it again.
        gc.collect()
        gc.freeze()
        yield
        await router.close()

    return lifespan
