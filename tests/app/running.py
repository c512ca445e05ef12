"""Runs the real command line, to its end or until it answers."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tokenmill(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | variables,
    )


@contextmanager
def serving(ready_url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends, from when it answers."""
    process = subprocess.Popen([sys.executable, "-m", "app.cli", *arguments])
    try:
        deadline = time.monotonic() + 60
        while not answers(ready_url):
            assert process.poll() is None, f"{arguments[0]} ended with code {process.returncode}"
            assert time.monotonic() < deadline, f"{arguments[0]} does not answer"
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
