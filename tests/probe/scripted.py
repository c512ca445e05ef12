"""Real servers for these tests: an OpenAI-like upstream that follows a script, an OTLP receiver."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Step = float | bytes | None
"""Wait seconds, write bytes, or (None) break the connection off."""


@dataclass
class Seen:
    """One request as the upstream got it."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    was_cancelled: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Upstream:
    """Streams `script` when there is one, else as many one-token chunks as `max_tokens` says."""

    script: list[Step] | None = None
    status: int = 200
    gap_s: float = 0.002
    first_s: float = 0.01
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> str:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_route("*", "/echo", self._echo)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted"}]})

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {"X-Method": request.method, "X-Query": request.query_string}
        return web.Response(body=body, status=201, headers=headers)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.path, request.headers, await request.read())
        self.seen.append(seen)
        try:
            return await self._answer(request, seen)
        except asyncio.CancelledError:
            seen.was_cancelled = True
            raise

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if self.status != 200:
            error = {"message": "the prompt 'top secret' is refused", "type": "refused"}
            return web.json_response({"error": error}, status=self.status)
        asked = seen.json
        if not asked.get("stream"):
            return web.json_response(whole(asked))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        steps = self.script
        if steps is None:
            steps = stream_of(asked, self.first_s, self.gap_s)
        for step in steps:
            if isinstance(step, bytes):
                await response.write(step)
            elif step is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            else:
                await asyncio.sleep(step)
        return response


def usage_of(asked: dict[str, Any]) -> dict[str, Any]:
    said = asked.get("prompt") or " ".join(m["content"] for m in asked["messages"])
    n_in = len(said.split())
    n_out = asked.get("max_tokens", 4)
    return {
        "prompt_tokens": n_in,
        "completion_tokens": n_out,
        "total_tokens": n_in + n_out,
        "prompt_tokens_details": {"cached_tokens": n_in // 2},
    }


def whole(asked: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "top secret answer"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "cmpl-1", "model": "m-1", "choices": [choice], "usage": usage_of(asked)}


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def stream_of(asked: dict[str, Any], first_s: float, gap_s: float) -> list[Step]:
    """As OpenAI streams: a role, the chunks, a finish; with usage asked for, nulls and a last."""
    is_asked = bool((asked.get("stream_options") or {}).get("include_usage"))
    extra: dict[str, Any] = {"usage": None} if is_asked else {}
    base = {"id": "cmpl-1", "object": "chat.completion.chunk", "model": "m-1"}

    def message(delta: dict[str, Any], reason: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if "messages" in asked:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return event({**base, "choices": [choice], **extra})

    steps: list[Step] = [message({"role": "assistant", "content": ""}, None), first_s]
    for i in range(asked.get("max_tokens", 4)):
        steps += [message({"content": f"w{i} é"}, None), gap_s]
    steps.append(message({}, "length"))
    if is_asked:
        steps.append(event({**base, "choices": [], "usage": usage_of(asked)}))
    steps.append(b"data: [DONE]\n\n")
    return steps


class Receiver:
    """An OTLP/HTTP receiver that keeps the spans and the raw bodies."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    raise AssertionError("not expected here")
                receiver.raw.append(body)
                if self.path == "/v1/traces":
                    request = ExportTraceServiceRequest.FromString(body)
                    for resource in request.resource_spans:
                        for scope in resource.scope_spans:
                            receiver.spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def attributes_of(span: Span) -> dict[str, Any]:
    """A span's attributes as Python values."""
    values = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        if kind == "array_value":
            value = [getattr(v, v.WhichOneof("value")) for v in value.values]
        values[pair.key] = value
    return values


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    """Wait for something that another thread or process does."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
