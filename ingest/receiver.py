"""The receiver process: a socket, the endpoints, the committer, and a clean end on SIGTERM.

It wires the room's parts together and knows none of their business.
"""

import importlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import uvicorn
from pydantic import BaseModel, ConfigDict, Field

from ingest.commit import CommitLimits, Committer, Decode
from ingest.dialects import Dialects
from ingest.errors import ReceiverError
from ingest.frames import Signal
from ingest.otlp_http import HttpLimits, OtlpHttp
from ingest.quarantine import Quarantine
from ingest.rows import segment_rows
from ingest.segments import Store

Ready = Callable[[str], None]
"""Called once with the base URL when requests are answered."""

_ROUTES: Final = {"ptars": "ingest.wire", "upb": "ingest.wire_upb"}


class ReceiverConfig(BaseModel):
    """One receiver."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Path
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="0: any free one")] = 4318
    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
            description="folder under incoming/; one process a name",
        ),
    ] = "main"
    decoder: Annotated[
        Literal["ptars", "upb"], Field(description="upb: slower, protobuf's own parser")
    ] = "ptars"
    dialects: Annotated[tuple[Path, ...], Field(description="more rule files")] = ()
    commit: CommitLimits = CommitLimits()
    http: HttpLimits = HttpLimits()
    max_connections: Annotated[int, Field(gt=0)] = 1024
    quarantine_files: Annotated[int, Field(gt=0)] = 1000
    quarantine_bytes: Annotated[int, Field(gt=0)] = 256 * 2**20


def run_receiver(config: ReceiverConfig, ready: Ready | None = None) -> None:
    """Receive until SIGTERM or SIGINT; every body that was taken is durable when this returns.

    Raises StoreError, DialectError or ReceiverError with nothing started, and ReceiverError if the
    writer dies: a supervisor should start anew, for the senders still have what wasn't answered.
    """
    dialects = Dialects.load(*config.dialects)
    with _listening(config.host, config.port) as listener:
        receiver = _Receiver(config, Store.open(config.store), dialects)
        try:
            receiver.serve(listener, ready)
        finally:
            receiver.close()


class _Receiver:
    def __init__(self, config: ReceiverConfig, store: Store, dialects: Dialects) -> None:
        self._config = config
        self._quarantine = Quarantine(
            store.path / "quarantine", config.quarantine_files, config.quarantine_bytes
        )
        decode: Decode = importlib.import_module(_ROUTES[config.decoder]).decode
        for each in Signal:  # pyarrow's first use imports for a second: not in a sender's time
            segment_rows(decode(each, [b""]), dialects, [0], config.name)
        self._committer = Committer(
            store.writer(config.name),
            config.name,
            dialects,
            self._quarantine,
            config.commit,
            decode,
        )

    def serve(self, listener: socket.socket, ready: Ready | None) -> None:
        app = OtlpHttp(self._committer, self._quarantine, self._config.http).app(self.stats)
        url = _url(self._config.host, listener.getsockname()[1])
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                limit_concurrency=self._config.max_connections,
                timeout_graceful_shutdown=10,
                timeout_keep_alive=75,  # over any exporter's interval: a reused socket is open
            ),
            ready=(lambda: ready(url)) if ready else None,
            is_healthy=lambda: self._committer.is_running,
        )
        server.run(sockets=[listener])
        if not self._committer.is_running:
            raise ReceiverError(
                "the writer died (its traceback is above): nothing acknowledged is lost, start "
                "the receiver again"
            )

    def stats(self) -> dict[str, Any]:
        """What `/stats` shows: counters since the start, and what waits now."""
        return {
            **asdict(self._committer.stats),
            "queue_depth": self._committer.queue_depth,
            "queue_bytes": self._committer.queue_bytes,
            "quarantined": self._quarantine.n_kept,
            "quarantine_dropped": self._quarantine.n_dropped,
            "quarantine_failed": self._quarantine.n_failed,
        }

    def close(self) -> None:
        self._committer.close()


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it listens, ends when it isn't healthy any more, and ends
    a signal with a normal return."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None] | None,
        is_healthy: Callable[[], bool],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._is_healthy = is_healthy

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or not self._is_healthy()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ends = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        number = error.errno or 0  # negative: the name can't be resolved
        why = os.strerror(number) if number > 0 else error.strerror
        raise ReceiverError(
            f"can't listen on {host}:{port}: {why}: stop what has it, or choose another with "
            "--otlp-port"
        ) from error


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
