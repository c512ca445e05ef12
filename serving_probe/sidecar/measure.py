"""One measured attempt: forwards a completion request, reads the answer as it passes, emits a span.

The caller's bytes come first: chunks are stamped and passed on at once, and whatever goes wrong in
measuring is counted and swallowed, never shown to the caller.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from opentelemetry import trace

from serving_probe.attempt import AttemptRecorder, Attributes
from serving_probe.contract import Gen, Outcome, Root
from serving_probe.emit import (
    Telemetry,
    context_from,
    end_root,
    start_root,
    traceparent_of,
)
from serving_probe.sidecar import attributes, core
from serving_probe.sidecar.answer import Answer, refusal
from serving_probe.sidecar.chunks import read_message
from serving_probe.sidecar.forward import (
    break_off,
    request_headers,
    start_response,
    unreachable,
    upstream_url,
)
from serving_probe.sidecar.sse import SseEvent, SseParser
from serving_probe.sidecar.usage import ask_for_usage, without_null_usage

MAX_READ_BYTES: Final = 16 * 1024 * 1024
"""A whole (not streamed) answer beyond this is passed on without being read."""


@dataclass(slots=True)
class Drops:
    """Attempts whose span could not be made."""

    n: int = 0


class Measurement:
    """Everything known of one attempt, from arrival to the emitted root span."""

    def __init__(self, request: web.Request, operation: str, telemetry: Telemetry) -> None:
        self.recorder = AttemptRecorder()
        self.answer = Answer()
        self.request_id = attributes.request_id_of(request.headers)
        self._telemetry = telemetry
        self._operation = operation
        self._parent = context_from(request.headers.get("traceparent"))
        self._attrs: Attributes = {
            Gen.OPERATION: operation,
            Gen.HTTP_ROUTE: request.path,
            Root.REQUEST_ID: self.request_id,
        }
        self._span: trace.Span | None = None

    def add(self, attrs: Attributes) -> None:
        """Attributes that the span will carry."""
        self._attrs.update(attrs)

    def open(self) -> str:
        """Start the span; returns the `traceparent` that makes it the upstream's parent.

        The caller's decision not to sample goes on to the upstream; this span is made anyway.
        """
        model = self._attrs.get(Gen.REQUEST_MODEL)
        name = f"{self._operation} {model}" if model else self._operation
        self._span = start_root(self._telemetry, name, self._parent, self.recorder)
        traceparent = traceparent_of(self._span)
        caller = trace.get_current_span(self._parent).get_span_context()
        if caller.is_valid and not caller.trace_flags.sampled:
            return traceparent[:-2] + "00"
        return traceparent

    def close(self) -> None:
        """End the span with all readings; the recorder has an outcome by now."""
        if self._span is None:
            self.open()
        assert self._span is not None, "open() sets it"
        self.add(attributes.answer_attributes(self.answer))
        end_root(self._span, self.recorder, self._attrs)


class Measurer:
    """Handles completion requests."""

    def __init__(
        self,
        config: core.ProbeConfig,
        session: aiohttp.ClientSession,
        telemetry: Telemetry,
        salt: bytes,
    ) -> None:
        self._config = config
        self._session = session
        self._telemetry = telemetry
        self._salt = salt
        self.drops = Drops()

    async def handle(self, request: web.Request, operation: str) -> web.StreamResponse:
        """Forward one completion request and measure it."""
        measurement = Measurement(request, operation, self._telemetry)
        recorder = measurement.recorder
        try:
            return await self._forward(request, measurement)
        except asyncio.CancelledError:
            recorder.end(Outcome.CANCELLED, _who_left(request))
            raise
        except ConnectionError:
            recorder.end(Outcome.CANCELLED, "client_disconnected")
            raise
        finally:
            recorder.end(Outcome.FAILED, "probe_error")
            self._emit(measurement)

    def _emit(self, measurement: Measurement) -> None:
        try:
            measurement.close()
        except Exception:  # noqa: BLE001 - telemetry must never fail a request; counted instead
            self.drops.n += 1

    async def _forward(self, request: web.Request, measurement: Measurement) -> web.StreamResponse:
        body = await request.read()
        asked = {} if "Content-Encoding" in request.headers else attributes.read_json(body)
        measurement.add(attributes.header_attributes(request.headers, self._salt))
        measurement.add(attributes.request_attributes(asked))
        headers = request_headers(request)
        headers.popall("Content-Length", None)
        headers.popall("Accept-Encoding", None)  # a compressed answer can't be read in passing
        headers["Accept-Encoding"] = "identity"
        headers["traceparent"] = measurement.open()
        headers[core.REQUEST_ID] = measurement.request_id
        hides_usage = False
        if asked.get("stream") is True and self._config.asks_usage:
            with_usage = ask_for_usage(body, asked)
            hides_usage = with_usage is not None
            body = with_usage or body
        try:
            upstream = await self._session.post(
                upstream_url(self._config.upstream, request.raw_path),
                headers=headers,
                data=body,
                allow_redirects=False,
                auto_decompress=True,  # an upstream may compress against our wish
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            measurement.recorder.end(Outcome.FAILED, "upstream_unreachable")
            measurement.add({Gen.HTTP_STATUS: 502})
            return unreachable(self._config, error)
        async with upstream:
            return await _carry(request, upstream, measurement, hides_usage)


async def _carry(
    request: web.Request,
    upstream: aiohttp.ClientResponse,
    measurement: Measurement,
    hides_usage: bool,
) -> web.StreamResponse:
    measurement.add({Gen.HTTP_STATUS: upstream.status})
    recorder = measurement.recorder
    is_stream = upstream.content_type == "text/event-stream"
    altered: list[str] = []
    if "Content-Encoding" in upstream.headers:
        altered += ["Content-Encoding", "Content-Length"]
    elif is_stream and hides_usage:
        altered.append("Content-Length")
    response = start_response(upstream, tuple(altered))
    response.headers.setdefault(core.REQUEST_ID, measurement.request_id)
    await response.prepare(request)
    try:
        if is_stream:
            await _carry_stream(upstream, response, measurement, hides_usage)
        else:
            await _carry_whole(upstream, response, measurement)
    except aiohttp.ClientConnectionResetError:
        raise  # a write: the caller went away
    except aiohttp.ClientError:
        recorder.end(Outcome.FAILED, "upstream_disconnected")
        break_off(request)
        return response
    if upstream.status >= 300:
        recorder.end(*refusal(upstream.status))
    else:
        recorder.end(*measurement.answer.ending())
    await response.write_eof()
    return response


async def _carry_stream(
    upstream: aiohttp.ClientResponse,
    response: web.StreamResponse,
    measurement: Measurement,
    hides_usage: bool,
) -> None:
    parser = SseParser()
    async for data in upstream.content.iter_any():
        events = parser.feed(data)
        passed = [_read_event(event, measurement, hides_usage) for event in events]
        if out := b"".join(passed):
            await response.write(out)
    if rest := parser.flush():
        await response.write(rest)


def _read_event(event: SseEvent, measurement: Measurement, hides_usage: bool) -> bytes:
    """Stamp what an event says; returns the bytes that go on to the caller."""
    message = read_message(event.data) if event.data is not None else None
    if message is None:
        return event.raw
    contents = measurement.answer.read(message)
    if not message.is_done:
        measurement.recorder.message()
    for content in contents:
        measurement.recorder.chunk(content.tokens, content.choice)
    if not hides_usage:
        return event.raw
    return b"" if message.is_usage_only else without_null_usage(event.raw)


async def _carry_whole(
    upstream: aiohttp.ClientResponse, response: web.StreamResponse, measurement: Measurement
) -> None:
    kept = bytearray()
    async for data in upstream.content.iter_any():
        await response.write(data)
        if len(kept) <= MAX_READ_BYTES:
            kept += data
    if len(kept) <= MAX_READ_BYTES and (message := read_message(bytes(kept))):
        measurement.answer.read(message)


def _who_left(request: web.Request) -> str:
    transport = request.transport
    return "client_disconnected" if transport is None or transport.is_closing() else "shutdown"
