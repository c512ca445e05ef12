"""The router process over real sockets, with scripted workers: every way an attempt can end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from otlp_sink import OtlpSink

from serving_probe.contract import Gen, Root
from serving_probe.stack.router_process import RouterConfig
from serving_probe.stack.topology import Topology

TOPOLOGY = Topology.model_validate(
    {
        "name": "scripted",
        "model": "tiny",
        "port": 0,
        "max_queue": 3,
        "workers": [
            {"role": "prefill", "worker_type": "scripted", "pool": "prefill"},
            {"role": "decode", "worker_type": "scripted", "pool": "decode"},
        ],
    }
)


class Stack:
    """A router process, its scripted workers and the receiver of their telemetry."""

    def __init__(self, folder: Path, sink: OtlpSink, timeout_s: float = 60) -> None:
        self.sink = sink
        self.endpoint = f"ipc://{folder}/r"
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = RouterConfig(
            topology=TOPOLOGY.model_copy(update={"request_timeout_s": timeout_s}),
            endpoint=self.endpoint,
            listen_fd=listener.fileno(),
            telemetry=sink.telemetry,
        )
        self.router = subprocess.Popen(
            [sys.executable, "-m", "serving_probe.stack.child", "router"],
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
        )
        listener.close()
        self.tell(config.model_dump_json())
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self.log: dict[str, Path] = {}
        self._folder = folder
        self.add("prefill")
        self.add("decode")
        self.http = httpx.Client(base_url=self.url, timeout=20)
        self.openai = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def tell(self, line: str) -> None:
        assert self.router.stdin is not None
        self.router.stdin.write(line.encode() + b"\n")
        self.router.stdin.flush()

    def add(self, role: str) -> None:
        self.log[role] = self._folder / f"{role}.log"
        script = Path(__file__).with_name("scripted_worker.py")
        with self.log[role].open("a") as log:
            self.workers[role] = subprocess.Popen(
                [sys.executable, str(script), self.endpoint, role, f"{role}-0"],
                stdout=log,
                text=True,
            )

    def kill(self, role: str) -> None:
        self.workers[role].kill()
        self.workers[role].wait()
        self.tell(f"{role}-0")

    def until_healthy(self) -> None:
        until(lambda: self.http.get("/health").status_code == 200)

    def close(self) -> None:
        self.http.close()
        self.openai.close()
        self.router.send_signal(signal.SIGTERM)
        assert self.router.wait(timeout=15) == 0
        assert self.router.stdin is not None
        self.router.stdin.close()
        for worker in self.workers.values():
            worker.kill()
            worker.wait()

    def completion(self, prompt: str, request_id: str, **more: object) -> httpx.Response:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 4, **more}
        return self.http.post("/v1/completions", json=body, headers={"x-request-id": request_id})


def until(happened) -> None:
    for _ in range(400):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with OtlpSink() as sink:
        running = Stack(tmp_path_factory.mktemp("r"), sink)
        try:
            running.until_healthy()
            yield running
        finally:
            running.close()


def test_openai_client_not_streamed(stack: Stack) -> None:
    answer = stack.openai.chat.completions.with_raw_response.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        max_completion_tokens=5,
        extra_headers={"X-Tenant-Id": "acme", "X-Slo-Class": "gold", "X-Conversation-Id": "c1"},
    )
    parsed = answer.parse()
    assert parsed.choices[0].message.content == "abcde"
    assert parsed.choices[0].finish_reason == "length"
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 5
    assert parsed.usage.prompt_tokens_details is not None
    assert parsed.usage.prompt_tokens_details.cached_tokens == 16
    root = stack.sink.root_of(answer.headers["x-request-id"])
    assert root.name == "chat tiny"
    expected = {
        Gen.OPERATION: "chat",
        Gen.HTTP_ROUTE: "/v1/chat/completions",
        Gen.HTTP_STATUS: 200,
        Gen.STREAM: False,
        Gen.MAX_TOKENS: 5,
        Gen.INPUT_TOKENS: parsed.usage.prompt_tokens,
        Gen.OUTPUT_TOKENS: 5,
        Gen.CACHE_READ_TOKENS: 16,
        Gen.FINISH_REASONS: ["length"],
        Gen.CONVERSATION_ID: "c1",
        Gen.RESPONSE_ID: parsed.id,
        Root.ATTEMPT: 1,
        Root.TENANT_ID: "acme",
        Root.SLO_CLASS: "gold",
        Root.OUTCOME: "completed",
    }
    assert {name: root.attributes.get(name) for name in expected} == expected
    assert Root.CHUNK_GAPS_US not in root.attributes


@pytest.mark.parametrize("has_usage", [True, False])
def test_openai_client_streamed(stack: Stack, has_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    trace_id = os.urandom(16).hex()
    stream = stack.openai.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=6,
        stream=True,
        extra_headers={
            "X-Request-Id": f"streamed-{has_usage}",
            "X-Tokenmill-Attempt": "3",
            "X-Intended-Start-Unix-Nano": "1700000000000000000",
            "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01",
        },
        **options,
    )
    chunks = list(stream)
    texts = [c.choices[0].delta.content for c in chunks if c.choices]
    assert "".join(text or "" for text in texts) == "abcdef"
    assert chunks[0].choices[0].delta.role == "assistant"
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    if has_usage:
        assert chunks[-1].choices == []
        assert [usage.completion_tokens for usage in usages] == [6]
        assert all("usage" in chunk.model_fields_set for chunk in chunks)
    else:
        assert not any("usage" in chunk.model_fields_set for chunk in chunks)
    root = stack.sink.root_of(f"streamed-{has_usage}")
    assert (root.trace_id, root.parent_id) == (trace_id, "00f067aa0ba902b7")
    assert root.attributes[Root.ATTEMPT] == 3
    assert root.attributes[Root.INTENDED_START] == 1_700_000_000_000_000_000
    assert root.attributes[Root.CHUNK_TOKENS] == [1] * 6
    gaps = root.attributes[Root.CHUNK_GAPS_US]
    assert isinstance(gaps, list)
    assert len(gaps) == 6
    assert root.attributes[Gen.TIME_TO_FIRST_CHUNK] == gaps[0] / 1e6
    assert root.attributes[Root.FIRST_MESSAGE_US] <= gaps[0]
    assert sum(gaps) * 1000 <= root.end_ns - root.start_ns


def test_text_completion_stops_at_a_string_and_tells_the_worker(stack: Stack) -> None:
    answer = stack.openai.completions.create(
        model="tiny", prompt=[65, 66], max_tokens=24, stop="de", temperature=0
    )
    assert answer.choices[0].text == "abc"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    attempt_id = answer.id.removeprefix("cmpl-")
    until(lambda: f"Abort {attempt_id}" in stack.log["decode"].read_text())


def test_raw_stream_is_what_the_specification_shows(stack: Stack) -> None:
    response = stack.completion("x", "raw", stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    messages = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [m["choices"][0]["text"] for m in messages[:-1]] == ["a", "b", "c", "d", ""]
    assert [m["choices"][0]["finish_reason"] for m in messages[:-1]] == [None] * 4 + ["length"]
    assert messages[-1]["choices"] == []
    assert messages[-1]["usage"]["total_tokens"] == 5


BAD = [
    ({"n": 2}, 400, "n=2"),
    ({"model": "gpt-4"}, 404, "use 'tiny'"),
    ({"prompt": ""}, 400, "at least one token"),
    ({"prompt": [999]}, 400, "token id 999"),
    ({"max_tokens": 100_000}, 400, "The context holds"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"temperature": 9}, 400, "temperature"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"logprobs": 1}, 400, "logprobs"),
    ({"echo": True}, 400, "echo"),
]


@pytest.mark.parametrize(("fault", "status", "says"), BAD)
def test_bad_requests_get_one_sentence_and_a_span(
    stack: Stack, fault: dict[str, object], status: int, says: str
) -> None:
    request_id = f"bad-{os.urandom(4).hex()}"
    response = stack.http.post(
        "/v1/completions",
        json={"model": "tiny", "prompt": "x", **fault},
        headers={"x-request-id": request_id},
    )
    assert response.status_code == status
    error = response.json()["error"]
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"
    root = stack.sink.root_of(request_id)
    assert root.attributes[Root.OUTCOME] == "rejected"
    assert root.attributes[Gen.HTTP_STATUS] == status


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"{", {}), (b"[]", {}), (b'{"model":"tiny","prompt":"x"}', {"x-tokenmill-attempt": "no"})],
)
def test_unreadable_requests(stack: Stack, body: bytes, headers: dict[str, str]) -> None:
    response = stack.http.post("/v1/completions", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["message"].endswith(".")


def test_unknown_routes_and_methods_answer_in_the_same_shape(stack: Stack) -> None:
    assert stack.http.get("/v2/nothing").json()["error"]["type"] == "invalid_request_error"
    assert stack.http.get("/v1/completions").status_code == 405
    assert stack.http.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert stack.openai.models.retrieve("tiny").id == "tiny"


def test_a_worker_that_refuses_fails_the_request(stack: Stack) -> None:
    response = stack.completion("fail", "refused")
    assert response.status_code == 502
    assert response.json()["error"]["message"] == "The script says no."
    root = stack.sink.root_of("refused")
    assert root.attributes[Root.OUTCOME] == "failed"
    assert root.attributes[Gen.ERROR_TYPE] == "prompt_too_long"


def test_client_that_leaves_cancels_and_the_worker_is_told(stack: Stack) -> None:
    with stack.http.stream(
        "POST",
        "/v1/completions",
        json={"model": "tiny", "prompt": "x", "max_tokens": 500, "stream": True},
        headers={"x-request-id": "leaver"},
    ) as response:
        first = next(response.iter_lines())
        attempt_id = json.loads(first.removeprefix("data: "))["id"].removeprefix("cmpl-")
    root = stack.sink.root_of("leaver")
    assert root.attributes[Root.OUTCOME] == "cancelled"
    assert root.attributes[Gen.OUTPUT_TOKENS] >= 1
    until(lambda: f"Abort {attempt_id}" in stack.log["decode"].read_text())


def test_deadline_and_full_queue(tmp_path: Path) -> None:
    """Three requests that nobody answers fill the queue; the fourth is refused."""
    with OtlpSink() as sink:
        stack = Stack(tmp_path, sink, timeout_s=2)
        try:
            stack.until_healthy()
            body = {"model": "tiny", "prompt": "mute", "stream": True}
            waiting = [_send(stack, body, f"mute-{i}") for i in range(3)]
            until(lambda: stack.http.get("/health").json()["waiting"] == 3)
            refused = stack.completion("x", "fourth")
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
            for connection in waiting:
                assert connection.recv(64).startswith(b"HTTP/1.1 504")
                connection.close()
        finally:
            stack.close()
        assert sink.root_of("fourth").attributes[Root.OUTCOME] == "rejected"
        for i in range(3):
            root = sink.root_of(f"mute-{i}")
            assert root.attributes[Root.OUTCOME] == "timed_out"
            assert root.attributes[Root.CHUNK_GAPS_US] == []


def _send(stack: Stack, body: dict[str, object], request_id: str) -> socket.socket:
    raw = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", int(stack.url.rpartition(":")[2])))
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-id: {request_id}\r\n"
        f"content-length: {len(raw)}\r\n\r\n"
    )
    connection.sendall(head.encode() + raw)
    return connection


def test_dead_decode_worker_ends_requests_and_its_successor_serves(stack: Stack) -> None:
    stream = stack.openai.completions.create(
        model="tiny",
        prompt="x",
        max_tokens=500,
        stream=True,
        extra_headers={"X-Request-Id": "orphan"},
    )
    assert next(stream).choices[0].text == "a"
    stack.kill("decode")
    with pytest.raises(openai.APIError, match="died while it served"):
        list(stream)
    root = stack.sink.root_of("orphan")
    assert root.attributes[Root.OUTCOME] == "failed"
    assert root.attributes[Gen.ERROR_TYPE] == "worker_died"
    unserved = stack.completion("x", "nobody")
    assert unserved.status_code == 503
    assert "decode" in unserved.json()["error"]["message"]
    assert stack.http.get("/health").status_code == 503
    stack.add("decode")
    stack.until_healthy()
    assert stack.completion("x", "again").json()["choices"][0]["text"] == "abcd"


def test_prefilled_request_waits_for_the_next_decode_worker(stack: Stack) -> None:
    """The decode worker dies while the prompt is computed: nothing was lost, so it goes on."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(stack.completion, "slow", "held")
        until(lambda: stack.http.get("/health").json()["waiting"] == 1)
        stack.kill("decode")
        until(lambda: stack.http.get("/health").status_code == 503)
        time.sleep(1)  # the prompt takes half of it
        assert not answer.done()
        stack.add("decode")
        assert answer.result(20).json()["choices"][0]["text"] == "abcd"
    assert stack.sink.root_of("held").attributes[Root.OUTCOME] == "completed"


def test_dead_prefill_worker_fails_what_it_computed(stack: Stack) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(stack.completion, "slow", "unbegun")
        until(lambda: stack.http.get("/health").json()["waiting"] == 1)
        stack.kill("prefill")
        assert answer.result(20).status_code == 502
    root = stack.sink.root_of("unbegun")
    assert root.attributes[Gen.ERROR_TYPE] == "worker_died"
    assert Gen.CACHE_READ_TOKENS not in root.attributes, "what was reused is unknown"
    stack.add("prefill")
    stack.until_healthy()


def test_worker_that_hangs_ends_its_requests_and_may_come_back(stack: Stack) -> None:
    stream = stack.openai.completions.create(
        model="tiny",
        prompt="x",
        max_tokens=500,
        stream=True,
        timeout=30,
        extra_headers={"X-Request-Id": "hung"},
    )
    next(stream)
    stack.workers["decode"].send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(openai.APIError, match="stopped answering"):
            list(stream)
    finally:
        stack.workers["decode"].send_signal(signal.SIGCONT)
    root = stack.sink.root_of("hung")
    assert root.attributes[Root.OUTCOME] == "failed"
    assert root.attributes[Gen.ERROR_TYPE] == "worker_died"
    stack.until_healthy()
    assert stack.completion("x", "awake").status_code == 200


def test_shutdown_answers_and_measures_what_is_in_flight(tmp_path: Path) -> None:
    """A short stream ends by itself; a long one is told, and has its span."""
    with OtlpSink() as sink:
        stack = Stack(tmp_path, sink)
        try:
            stack.until_healthy()
            streams = {
                n: stack.openai.completions.create(
                    model="tiny",
                    prompt="x",
                    max_tokens=n,
                    stream=True,
                    timeout=30,
                    extra_headers={"X-Request-Id": f"last-{n}"},
                )
                for n in (20, 3000)
            }
            for stream in streams.values():
                next(stream)
            stack.router.send_signal(signal.SIGTERM)
            assert len(list(streams[20])) == 20
            with pytest.raises(openai.APIError, match="shutting down"):
                list(streams[3000])
        finally:
            stack.close()
        assert sink.root_of("last-20").attributes[Root.OUTCOME] == "completed"
        last = sink.root_of("last-3000").attributes
        assert (last[Root.OUTCOME], last[Gen.ERROR_TYPE]) == ("failed", "shutting_down")
