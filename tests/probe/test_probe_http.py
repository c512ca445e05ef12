"""HTTP's corners through the sidecar, and the official client in front of it."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from scripted import Receiver, Upstream, attributes_of, event, until

from serving_probe.emit import TelemetryConfig
from serving_probe.sidecar.core import ProbeConfig
from serving_probe.sidecar.forward import upstream_url
from serving_probe.sidecar.proxy import serving


def config(upstream: str, receiver: Receiver, **fields: Any) -> ProbeConfig:
    telemetry = TelemetryConfig(endpoint=receiver.url, export_delay_s=0.05)
    return ProbeConfig.create(
        upstream=upstream, listen="127.0.0.1:0", telemetry=telemetry, **fields
    )


class Corners:
    """An upstream with what HTTP allows and few use."""

    def __init__(self) -> None:
        self.app = web.Application()
        for method, path, handler in [
            ("GET", "/nothing", self.nothing),
            ("GET", "/cached", self.cached),
            ("*", "/sized", self.sized),
            ("GET", "/gzip", self.zipped),
            ("POST", "/upload", self.upload),
            ("GET", "/away", self.away),
            ("POST", "/v1/chat/completions", self.zipped_stream),
        ]:
            self.app.router.add_route(method, path, handler)

    async def nothing(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def cached(self, _: web.Request) -> web.Response:
        return web.Response(status=304, headers={"ETag": '"1"'})

    async def sized(self, request: web.Request) -> web.Response:
        response = web.Response(body=b"x" * 1000)
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        response.headers["X-Got-Cookie"] = request.headers.get("Cookie", "")
        return response

    async def zipped(self, _: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"hello"), headers={"Content-Encoding": "gzip"})

    async def upload(self, request: web.Request) -> web.Response:
        body = await request.read()
        return web.Response(text=f"{len(body)} {request.headers.get('Transfer-Encoding')}")

    async def away(self, _: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/sized"})

    async def zipped_stream(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
        body = event({"id": "1", "choices": [choice]}) + b"data: [DONE]\n\n"
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
        return web.Response(body=gzip.compress(body), headers=headers)


@pytest.fixture
def corners() -> Corners:
    return Corners()


async def started(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def test_corners_of_http_pass_through(corners: Corners, receiver: Receiver) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"y" * 1000

    async def go() -> None:
        runner, upstream = await started(corners.app)
        async with (
            serving(config(upstream, receiver)) as url,
            aiohttp.ClientSession(
                auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            ) as session,
        ):
            async with session.get(url + "/nothing") as response:
                assert response.status == 204
            async with session.get(url + "/cached") as response:
                assert (response.status, response.headers["ETag"]) == (304, '"1"')
            async with session.head(url + "/sized") as response:
                assert response.headers["Content-Length"] == "1000"
            for _ in range(2):  # the sidecar keeps no caller's cookies
                async with session.get(url + "/sized") as response:
                    assert response.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2; Path=/"]
                    assert response.headers["X-Got-Cookie"] == ""
            async with session.get(url + "/gzip") as response:
                assert response.headers["Content-Encoding"] == "gzip"
                assert gzip.decompress(await response.read()) == b"hello"
            async with session.post(url + "/upload", data=pieces()) as response:
                assert await response.text() == "10000 chunked"
            async with session.post(
                url + "/upload", data=b"z" * 70_000, expect100=True
            ) as response:
                assert await response.text() == "70000 None"
            async with session.get(url + "/away", allow_redirects=False) as response:
                assert (response.status, response.headers["Location"]) == (302, "/sized")
        await runner.cleanup()

    asyncio.run(go())
    assert receiver.spans == []


def test_a_compressed_stream_is_read_and_sent_plain(corners: Corners, receiver: Receiver) -> None:
    async def go() -> bytes:
        runner, upstream = await started(corners.app)
        async with (
            serving(config(upstream, receiver)) as url,
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.post(url + "/v1/chat/completions", json={"stream": True}) as response,
        ):
            assert "Content-Encoding" not in response.headers
            body = await response.read()
        await runner.cleanup()
        return body

    assert asyncio.run(go()).endswith(b"data: [DONE]\n\n")
    attrs = attributes_of(receiver.spans[0])
    assert attrs["tokenmill.outcome"] == "completed"
    assert len(attrs["tokenmill.chunk.gaps_us"]) == 1


def test_a_base_with_v1_does_not_double_it() -> None:
    for base in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert str(upstream_url(base, "/v1/models?a=%2F")) == "http://h:1/v1/models?a=%2F"
    assert str(upstream_url("http://h/v1", "/health")) == "http://h/v1/health"
    assert str(upstream_url("http://h/p", "http://x/v1/models")) == "http://h/p/v1/models"


def test_the_official_client_sees_no_difference(upstream: Upstream, receiver: Receiver) -> None:
    messages: Any = [{"role": "user", "content": "what is the capital"}]

    async def streamed(base_url: str, **more: Any) -> tuple[list[str], list[Any]]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k") as client:
            stream = await client.chat.completions.create(
                model="m-1", messages=messages, max_tokens=3, stream=True, **more
            )
            chunks = [chunk async for chunk in stream]
        texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        return texts, [c.usage for c in chunks]

    async def whole(base_url: str) -> Any:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k") as client:
            return await client.chat.completions.create(model="m-1", messages=messages)

    async def go() -> None:
        direct = upstream.url + "/v1"
        async with serving(config(upstream.url, receiver)) as url:
            through = url + "/v1"
            plain = await streamed(through)
            assert plain == await streamed(direct)
            assert set(plain[1]) == {None}
            with_usage = await streamed(through, stream_options={"include_usage": True})
            assert with_usage == await streamed(direct, stream_options={"include_usage": True})
            assert with_usage[1][-1].prompt_tokens == 4
            assert await whole(through) == await whole(direct)
            upstream.status = 429
            with pytest.raises(openai.RateLimitError):
                async with openai.AsyncOpenAI(
                    base_url=through, api_key="k", max_retries=0
                ) as client:
                    await client.chat.completions.create(model="m-1", messages=messages)
            await until(lambda: len(receiver.spans) == 4)

    asyncio.run(go())
    outcomes = [attributes_of(span)["tokenmill.outcome"] for span in receiver.spans]
    assert sorted(outcomes) == ["completed"] * 3 + ["rejected"]
