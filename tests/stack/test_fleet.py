"""The whole stack with the tiny model: real processes, real shared memory, killed for real."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest
from otlp_sink import OtlpSink

from serving_probe.contract import Gen, Leg, Root, Span
from serving_probe.emit import TelemetryConfig
from serving_probe.stack.errors import FleetError
from serving_probe.stack.fleet import Fleet
from serving_probe.stack.topology import Topology

pytestmark = pytest.mark.stack

SHM = Path("/dev/shm")
PROMPT = "The quick brown fox jumps over the lazy dog, again and again and again."


def topology(port: int = 0, role: str | None = None) -> Topology:
    """One prefill and one decode worker of the tiny model, or one worker of `role`."""
    roles = [role] if role else ["prefill", "decode"]
    workers = [
        {"role": r, "worker_type": "cpu-test", "pool": r, "dtype": "float32", "n_pages": 256}
        for r in roles
    ]
    return Topology.model_validate(
        {"name": "test", "model": "tiny", "port": port, "workers": workers}
    )


def until(happened: Callable[[], bool]) -> None:
    for _ in range(600):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


def client_of(fleet: Fleet) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0, timeout=60)


def nothing_left(fleet: Fleet, pids: dict[str, int]) -> None:
    """No process of the fleet and no shared memory with its prefix."""
    assert [pid for pid in pids.values() if psutil.pid_exists(pid)] == []
    assert list(SHM.glob(f"{fleet.shm_prefix}*")) == []


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(sink: OtlpSink) -> Iterator[Fleet]:
    with Fleet(topology(), sink.telemetry) as running:
        running.wait_ready(60)
        yield running
        pids = running.pids
    nothing_left(running, pids)


def test_usage_equals_the_tokens_of_spans_and_chunks(fleet: Fleet, sink: OtlpSink) -> None:
    with client_of(fleet) as client:
        chunks = list(
            client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": PROMPT}],
                max_tokens=24,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
                extra_headers={"X-Request-Id": "counted"},
            )
        )
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 24
    root = sink.root_of("counted")
    assert root.attributes[Gen.OUTPUT_TOKENS] == 24
    assert root.attributes[Gen.INPUT_TOKENS] == usage.prompt_tokens
    tokens = root.attributes[Root.CHUNK_TOKENS]
    assert isinstance(tokens, list)
    n_content = sum(bool(c.choices and c.choices[0].delta.content) for c in chunks)
    assert len(tokens) == n_content
    legs = {span.name: span for span in sink.spans() if span.trace_id == root.trace_id}
    until(lambda: len(_legs(sink, root.trace_id)) == len(Span))
    legs = _legs(sink, root.trace_id)
    assert {span.parent_id for span in legs.values()} == {root.span_id}
    generated = [legs[name].attributes[Leg.GENERATED_TOKENS] for name in ("prefill", "decode")]
    assert generated == [1, 23]
    assert legs["prefill"].attributes[Leg.PROMPT_TOKENS] == usage.prompt_tokens


def _legs(sink: OtlpSink, trace_id: str) -> dict[str, object]:
    names = {str(name) for name in Span}
    return {s.name: s for s in sink.spans() if s.trace_id == trace_id and s.name in names}


def test_a_repeated_prompt_is_answered_alike_and_from_the_cache(fleet: Fleet) -> None:
    with client_of(fleet) as client:
        answers = [
            client.completions.create(
                model="tiny",
                prompt=PROMPT,
                max_tokens=8,
                extra_body={"ignore_eos": True},
                extra_headers={"X-Tenant-Id": tenant},
            )
            for tenant in ("a", "a", "b")
        ]
    cached = [a.usage.prompt_tokens_details.cached_tokens for a in answers]
    assert cached[0] == 0
    assert cached[1] == (len(PROMPT) - 1) // 16 * 16
    assert cached[2] == 0, "another tenant's blocks are not to be found"
    assert len({answer.choices[0].text for answer in answers}) == 1


def test_a_caller_that_leaves_is_cancelled(fleet: Fleet, sink: OtlpSink) -> None:
    with client_of(fleet) as client:
        stream = client.completions.create(
            model="tiny",
            prompt="x",
            max_tokens=3000,
            stream=True,
            extra_body={"ignore_eos": True},
            extra_headers={"X-Request-Id": "leaver"},
        )
        next(stream)
        stream.close()
    root = sink.root_of("leaver")
    assert root.attributes[Root.OUTCOME] == "cancelled"
    assert root.attributes[Gen.OUTPUT_TOKENS] < 3000


def test_killed_decode_worker_ends_every_request_and_comes_back(
    fleet: Fleet, sink: OtlpSink
) -> None:
    """Eight long streams, `kill -9` in the middle: each one hears of it, and has its outcome."""
    heard: list[str] = []

    def stream(i: int) -> None:
        with client_of(fleet) as client:
            try:
                chunks = client.completions.create(
                    model="tiny",
                    prompt=f"{i} {PROMPT}",
                    max_tokens=3000,
                    stream=True,
                    extra_body={"ignore_eos": True},
                    extra_headers={"X-Request-Id": f"victim-{i}"},
                )
                for _ in chunks:
                    started[i].set()
            except openai.APIError as error:
                heard.append(error.message)

    started = [threading.Event() for _ in range(8)]
    threads = [threading.Thread(target=stream, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    assert all(event.wait(30) for event in started)
    until(lambda: any(span.name == Span.DECODE_WAIT for span in sink.spans()))
    time.sleep(0.2)
    killed = fleet.pids["decode-0"]
    os.kill(killed, signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    assert len(heard) == 8
    for i in range(8):
        root = sink.root_of(f"victim-{i}")
        assert root.attributes[Root.OUTCOME] == "failed"
        assert root.attributes[Gen.ERROR_TYPE] == "worker_died"
    # The pool holds one of them at a time. What the dead worker can't say of it, the router says:
    # where it ran and how long, nothing of its work.
    victims = {sink.root_of(f"victim-{i}").span_id for i in range(8)}
    lost = [s for s in sink.spans() if s.parent_id in victims and s.name == Span.DECODE]
    assert len(lost) == 1
    assert lost[0].attributes[Leg.WORKER_ID] == "decode-0"
    assert Leg.DEVICE_SECONDS not in lost[0].attributes
    assert lost[0].end_ns > lost[0].start_ns
    until(lambda: fleet.pids.get("decode-0", killed) != killed)
    fleet.wait_ready(60)
    with client_of(fleet) as client:
        again = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=4)
    assert again.usage is not None
    assert again.usage.completion_tokens >= 1


def test_killed_router_is_started_again_with_new_workers(fleet: Fleet) -> None:
    before = fleet.pids
    os.kill(before["router"], signal.SIGKILL)
    until(lambda: len(fleet.pids) == 3 and not set(fleet.pids.values()) & set(before.values()))
    fleet.wait_ready(60)
    with client_of(fleet) as client:
        assert client.completions.create(model="tiny", prompt=PROMPT, max_tokens=4).choices


def test_unified_worker_serves_the_same_text(sink: OtlpSink, fleet: Fleet) -> None:
    with Fleet(topology(role="unified"), sink.telemetry) as other:
        other.wait_ready(60)
        texts = []
        for each in (fleet, other):
            with client_of(each) as client:
                answer = client.completions.create(
                    model="tiny", prompt=PROMPT, max_tokens=12, extra_body={"ignore_eos": True}
                )
                texts.append(answer.choices[0].text)
        pids = other.pids
    assert texts[0] == texts[1]
    nothing_left(other, pids)


def test_taken_port_is_one_sentence_and_starts_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fleet = Fleet(topology(port), TelemetryConfig())
        with pytest.raises(FleetError, match=f"Port {port} on 127.0.0.1 is taken"):
            fleet.start()
        assert fleet.pids == {}


RUN = """
import sys
from pathlib import Path
from serving_probe.emit import TelemetryConfig
from serving_probe.stack.fleet import run_stack
from serving_probe.stack.topology import Topology
ready = Path(sys.argv[3])
run_stack(Topology.load(Path(sys.argv[1])), TelemetryConfig(endpoint=sys.argv[2]), ready)
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_run_stack_ends_with_its_parent(
    signum: signal.Signals, sink: OtlpSink, tmp_path: Path
) -> None:
    """However the parent ends, `kill -9` included, no process and no segment stays."""
    path = tmp_path / "tiny.toml"
    groups = "".join(
        f'[[workers]]\nrole = "{r}"\nworker_type = "t"\npool = "{r}"\nn_pages = 64\n'
        for r in ("prefill", "decode")
    )
    path.write_text(f'name = "t"\nmodel = "tiny"\nport = 0\n{groups}')
    ready = tmp_path / "ready.json"
    arguments = [str(path), sink.telemetry.endpoint, str(ready)]
    parent = subprocess.Popen([sys.executable, "-c", RUN, *arguments], start_new_session=True)
    until(ready.exists)
    url = httpx.Response(200, content=ready.read_bytes()).json()["url"]
    assert httpx.get(f"{url}/health").status_code == 200
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 3
    mapped = {m.path for child in children for m in child.memory_maps()}
    segments = [Path(path) for path in mapped if path.startswith(f"{SHM}/tm")]
    assert len(segments) == 2
    parent.send_signal(signum)
    parent.wait(30)
    if signum is signal.SIGKILL:
        until(lambda: not any(_lives(child) for child in children))
    assert not any(_lives(child) for child in children)
    assert not any(segment.exists() for segment in segments)


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("role", ["unified", None])
def test_stack_that_cannot_start_says_why_in_one_sentence(
    role: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """A cache folder that is a file: no model can be kept there."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TOKENMILL_CACHE", str(blocked / "cache"))
    smollm2 = topology(role=role).model_copy(update={"model": "smollm2"})
    fleet = Fleet(smollm2, TelemetryConfig())
    with pytest.raises(FleetError) as raised, fleet:
        fleet.wait_ready(60)
    assert "cache" in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert capfd.readouterr().err == ""
    nothing_left(fleet, fleet.pids)


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_knows_the_capital_of_france(sink: OtlpSink) -> None:
    """At fp32, through the official client, streamed and not."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    fp32 = topology().model_copy(update={"model": "smollm2"})
    with Fleet(fp32, sink.telemetry) as fleet, client_of(fleet) as client:
        fleet.wait_ready(240)
        whole = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=24)
        chunks = client.chat.completions.create(
            model="smollm2", messages=messages, max_tokens=24, stream=True
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    assert streamed == text
