"""Starts the stack's processes from a topology, keeps them running, and leaves nothing behind.

One supervisor thread owns every child: it starts them, restarts the ones that die and tells the
router. It knows processes, not requests.
"""

import errno
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, Self

from serving_probe.emit import TelemetryConfig
from serving_probe.stack.errors import FleetError
from serving_probe.stack.kv.segment import sweep
from serving_probe.stack.process import ChildProcess
from serving_probe.stack.router_process import DRAIN_S, RouterConfig
from serving_probe.stack.topology import Topology
from serving_probe.stack.worker import WorkerConfig

_LOOK_EVERY_S: Final = 0.05
_GIVE_UP_AFTER: Final = 3  # deaths while the stack has never been ready
_OWN_FAULT: Final = 1  # exit code of a child that said why it can't run
_FLUSH_S: Final = 6.0
_LONGEST_IPC_PATH: Final = 100
_ROUTER: Final = "router"


class Fleet:
    """The stack's processes; a context manager that starts on entry and closes on exit."""

    def __init__(self, topology: Topology, telemetry: TelemetryConfig) -> None:
        self._topology = topology
        self._telemetry = telemetry
        self._stop = threading.Event()
        self._started = threading.Event()
        self._fault: str | None = None
        self._was_ready = False
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._children: list[ChildProcess] = []
        self.shm_prefix = f"tm{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Base URL of the API."""
        return f"http://{self._topology.host}:{self.port}"

    @property
    def port(self) -> int:
        """The API's port, also where the topology asked for any free one."""
        assert self._port is not None, "start() comes first"
        return self._port

    @property
    def fault(self) -> str | None:
        """Why a process can't be kept running; None while all is well."""
        return self._fault

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each live child: `router`, and the workers by their ids."""
        return {c.name: c.pid for c in self._children if c.pid is not None}

    def start(self) -> None:
        """Take the port and start every process; raises `FleetError`, leaving nothing running."""
        self._socket = _listen(self._topology.host, self._topology.port)
        self._port = self._socket.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="tokenmill-"))
        try:
            self._children = list(self._plan())
        except FleetError:
            self._forget()
            raise
        # Children die with the thread that started them (Linux), so that one lives on.
        self._thread = threading.Thread(target=self._supervise, daemon=True, name="fleet")
        self._thread.start()
        self._started.wait()
        if self._fault is not None:
            self.close()
            raise FleetError(self._fault)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when the API answers and each needed role lives; raises `FleetError` if not."""
        until_s = time.monotonic() + timeout_s
        while not self.is_healthy():
            if self._fault is not None:
                raise FleetError(self._fault)
            if time.monotonic() > until_s:
                raise FleetError(
                    f"The stack wasn't ready within {timeout_s:g} s: allow more time, or use a "
                    "smaller model."
                )
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Drain the requests, end every process, and sweep what a killed one left."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._forget()

    def _plan(self) -> Iterator[ChildProcess]:
        path = self._folder / "router"
        if len(str(path)) > _LONGEST_IPC_PATH:
            raise FleetError(f"The folder for temporary files is too long a path: {self._folder}.")
        assert self._socket is not None, "start() took the port"
        endpoint = f"ipc://{path}"
        yield ChildProcess(
            _ROUTER,
            "router",
            RouterConfig(
                topology=self._topology,
                endpoint=endpoint,
                listen_fd=self._socket.fileno(),
                telemetry=self._telemetry,
            ),
        )
        for group in self._topology.workers:
            shared = group.model_dump(exclude={"count"})
            for worker_id in group.worker_ids():
                settings = WorkerConfig(
                    **shared,
                    worker_id=worker_id,
                    router_endpoint=endpoint,
                    model=self._topology.model,
                    lease_s=self._topology.lease_s,
                    shm_prefix=self.shm_prefix,
                    telemetry=self._telemetry,
                )
                yield ChildProcess(worker_id, "worker", settings)

    # The supervisor thread

    def _supervise(self) -> None:
        try:
            for child in self._children:
                self._start_child(child)
            self._started.set()
            while not self._stop.wait(_LOOK_EVERY_S) and self._fault is None:
                self._look()
        except OSError as error:
            self._fault = f"A process of the stack could not be started: {error.strerror}."
        finally:
            self._started.set()
            self._end_all()

    def _start_child(self, child: ChildProcess) -> None:
        assert self._socket is not None, "start() took the port"
        child.start((self._socket.fileno(),) if child.kind == "router" else ())

    def _look(self) -> None:
        now_s = time.monotonic()
        router = self._children[0]
        for child in self._children:
            if child.has_died():
                self._mourn(child, child.buried(now_s))
                if child is router:
                    # Workers joined the router that died; new ones join the next.
                    for worker in self._children[1:]:
                        worker.terminate()
                else:
                    router.tell(child.name)
                    sweep(f"{self.shm_prefix}-{child.name}-")
            elif child.may_restart(now_s):
                self._start_child(child)

    def _mourn(self, child: ChildProcess, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if self._was_ready:
            sys.stderr.write(f"stack: {child.name} ended ({how}) and is started again\n")
        elif code == _OWN_FAULT or child.n_quick_deaths >= _GIVE_UP_AFTER:
            self._fault = child.last_words or f"{child.name} ended at its start ({how})."

    def _end_all(self) -> None:
        router, *workers = self._children
        if self._socket is not None:
            self._socket.close()  # from now on, who calls is refused instead of kept waiting
        router.terminate()
        router.wait(time.monotonic() + DRAIN_S + _FLUSH_S)
        for worker in workers:
            worker.terminate()
        until_s = time.monotonic() + _FLUSH_S
        for worker in workers:
            worker.wait(until_s)

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        sweep(self.shm_prefix)

    def is_healthy(self) -> bool:
        """The API answers and each needed role lives."""
        connection = http.client.HTTPConnection(self._topology.host, self.port, timeout=2.0)
        try:
            connection.request("GET", "/health")
            is_up = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if is_up and not self._was_ready:
            self._was_ready = True
            for child in self._children:
                child.speak_aloud()
        return is_up


def run_stack(
    topology: Topology,
    telemetry: TelemetryConfig,
    ready_file: Path | None = None,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the stack until SIGTERM or SIGINT; call it in the main thread.

    When the API is up, `on_ready` is called with its URL, and `ready_file` is written: JSON with
    `url` and `pid`. Raises `FleetError`.
    """
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopped.set()

    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        with Fleet(topology, telemetry) as fleet:
            while not fleet.is_healthy() and not stopped.wait(_LOOK_EVERY_S):
                if fleet.fault is not None:
                    raise FleetError(fleet.fault)
            if not stopped.is_set():
                on_ready(fleet.url)
            if ready_file is not None and not stopped.is_set():
                draft = ready_file.with_name(f"{ready_file.name}.tmp")
                draft.write_text(json.dumps({"url": fleet.url, "pid": os.getpid()}))
                draft.replace(ready_file)
            while not stopped.wait(_LOOK_EVERY_S):
                if fleet.fault is not None:
                    raise FleetError(fleet.fault)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            message = (
                f"Port {port} on {host} is taken: stop what listens there or set another `port`."
            )
        else:
            message = f"Can't listen on {host} port {port}: {error.strerror}."
        raise FleetError(message) from error
    return listener
