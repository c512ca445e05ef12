"""Group commit under pressure: a full queue, a closing receiver, a decoder that fails."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from google.rpc.status_pb2 import Status
from otlp_bodies import logs, spans
from receiving import post, rows

from ingest import wire
from ingest.commit import CommitLimits, Committer, Receipt
from ingest.dialects import Dialects
from ingest.errors import BusyError, UnreadableBodyError
from ingest.frames import Frame, Signal
from ingest.otlp_http import HttpLimits, OtlpHttp
from ingest.quarantine import Quarantine
from ingest.segments import Store

DIALECTS = Dialects.load()


class Gate:
    """A decoder that waits until it is opened; what it then does is the real thing."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.calls: list[int] = []

    def decode(self, signal: Signal, bodies: list[bytes]) -> Frame:
        self.calls.append(len(bodies))
        assert self.opened.wait(30)
        return wire.decode(signal, bodies)


def committer(store: Path, decode: Any = wire.decode, **limits: Any) -> Committer:
    """A committer of its own store."""
    opened = Store.open(store)
    quarantine = Quarantine(store / "quarantine", 10, 2**20)
    config = CommitLimits(**limits)
    return Committer(opened.writer("main"), "main", DIALECTS, quarantine, config, decode)


@contextmanager
def served(commits: Committer, store: Path) -> Iterator[str]:
    """The endpoints over `commits` on a real socket; their URL."""
    app = OtlpHttp(commits, Quarantine(store / "quarantine", 10, 2**20), HttpLimits())
    server = uvicorn.Server(
        uvicorn.Config(app.app(dict), port=0, log_config=None, lifespan="off", access_log=False)
    )
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def body(index: int = 1) -> bytes:
    return spans({}, first_span=index).SerializeToString()


def test_a_full_queue_is_503_with_retry_after_and_loses_nothing(tmp_path: Path) -> None:
    gate = Gate()
    commits = committer(tmp_path, gate.decode, queue_bodies=2, linger_s=0)
    with served(commits, tmp_path) as url:
        first = commits.submit(Signal.SPAN, body(1))
        while not gate.calls:  # the writer has it and is stuck
            time.sleep(0.001)
        waiting = [commits.submit(Signal.SPAN, body(index)) for index in (2, 3)]
        answer = post(url, "/v1/traces", body(4))
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        said = Status.FromString(answer.body)
        assert said.code == 14
        assert said.message.startswith("the queue is full (2 bodies")
        gate.opened.set()
        assert [done.result(30) for done in (first, *waiting)] == [Receipt()] * 3
        assert post(url, "/v1/traces", body(4)).status == 200
    commits.close()
    assert gate.calls == [1, 2, 1]
    assert commits.stats.busy == 1
    assert rows(tmp_path, "select count(distinct span_id) from segment") == [(4,)]


def test_the_queue_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    gate = Gate()
    commits = committer(tmp_path, gate.decode, queue_bytes=len(body()), linger_s=0)
    first = commits.submit(Signal.SPAN, body())
    while not gate.calls:
        time.sleep(0.001)
    big = commits.submit(Signal.SPAN, body() * 3)  # alone in the queue, any size is taken
    with pytest.raises(BusyError, match="the queue is full"):
        commits.submit(Signal.SPAN, body())
    gate.opened.set()
    assert first.result(30) == big.result(30) == Receipt()
    commits.close()


def test_close_writes_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    gate = Gate()
    commits = committer(tmp_path, gate.decode)
    answers = [commits.submit(Signal.SPAN, body(index)) for index in range(1, 6)]
    answers.append(commits.submit(Signal.LOG, logs("x").SerializeToString()))
    gate.opened.set()
    commits.close()
    assert all(answer.done() for answer in answers)
    assert not commits.is_running
    with pytest.raises(BusyError, match="closing"):
        commits.submit(Signal.SPAN, body())
    assert rows(tmp_path, "select signal, count(*) from segment group by all order by all") == [
        ("log", 1),
        ("span", 5),
    ]


def test_bodies_that_come_together_share_a_file(tmp_path: Path) -> None:
    gate = Gate()
    commits = committer(tmp_path, gate.decode, linger_s=0)
    answers = [commits.submit(Signal.SPAN, body(1))]
    while not gate.calls:
        time.sleep(0.001)
    answers += [commits.submit(Signal.SPAN, body(index)) for index in range(2, 12)]
    answers.append(commits.submit(Signal.SPAN, b"\xff" * 9))
    gate.opened.set()
    commits.close()
    assert commits.stats.segments == 2
    assert [answer.exception() for answer in answers[:-1]] == [None] * 11
    assert isinstance(answers[-1].exception(), UnreadableBodyError)
    assert gate.calls == [1, 11] + [1] * 11
    assert len(list((tmp_path / "quarantine").glob("*.bin"))) == 1


def test_an_unexpected_failure_of_one_body_costs_no_other(tmp_path: Path) -> None:
    def broken(*_: object) -> Frame:
        raise KeyError("a bug in the fast decoder")

    commits = committer(tmp_path, broken)
    answer = commits.submit(Signal.SPAN, body())
    assert answer.result(30) == Receipt()  # the slow one read it
    commits.close()
    assert rows(tmp_path, "select count(*) from segment") == [(1,)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_writer_dies_nobody_waits_for_ever(tmp_path: Path) -> None:
    def out_of_memory(*_: object) -> Frame:
        raise MemoryError

    commits = committer(tmp_path, out_of_memory)
    answer = commits.submit(Signal.SPAN, body())
    with pytest.raises(BusyError, match="the receiver stopped"):
        answer.result(30)
    commits.close()
    with pytest.raises(BusyError):
        commits.submit(Signal.SPAN, body())


def test_a_request_with_nothing_in_it_makes_no_file(tmp_path: Path) -> None:
    commits = committer(tmp_path)
    assert commits.submit(Signal.SPAN, b"").result(30) == Receipt()
    commits.close()
    assert list((tmp_path / "incoming/main").glob("*.parquet")) == []


def test_quarantine_drops_the_oldest(tmp_path: Path) -> None:
    by_count = Quarantine(tmp_path, max_files=2, max_bytes=1000)
    for index in range(4):
        by_count.keep(bytes([index]) * 10, f"reason {index}", signal="span")
    kept = sorted(tmp_path.glob("*.bin"))
    assert [path.read_bytes()[0] for path in kept] == [2, 3]
    assert [path.stem for path in kept] == sorted(path.stem for path in tmp_path.glob("*.json"))
    assert (by_count.n_kept, by_count.n_dropped) == (4, 2)
    by_bytes = Quarantine(tmp_path, max_files=9, max_bytes=25)
    by_bytes.keep(b"x" * 10, "r")
    assert len(list(tmp_path.glob("*.bin"))) == 2
    by_bytes.keep(b"x" * 26, "too big to keep at all")
    assert len(list(tmp_path.glob("*.bin"))) == 2
    assert by_bytes.n_dropped == 2
    gone = Quarantine(tmp_path / "gone", max_files=9, max_bytes=25)
    gone.keep(b"x", "the disk refuses")
    assert gone.n_failed == 1
