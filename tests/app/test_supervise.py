"""`up` and `demo` as whole processes: they keep their parts alive and leave none behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.app.running import answers, free_port, tokenmill

PATIENCE_S = 90


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for it, on content and not on time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def family(pid: int) -> list[psutil.Process]:
    """All descendants, now."""
    return psutil.Process(pid).children(recursive=True)


def is_over(process: psutil.Process) -> bool:
    """Gone, or a zombie that only waits to be reaped by an init that doesn't."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def orphaned_memory() -> set[str]:
    """Shared-memory segments that no living process has mapped: other stacks may be at work."""
    mapped = ""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            mapped += Path(f"/proc/{process.pid}/maps").read_text()
    return {path.name for path in Path("/dev/shm").iterdir() if path.name not in mapped}


@contextmanager
def running_up(store: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """`tokenmill up`, ready; with the collector's and the dashboard's health URLs."""
    otlp, page = free_port(), free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "app.cli", "up", "--store", str(store)),
            *("--otlp-port", str(otlp), "--dashboard-port", str(page)),
        ]
    )
    collector = f"http://127.0.0.1:{otlp}/healthz"
    dashboard = f"http://127.0.0.1:{page}/_stcore/health"
    try:
        eventually(lambda: answers(collector) and answers(dashboard), "up is ready")
        yield process, collector, dashboard
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_a_dead_collector_is_started_again_and_nothing_is_left_after_sigterm(
    tmp_path: Path,
) -> None:
    with running_up(tmp_path) as (process, collector, _):
        children = family(process.pid)
        victim = next(child for child in children if "collect" in child.cmdline())
        victim.send_signal(signal.SIGKILL)
        eventually(lambda: is_over(victim), "the collector is dead")
        eventually(lambda: answers(collector), "the collector is back")
        children += family(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert all(is_over(child) for child in children)
    assert (tmp_path / "logs" / "collector.log").exists()


def test_nothing_survives_a_killed_supervisor(tmp_path: Path) -> None:
    with running_up(tmp_path) as (process, _, _):
        children = family(process.pid)
        assert len(children) >= 3
        process.kill()
        eventually(lambda: all(is_over(child) for child in children), "all children are gone")


def test_a_part_that_cannot_start_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text('{"version": 999999}')
    result = tokenmill(
        *("up", "--store", str(tmp_path), "--otlp-port", str(free_port())),
        *("--dashboard-port", str(free_port())),
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "collector ended with code 1 while starting" in result.stderr
    assert "has format 999999" in result.stderr


@pytest.mark.stack
def test_demo_runs_drains_and_counts_every_request_once(tmp_path: Path) -> None:
    before = orphaned_memory()
    result = tokenmill(
        *("demo", "--seconds", "6", "--headless", "--model", "tiny", "--store", str(tmp_path)),
        *("--rate-scale", "3", "--port", str(free_port()), "--otlp-port", str(free_port())),
    )
    assert result.returncode == 0, result.stderr
    assert "per million accepted output tokens" in result.stdout
    assert orphaned_memory() <= before
    (record,) = (tmp_path / "replay").glob("*.jsonl")
    seen = [json.loads(line) for line in record.read_text().splitlines()]
    question = "select request_id, input_tokens, output_tokens from requests"
    answer = tokenmill("sql", question, "--store", str(tmp_path), "--format", "json").stdout
    kept = {row["request_id"]: row for row in json.loads(answer)}
    assert len(seen) == len({row["request_id"] for row in seen}) > 0
    assert kept.keys() == {row["request_id"] for row in seen}
    for row in seen:
        if row["outcome"] == "completed":
            stored = kept[row["request_id"]]
            assert stored["input_tokens"] == row["input_tokens"]
            assert stored["output_tokens"] == row["output_tokens"]
