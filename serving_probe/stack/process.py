"""One process of the fleet, over all its restarts: settings in, last words out.

Knows how to start, tell and end a `child`, and when to start it again; not what it does.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import IO, Final

from pydantic import BaseModel

from serving_probe.stack.child import Kind

_FIRST_BACKOFF_S: Final = 0.25
_LONGEST_BACKOFF_S: Final = 10.0
_SETTLED_S: Final = 10.0  # a child that lived this long starts anew at the first backoff
_KEPT_LINES: Final = 100


class ChildProcess:
    """A named child; between `buried` and the next `start` there is no process."""

    def __init__(self, name: str, kind: Kind, settings: BaseModel) -> None:
        self.name = name
        self.kind = kind
        self.n_quick_deaths = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._started_s = 0.0
        self._restart_at_s = 0.0
        self._is_aloud = False
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return self._process.pid if self._process is not None else None

    @property
    def last_words(self) -> str:
        """The last line it wrote on stderr, or nothing."""
        return self._said[-1].strip() if self._said else ""

    def start(self, inherited: tuple[int, ...] = ()) -> None:
        """Start the process with its settings; `inherited` file descriptors stay open in it."""
        self._said.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serving_probe.stack.child", self.kind],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is the parent's to handle; a session would void `nice`
        )
        assert self._process.stderr is not None, "asked for"
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stderr,), daemon=True, name=self.name
        )
        self._listener.start()
        self._started_s = time.monotonic()
        self.tell(self._settings.model_dump_json())

    def tell(self, line: str) -> None:
        """Write one line to the child; one that is dying can't be told anything."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()

    def speak_aloud(self) -> None:
        """Pass on what it writes on stderr: what was kept until now, and all that follows."""
        if not self._is_aloud:
            self._is_aloud = True
            sys.stderr.writelines(self._said)

    def has_died(self) -> bool:
        """There was a process, and it has ended."""
        return self._process is not None and self._process.poll() is not None

    def may_restart(self, now_s: float) -> bool:
        """There is no process, and its backoff is over."""
        return self._process is None and now_s >= self._restart_at_s

    def buried(self, now_s: float) -> int:
        """Take note of the death and set the time of the restart; returns the exit code."""
        assert self._process is not None, "only what was started can die"
        code = self._process.wait()
        self._let_go()
        is_quick = now_s - self._started_s < _SETTLED_S
        self.n_quick_deaths = self.n_quick_deaths + 1 if is_quick else 1
        backoff_s = _FIRST_BACKOFF_S * 2.0 ** min(self.n_quick_deaths - 1, 10)
        self._restart_at_s = now_s + min(_LONGEST_BACKOFF_S, backoff_s)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, until_s: float) -> None:
        """Wait for its end until then (monotonic), and end it by force after."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.05, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._let_go()

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode(errors="replace")
            self._said.append(text)
            if self._is_aloud:
                sys.stderr.write(text)

    def _let_go(self) -> None:
        process, self._process = self._process, None
        assert process is not None, "a process has just ended"
        assert process.stdin is not None, "asked for"
        assert process.stderr is not None, "asked for"
        with suppress(BrokenPipeError):
            process.stdin.close()
        if self._listener is not None:
            self._listener.join(1.0)  # a grandchild may hold the pipe open
            if not self._listener.is_alive():
                process.stderr.close()
