"""Keeps a handful of processes running together, and leaves none behind.

Each child is a process group of its own, so a Ctrl-C reaches only the supervisor, which then stops
the children in order. A child also asks the kernel for a SIGTERM at its parent's death (`adopt`),
so that not even `kill -9` of the supervisor leaves one. Knows nothing of what the children do.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from app.errors import ChildFailedError

_SUPERVISED = "TOKENMILL_SUPERVISED"  # "<parent pid>:<nice>"
_PR_SET_PDEATHSIG = 1
POLL_S = 0.1
N_LAST_LINES = 12


def adopt() -> None:
    """In a child: take the nice level asked for, and die with the supervisor."""
    asked = os.environ.pop(_SUPERVISED, None)
    if asked is None:
        return
    parent, _, nice = asked.partition(":")
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we could ask
        sys.exit(1)
    os.nice(int(nice))


@dataclass(frozen=True, slots=True)
class Service:
    """A `tokenmill` command to keep running."""

    name: str
    arguments: tuple[str, ...]
    ready_url: str | None = None  # ready when it answers 200; None: when it has started
    ready_within_s: float = 60.0
    nice: int = 0
    restarts: int = 5  # within a minute; then it has failed
    stop_within_s: float = 10.0


@dataclass(slots=True)
class Child:
    """A service and the process that runs it now."""

    service: Service
    log: Path
    process: subprocess.Popen[bytes]
    died_at: deque[float] = field(default_factory=deque)

    def last_lines(self) -> str:
        """The end of its log, for a message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-N_LAST_LINES:])


class Supervisor:
    """Starts services, restarts the ones that die, stops all; use as a context manager."""

    def __init__(
        self,
        logs: Path,
        stopping: threading.Event,
        notify: Callable[[str], None],
        stop_order: tuple[str, ...] = (),
    ) -> None:
        """`stop_order` names who is stopped first; the rest follow, the newest first."""
        self.stopping = stopping
        self._logs = logs
        self._notify = notify
        self._children: dict[str, Child] = {}
        self._stop_order = stop_order
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for name in (*self._stop_order, *reversed(list(self._children))):
            self.stop(name)
        return kind is _StopAskedError

    def start(self, service: Service) -> Child:
        """Run a service; returns at once."""
        log = self._logs / f"{service.name}.log"
        child = Child(service, log, _spawn(service, log, mode="wb"))
        self._children[service.name] = child
        return child

    def wait_ready(self, name: str) -> None:
        """Block until the service answers; raises `ChildFailedError` where it can't.

        Where a stop is asked for meanwhile, the supervisor's `with` block ends.
        """
        child = self._children[name]
        deadline = time.monotonic() + child.service.ready_within_s
        while True:
            if self.stopping.is_set():
                raise _StopAskedError
            if child.process.poll() is not None:
                raise _failed(child, f"ended with code {child.process.returncode} while starting")
            if child.service.ready_url is None or _answers(child.service.ready_url):
                return
            if time.monotonic() > deadline:
                raise _failed(child, f"did not answer in {child.service.ready_within_s:.0f} s")
            self.stopping.wait(POLL_S)

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Keep every service alive until `until()` holds or a stop is asked for."""
        while not (self.stopping.is_set() or until()):
            for child in self._children.values():
                if child.process.poll() is not None:
                    self._revive(child)
            self.stopping.wait(POLL_S)

    def wait_end(self, name: str) -> int:
        """Watch the others until one service ends by itself; its exit code."""
        child = self._children.pop(name)
        try:
            self.watch(lambda: child.process.poll() is not None)
        finally:
            if child.process.poll() is None:
                _stop(child)
        return child.process.returncode

    def stop(self, name: str) -> None:
        """Ask a service to end, and end it where it doesn't."""
        child = self._children.pop(name, None)
        if child is not None:
            _stop(child)

    def _revive(self, child: Child) -> None:
        now = time.monotonic()
        child.died_at.append(now)
        while child.died_at and now - child.died_at[0] > 60:
            child.died_at.popleft()
        code = child.process.returncode
        if len(child.died_at) > child.service.restarts:
            raise _failed(child, f"ended with code {code}, {len(child.died_at)} times in a minute")
        self._notify(f"{child.service.name} ended with code {code}; starting it again")
        self.stopping.wait(0.2 * 2 ** len(child.died_at))
        _end_group(child.process.pid)
        child.process = _spawn(child.service, child.log, mode="ab")


class _StopAskedError(Exception):
    """Leaves the supervisor's block early."""


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Inside, Ctrl-C and SIGTERM set the event; a second one changes nothing."""
    stopping = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _spawn(service: Service, log: Path, mode: str) -> subprocess.Popen[bytes]:
    with log.open(mode) as output:
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli", *service.arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {_SUPERVISED: f"{os.getpid()}:{service.nice}"},
        )


def _stop(child: Child) -> None:
    if child.process.poll() is None:
        child.process.terminate()
        try:
            child.process.wait(child.service.stop_within_s)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
    _end_group(child.process.pid)


def _end_group(group: int) -> None:
    """What a dead leader left in its group has no right to live on."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _failed(child: Child, what: str) -> ChildFailedError:
    return ChildFailedError(
        f"{child.service.name} {what}; the end of {child.log}:\n{child.last_lines()}"
    )
