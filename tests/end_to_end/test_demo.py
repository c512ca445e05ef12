"""The main job, for real: the demo's stack, load, collector and builder, with the tiny model."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from benchmarks.agreement import Agreement, compare
from metrics.query import Warehouse
from tests.app.running import free_port

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a ten-second demo filled."""
    folder = tmp_path_factory.mktemp("demo") / "store"
    done = subprocess.run(
        _demo(folder, "--seconds", "10", "--rate-scale", "4"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert _orphaned_memory() == []
    return folder


@pytest.fixture(scope="module")
def agreement(store: Path) -> Agreement:
    """That run, client against warehouse."""
    return compare(store)


def test_every_request_the_client_saw_end_is_there_once(agreement: Agreement) -> None:
    assert agreement.n_ended >= 10
    assert agreement.missing == []
    assert agreement.repeated == []


def test_token_sums_are_what_the_api_returned(agreement: Agreement) -> None:
    assert agreement.client_tokens["output_tokens"] > 0
    assert agreement.client_tokens["cached_tokens"] > 0
    assert agreement.warehouse_tokens == agreement.client_tokens


def test_both_sides_agree_how_each_attempt_ended(agreement: Agreement) -> None:
    # A caller may leave when the server has just written everything.
    races = {"cancelled / completed"}
    unlike = {pair for pair in agreement.outcomes if len(set(pair.split(" / "))) > 1}
    assert unlike <= races


def test_the_bill_is_its_slices_and_the_unallocated_in_every_hour(agreement: Agreement) -> None:
    assert agreement.hours.height >= 1
    assert (agreement.hours["bill_usd"] > 0).all()
    assert (agreement.hours["difference_usd"] == 0).all()


def test_parts_of_ttft_add_up(store: Path) -> None:
    parts = Warehouse(store).sql(
        "select ttft_gateway_s - (queue_s + prefill_s + handoff_s + decode_wait_s + first_step_s"
        " + other_s) as rest from attempts where ttft_gateway_s is not null"
    )
    assert parts.height > 0
    assert parts["rest"].abs().max() < 1e-9  # type: ignore[operator]  # numbers, not None


def test_device_seconds_are_the_workers_busy_seconds(store: Path) -> None:
    """What the legs consumed is what the workers' own counters say, across processes."""
    legs = dict(
        Warehouse(store)
        .sql("select worker_id, sum(device_seconds) from legs group by worker_id")
        .iter_rows()
    )
    counters = duckdb.execute(
        "select worker_id, sum(seconds) from ("
        " select worker_id, point_attributes, max(point_value) as seconds"
        " from read_parquet($segments) where metric_name = 'tokenmill.worker.busy_seconds'"
        " group by worker_id, point_attributes) group by worker_id",
        {"segments": str(store / "incoming" / "*" / "*.parquet")},
    ).fetchall()
    assert legs == pytest.approx(dict(counters), rel=1e-6)


def test_an_interrupt_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    with subprocess.Popen(
        _demo(tmp_path / "store", "--seconds", "600"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "load from workload" in line:
                break
        os.killpg(demo.pid, signal.SIGINT)
        demo.stdout.read()
    assert demo.returncode in (0, 130)
    assert _in_session(demo.pid) == []
    assert _orphaned_memory() == []


def _demo(store: Path, *more: str) -> list[str]:
    ports = ("--port", str(free_port()), "--otlp-port", str(free_port()))
    run = (sys.executable, "-m", "app.cli", "demo", "--headless", "--model", "tiny")
    return [*run, "--store", str(store), *ports, *more]


def _orphaned_memory() -> list[str]:
    """KV segments that lie in shared memory and that no living process has mapped."""
    maps = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            maps.append(path.read_text(encoding="utf-8", errors="replace"))
    mapped = "".join(maps)
    return [path.name for path in Path("/dev/shm").glob("tm*") if path.name not in mapped]


def _in_session(session: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "args=", "--sid", str(session)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "defunct" not in line]
