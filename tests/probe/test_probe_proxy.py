"""The sidecar between a real client and a real upstream: same bytes, true spans."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import aiohttp
import pytest
from scripted import Receiver, Upstream, attributes_of, stream_of, until

from serving_probe.emit import TelemetryConfig
from serving_probe.errors import ProbeError
from serving_probe.sidecar.core import ProbeConfig, tenant_of
from serving_probe.sidecar.proxy import run_probe, serving

CHAT = "/v1/chat/completions"
ASKED = {
    "model": "m-1",
    "messages": [{"role": "user", "content": "top secret question"}],
    "max_tokens": 5,
    "stream": True,
}


def config(upstream: str, receiver: str, **fields: Any) -> ProbeConfig:
    telemetry = TelemetryConfig(endpoint=receiver, export_delay_s=0.05, timeout_s=1.0)
    fields = {"listen": "127.0.0.1:0", "tenant_salt": "pepper", **fields}
    return ProbeConfig.create(upstream=upstream, telemetry=telemetry, **fields)


async def post(
    url: str, asked: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=asked, headers=headers) as response,
    ):
        return response.status, await response.read()


def through(
    upstream: Upstream, receiver: Receiver, asked: dict[str, Any], **headers: str
) -> tuple[int, bytes, dict[str, Any]]:
    """One request through a sidecar: status, bytes, the root span's attributes."""

    async def go() -> tuple[int, bytes]:
        async with serving(config(upstream.url, receiver.url)) as url:
            return await post(
                url + CHAT, asked, {k.replace("_", "-"): v for k, v in headers.items()}
            )

    status, body = asyncio.run(go())
    (span,) = receiver.spans
    return status, body, attributes_of(span)


def test_a_stream_is_passed_on_byte_for_byte_and_measured(
    upstream: Upstream, receiver: Receiver
) -> None:
    direct = asyncio.run(post(upstream.url + CHAT, ASKED))
    trace = "0af7651916cd43dd8448eb211c80319c"
    status, body, attrs = through(
        upstream,
        receiver,
        ASKED,
        X_Request_Id="r-1",
        X_Tenant_Id="acme",
        X_Slo_Class="fast",
        X_Tokenmill_Attempt="2",
        X_Conversation_Id="c-1",
        X_Intended_Start_Unix_Nano="1700000000000000000",
        traceparent=f"00-{trace}-b7ad6b7169203331-01",
    )
    assert (status, body) == direct
    assert upstream.seen[1].json["stream_options"] == {"include_usage": True}
    (span,) = receiver.spans
    assert span.name == "chat m-1"
    assert span.kind == 2
    assert span.trace_id.hex() == trace
    assert span.parent_span_id.hex() == "b7ad6b7169203331"
    assert upstream.seen[1].headers["traceparent"] == f"00-{trace}-{span.span_id.hex()}-01"
    gaps = attrs.pop("tokenmill.chunk.gaps_us")
    assert len(gaps) == 5
    assert gaps[0] >= 10_000  # the upstream waits 10 ms before its first chunk
    assert attrs.pop("gen_ai.response.time_to_first_chunk") == gaps[0] / 1e6
    assert attrs.pop("tokenmill.first_message_us") < gaps[0]  # the role came first
    assert sum(gaps) * 1000 <= span.end_time_unix_nano - span.start_time_unix_nano
    assert attrs == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.id": "cmpl-1",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 5,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.conversation.id": "c-1",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "tokenmill.request.id": "r-1",
        "tokenmill.attempt": 2,
        "tokenmill.tenant.id": "acme",
        "tokenmill.slo.class": "fast",
        "tokenmill.intended_start_unix_nano": 1_700_000_000_000_000_000,
        "tokenmill.outcome": "completed",
    }


def test_an_unsampled_caller_is_measured_and_the_upstream_told_so(
    upstream: Upstream, receiver: Receiver
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    through(upstream, receiver, ASKED, traceparent=f"00-{trace}-b7ad6b7169203331-00")
    (span,) = receiver.spans
    assert upstream.seen[0].headers["traceparent"] == f"00-{trace}-{span.span_id.hex()}-00"


def test_usage_that_the_caller_asked_for_is_the_callers(
    upstream: Upstream, receiver: Receiver
) -> None:
    asked = {**ASKED, "stream_options": {"include_usage": True}}
    direct = asyncio.run(post(upstream.url + CHAT, asked))
    _, body, attrs = through(upstream, receiver, asked)
    assert body == direct[1]
    assert b'"prompt_tokens":3' in body
    assert attrs["gen_ai.usage.input_tokens"] == 3


def test_a_whole_answer_has_no_chunks(upstream: Upstream, receiver: Receiver) -> None:
    asked = {**ASKED, "stream": False}
    direct = asyncio.run(post(upstream.url + CHAT, asked))
    status, body, attrs = through(upstream, receiver, asked)
    assert (status, body) == direct
    assert attrs["tokenmill.outcome"] == "completed"
    assert attrs["gen_ai.response.finish_reasons"] == ["stop"]
    assert attrs["gen_ai.usage.output_tokens"] == 5
    assert "tokenmill.chunk.gaps_us" not in attrs


def test_odd_splits_crlf_and_comments_pass_unchanged(
    upstream: Upstream, receiver: Receiver
) -> None:
    whole = b"".join(s for s in stream_of(ASKED, 0, 0) if isinstance(s, bytes))
    whole = b": hello\r\n\r\n" + whole.replace(b"\n", b"\r\n") + b"trailing bytes"
    upstream.script = []
    for i in range(0, len(whole), 37):
        upstream.script += [whole[i : i + 37], 0.001]
    _, body, attrs = through(upstream, receiver, ASKED)
    assert body == whole
    assert len(attrs["tokenmill.chunk.gaps_us"]) == 5


def test_no_words_and_no_keys_leave_in_telemetry(upstream: Upstream, receiver: Receiver) -> None:
    for status in (200, 400):
        upstream.status = status
        receiver.spans.clear()
        key = "Bearer sk-very-secret"
        _, _, attrs = through(upstream, receiver, ASKED, Authorization=key)
        assert upstream.seen[-1].headers["Authorization"] == key
        assert attrs["tokenmill.tenant.id"].startswith("key-")
    sent = b"".join(receiver.raw)
    for secret in (b"secret", b"sk-very", "w1 é".encode(), b"question"):
        assert secret not in sent


def test_tenants_are_told_apart_without_their_keys() -> None:
    one = tenant_of({"Authorization": "Bearer a"}, b"salt")
    assert one == tenant_of({"Authorization": "Bearer a"}, b"salt")
    assert one != tenant_of({"Authorization": "Bearer b"}, b"salt")
    assert one != tenant_of({"Authorization": "Bearer a"}, b"other salt")
    assert tenant_of({"Authorization": "Bearer a", "X-Tenant-Id": "t"}, b"salt") == "t"
    assert tenant_of({}, b"salt") is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "rejected"), (429, "rejected"), (500, "failed"), (504, "timed_out")],
)
def test_a_refusal_is_passed_on_and_named(
    upstream: Upstream, receiver: Receiver, status: int, outcome: str
) -> None:
    upstream.status = status
    got, body, attrs = through(upstream, receiver, ASKED)
    assert got == status
    assert json.loads(body)["error"]["type"] == "refused"
    assert attrs["tokenmill.outcome"] == outcome
    assert attrs["http.response.status_code"] == status
    assert attrs["error.type"] == str(status)
    assert attrs["tokenmill.chunk.gaps_us"] == []


def test_a_client_that_leaves_frees_the_upstream(upstream: Upstream, receiver: Receiver) -> None:
    upstream.gap_s = 30.0

    async def go() -> None:
        async with serving(config(upstream.url, receiver.url)) as url:
            async with aiohttp.ClientSession() as session:
                response = await session.post(url + CHAT, json=ASKED)
                await response.content.readuntil(b"w0")
                response.close()
            await until(lambda: upstream.seen[0].was_cancelled)
            await until(lambda: bool(receiver.spans))

    asyncio.run(go())
    (span,) = receiver.spans
    attrs = attributes_of(span)
    assert attrs["tokenmill.outcome"] == "cancelled"
    assert attrs["error.type"] == "client_disconnected"
    assert len(attrs["tokenmill.chunk.gaps_us"]) == 1


def test_an_upstream_that_breaks_off_is_not_made_to_look_whole(
    upstream: Upstream, receiver: Receiver
) -> None:
    upstream.script = [stream_of(ASKED, 0, 0)[2], 0.05, None]  # one chunk, then the line is cut

    async def go() -> None:
        async with serving(config(upstream.url, receiver.url)) as url:
            with pytest.raises(aiohttp.ClientError):
                await post(url + CHAT, ASKED)

    asyncio.run(go())
    (span,) = receiver.spans
    attrs = attributes_of(span)
    assert attrs["tokenmill.outcome"] == "failed"
    assert attrs["error.type"] == "upstream_disconnected"
    assert len(attrs["tokenmill.chunk.gaps_us"]) == 1


def test_an_upstream_that_is_down_gives_one_sentence(receiver: Receiver) -> None:
    async def go() -> list[tuple[int, bytes]]:
        async with serving(config("http://127.0.0.1:9", receiver.url)) as url:
            return [await post(url + CHAT, ASKED), await post(url + "/other", {})]

    for status, body in asyncio.run(go()):
        assert status == 502
        assert (
            "the upstream http://127.0.0.1:9 could not be reached"
            in json.loads(body)["error"]["message"]
        )
    (span,) = receiver.spans
    attrs = attributes_of(span)
    assert attrs["tokenmill.outcome"] == "failed"
    assert attrs["error.type"] == "upstream_unreachable"
    assert attrs["http.response.status_code"] == 502


def test_a_receiver_that_is_down_costs_the_caller_nothing(upstream: Upstream) -> None:
    direct = asyncio.run(post(upstream.url + CHAT, ASKED))

    async def go() -> list[tuple[int, bytes]]:
        async with serving(config(upstream.url, "http://127.0.0.1:9")) as url:
            return [await post(url + CHAT, ASKED) for _ in range(5)]

    assert asyncio.run(go()) == [direct] * 5


def test_everything_else_passes_through_unmeasured(upstream: Upstream, receiver: Receiver) -> None:
    payload = os.urandom(300_000)

    async def go() -> None:
        async with (
            serving(config(upstream.url, receiver.url)) as url,
            aiohttp.ClientSession() as session,
        ):
            for method in ("GET", "PUT", "DELETE"):
                data = payload if method == "PUT" else None
                async with session.request(method, url + "/echo?a=%2Fb&c=d", data=data) as response:
                    assert response.status == 201
                    assert response.headers["X-Method"] == method
                    assert response.headers["X-Query"] == "a=/b&c=d"
                    assert await response.read() == (data or b"")
            async with session.get(url + "/v1/models") as response:
                assert (await response.json())["data"] == [{"id": "scripted"}]

    asyncio.run(go())
    assert receiver.spans == []


def test_many_at_once_are_each_measured(upstream: Upstream, receiver: Receiver) -> None:
    async def go() -> None:
        async with serving(config(upstream.url, receiver.url)) as url:
            await asyncio.gather(
                *(post(url + CHAT, ASKED, {"X-Request-Id": f"r-{i}"}) for i in range(50))
            )

    asyncio.run(go())
    spans = [attributes_of(span) for span in receiver.spans]
    assert {attrs["tokenmill.request.id"] for attrs in spans} == {f"r-{i}" for i in range(50)}
    assert {attrs["tokenmill.outcome"] for attrs in spans} == {"completed"}


def test_bad_settings_and_a_taken_port_are_one_sentence(upstream: Upstream) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listen = f"127.0.0.1:{port}"
        with pytest.raises(ProbeError, match=f"port {port} on 127.0.0.1 is taken; choose another"):
            run_probe(config(upstream.url, "http://127.0.0.1:9", listen=listen))
    with pytest.raises(ProbeError, match="upstream must be an http:// or https:// URL"):
        ProbeConfig.create(upstream="localhost:8000")
    with pytest.raises(ProbeError, match="listen must be host:port"):
        ProbeConfig.create(upstream="http://localhost", listen="here")


def test_sigterm_lets_what_runs_end(upstream: Upstream, receiver: Receiver) -> None:
    upstream.first_s = 1.0
    script = (
        "from serving_probe.emit import TelemetryConfig\n"
        "from serving_probe.sidecar.core import ProbeConfig\n"
        "from serving_probe.sidecar.proxy import run_probe\n"
        f"telemetry = TelemetryConfig(endpoint={receiver.url!r})\n"
        f"config = ProbeConfig(upstream={upstream.url!r}, listen='127.0.0.1:0',"
        " telemetry=telemetry)\n"
        "run_probe(config, lambda url: print(url, flush=True))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()

        async def go() -> tuple[int, bytes]:
            running = asyncio.create_task(post(url + CHAT, ASKED))
            await until(lambda: bool(upstream.seen))
            process.send_signal(signal.SIGTERM)
            return await running

        status, body = asyncio.run(go())
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert status == 200
    assert body.endswith(b"data: [DONE]\n\n")
    (span,) = receiver.spans
    assert attributes_of(span)["tokenmill.outcome"] == "completed"


def test_the_probe_and_the_replay_need_the_base_alone() -> None:
    script = (
        "import sys\n"
        "blocked = ('torch duckdb streamlit polars pyarrow numpy msgspec starlette uvicorn zmq"
        " plotly ptars tokenizers').split()\n"
        "sys.modules.update(dict.fromkeys(blocked))\n"  # None makes an import fail
        "import serving_probe.replay.load, serving_probe.sidecar.proxy\n"
        "loaded = [m for m in blocked if sys.modules.get(m)]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
