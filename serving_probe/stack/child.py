"""`python -m serving_probe.stack.child router|worker`: one process of a fleet.

Its settings are the first line on stdin, as JSON; later lines name workers that died. stdin is
also the lifeline: when it closes, the parent is gone and this process ends itself, on any system.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Literal

from serving_probe.stack.errors import StackError

Kind = Literal["router", "worker"]
_PR_SET_PDEATHSIG: Final = 1
_GRACE_S: Final = 8.0


class ParentPipe:
    """Lines from the parent; read unbuffered, so that no lock is held when the process exits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read = b""

    def line(self) -> str | None:
        """The next line; None when the parent has gone."""
        while b"\n" not in self._read:
            part = os.read(self._fd, 65536)
            if not part:
                return None
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def watch(self, on_line: Callable[[str], None]) -> None:
        """Call back with every line; when the parent goes, end this process."""
        while (line := self.line()) is not None:
            on_line(line)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent dies, where it can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def run(kind: Kind, pipe: ParentPipe) -> None:
    """Run a router or a worker with the settings on the pipe, until it is told to end."""
    settings = pipe.line()
    if settings is None:
        return
    if kind == "router":
        from serving_probe.stack.router_process import RouterConfig, run_router

        run_router(RouterConfig.model_validate_json(settings), pipe.watch)
        return
    from serving_probe.stack.worker import WorkerConfig, run_worker

    threading.Thread(target=pipe.watch, args=(lambda _: None,), daemon=True, name="parent").start()
    run_worker(WorkerConfig.model_validate_json(settings))


def main(kind: str) -> int:
    """Exit code of the process; a fault a person can mend is one sentence on stderr."""
    die_with_parent()
    assert kind in ("router", "worker"), "started by the fleet alone"
    try:
        run("router" if kind == "router" else "worker", ParentPipe(sys.stdin.fileno()))
    except StackError as error:
        sys.stderr.write(f"{kind}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
