"""The sidecar process: listens, sends completions to be measured and the rest straight through.

Needs the base installation only. Serving goes on whatever becomes of the telemetry receiver.
"""

import asyncio
import errno
import gc
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from aiohttp import web
from opentelemetry.metrics import Observation

from serving_probe.contract import Metric
from serving_probe.emit import Telemetry
from serving_probe.errors import ProbeError
from serving_probe.sidecar.attributes import operation_of
from serving_probe.sidecar.core import ProbeConfig
from serving_probe.sidecar.forward import open_session, pass_through
from serving_probe.sidecar.measure import Measurer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FLUSH_S: Final = 5.0
"""How long an ending process waits for its last spans to leave."""

OnReady = Callable[[str], None]


def run_probe(config: ProbeConfig, on_ready: OnReady | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then let what runs end within `drain_s`.

    `on_ready` is told the URL once the port is open. Raises `ProbeError` when it can't be opened.
    """
    asyncio.run(_serve_until_signal(config, on_ready))


async def _serve_until_signal(config: ProbeConfig, on_ready: OnReady | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(config) as url:
        if on_ready is not None:
            on_ready(url)
        await stop.wait()


@asynccontextmanager
async def serving(config: ProbeConfig) -> "AsyncIterator[str]":
    """A sidecar that serves inside the block; yields its URL."""
    salt = config.tenant_salt
    telemetry = Telemetry(
        config.telemetry,
        {"service.name": config.service_name, "service.instance.id": uuid4().hex},
    )
    try:
        async with open_session(config) as session:
            measurer = Measurer(
                config,
                session,
                telemetry,
                salt.get_secret_value().encode() if salt else secrets.token_bytes(32),
            )
            telemetry.counter(Metric.SPANS_DROPPED, _dropped(measurer, telemetry), "{span}")

            async def handle(request: web.Request) -> web.StreamResponse:
                operation = operation_of(request.method, request.path)
                if operation is None:
                    return await pass_through(request, session, config)
                return await measurer.handle(request, operation)

            app = web.Application(client_max_size=0)
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(
                app,
                access_log=None,
                auto_decompress=False,
                handler_cancellation=True,
                shutdown_timeout=config.drain_s,
            )
            await runner.setup()
            try:
                yield await _listen(runner, config)
            finally:
                await runner.cleanup()
    finally:
        await _close(telemetry)


async def _listen(runner: web.AppRunner, config: ProbeConfig) -> str:
    host, port = config.address
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        why = (
            "is taken" if error.errno == errno.EADDRINUSE else f"can't be opened: {error.strerror}"
        )
        raise ProbeError(f"port {port} on {host} {why}; choose another with --listen.") from error
    gc.freeze()
    opened = runner.addresses[0]
    return f"http://{f'[{host}]' if ':' in host else host}:{opened[1]}"


async def _close(telemetry: Telemetry) -> None:
    """Flush for a bounded time: a daemon thread, so that a dead receiver can't hold the process."""
    closing = threading.Thread(target=telemetry.close, name="telemetry-close", daemon=True)
    closing.start()
    deadline = time.monotonic() + FLUSH_S
    while closing.is_alive() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def _dropped(measurer: Measurer, telemetry: Telemetry) -> Callable[[], Iterable[Observation]]:
    """Spans that could not be made, and spans that could not be sent."""
    return lambda: [Observation(measurer.drops.n + telemetry.spans_dropped())]
