"""Sends one request and watches the answer: the client's clock, chunk by chunk.

"Sent" is stamped when a usable connection is at hand, just before the request's bytes are written;
time to connect is in `sent - scheduled`, never in TTFT.
"""

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final
from uuid import uuid4

import aiohttp

from serving_probe.attempt import AttemptRecorder
from serving_probe.contract import Outcome
from serving_probe.replay.core import ReplayConfig, Shape
from serving_probe.replay.prompts import Turn
from serving_probe.replay.record import Record
from serving_probe.sidecar import core
from serving_probe.sidecar.answer import Answer, refusal
from serving_probe.sidecar.chunks import read_message
from serving_probe.sidecar.sse import SseParser

IDLE_S: Final = 1.5
"""Idle connections are dropped before common servers drop them (2 s and up)."""

MAX_ERROR_CHARS: Final = 300


@dataclass(slots=True)
class Prepared:
    """A request ready to leave: its shape, its bytes, and when the client itself will leave."""

    shape: Shape
    body: bytes
    cancels_after: int | None  # chunks


@dataclass(slots=True)
class _Watch:
    """Readings of one attempt; `recorder` starts when the connection is at hand."""

    recorder: AttemptRecorder | None = None
    is_sent: bool = False
    answer: Answer = field(default_factory=Answer)
    status: int | None = None
    error: str | None = None

    def end(self, outcome: Outcome, error: str | None) -> None:
        if self.recorder is None:
            self.recorder = AttemptRecorder()
        if self.recorder.outcome is None:
            self.error = error
        self.recorder.end(outcome, error)


class Client:
    """Sends requests over kept connections."""

    def __init__(self, config: ReplayConfig, model: str, run_id: str) -> None:
        self._config = config
        self._model = model
        self._run_id = run_id
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if config.api_key is not None:
            self._headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"

    def body(self, shape: Shape, turns: tuple[Turn, ...]) -> bytes:
        """The JSON body of a request."""
        config = self._config
        request: dict[str, object] = {
            "model": self._model,
            "max_tokens": shape.output_tokens,
            "temperature": config.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if config.ignore_eos:
            request["ignore_eos"] = True
        if config.api == "chat":
            request["messages"] = [{"role": turn.role, "content": turn.text} for turn in turns]
        else:
            request["prompt"] = "\n\n".join(turn.text for turn in turns)
        return json.dumps(request).encode()

    async def send(
        self, session: aiohttp.ClientSession, prepared: Prepared, scheduled_unix_ns: int
    ) -> Record:
        """One attempt, to whatever end; never raises for what the server or the network did."""
        record, headers = self._addressed(prepared.shape, scheduled_unix_ns)
        watch = _Watch()
        try:
            async with asyncio.timeout(self._config.timeout_s):
                await self._watched(session, prepared, headers, watch)
        except TimeoutError:
            watch.end(Outcome.TIMED_OUT, "client_timeout")
        except aiohttp.ClientError as error:
            watch.end(Outcome.FAILED, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            watch.end(Outcome.CANCELLED, "replay_stopped")
        return _filled(record, watch)

    async def _watched(
        self,
        session: aiohttp.ClientSession,
        prepared: Prepared,
        headers: dict[str, str],
        watch: _Watch,
    ) -> None:
        parser = SseParser()
        async with session.post(
            self._config.endpoint,
            data=prepared.body,
            headers=headers,
            allow_redirects=False,
            trace_request_ctx=watch,
        ) as response:
            watch.status = response.status
            if response.status >= 300:
                outcome, error = refusal(response.status)
                watch.end(outcome, _message_of(await response.read()) or error)
                return
            async for data in response.content.iter_any():
                if _read(parser, data, watch, prepared.cancels_after):
                    watch.end(Outcome.CANCELLED, "client_cancelled")
                    response.close()
                    return
        watch.end(*watch.answer.ending())

    def _addressed(self, shape: Shape, scheduled_unix_ns: int) -> tuple[Record, dict[str, str]]:
        """A new record, and the headers that carry its ids."""
        record = Record(
            request_id=uuid4().hex,
            attempt=1,
            trace_id=secrets.token_hex(16),
            conversation_id=(
                None if shape.conversation is None else f"{self._run_id}-{shape.conversation}"
            ),
            tenant_id=self._config.tenant or shape.tenant,
            slo_class=self._config.slo_class or shape.slo_class,
            planned_input_tokens=shape.input_tokens,
            planned_output_tokens=shape.output_tokens,
            scheduled_unix_ns=scheduled_unix_ns,
        )
        named = {
            core.REQUEST_ID: record.request_id,
            core.TENANT_ID: record.tenant_id,
            core.SLO_CLASS: record.slo_class,
            core.INTENDED_START: str(scheduled_unix_ns),
            core.CONVERSATION_ID: record.conversation_id,
            "traceparent": f"00-{record.trace_id}-{secrets.token_hex(8)}-01",
        }
        given = {name: value for name, value in named.items() if value is not None}
        return record, {**self._headers, **given}


def open_session() -> aiohttp.ClientSession:
    """A session without limits or deadlines of its own that stamps the send."""
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(_stamp)
    tracing.on_connection_reuseconn.append(_stamp)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        trace_configs=[tracing],
    )


async def _stamp(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    watch = context.trace_request_ctx
    if isinstance(watch, _Watch):
        watch.recorder = AttemptRecorder()
        watch.is_sent = True


def _read(parser: SseParser, data: bytes, watch: _Watch, cancels_after: int | None) -> bool:
    """Stamp what arrived; whether it is time for this client to leave."""
    recorder = watch.recorder
    assert recorder is not None, "stamped before any byte can arrive"
    for event in parser.feed(data):
        message = read_message(event.data) if event.data is not None else None
        if message is None:
            continue
        for content in watch.answer.read(message):
            recorder.chunk(content.tokens, content.choice)
    return cancels_after is not None and len(recorder.offsets_us) >= cancels_after


def _filled(record: Record, watch: _Watch) -> Record:
    """The record with all that was read."""
    recorder, answer = watch.recorder, watch.answer
    assert recorder is not None, "end() makes one"
    assert recorder.outcome is not None, "every path ends"
    assert recorder.ended_us is not None, "set with the outcome"
    sent_ns = recorder.arrived_unix_ns
    record.ended_unix_ns = sent_ns + recorder.ended_us * 1000
    record.outcome = str(recorder.outcome)
    record.error = watch.error[:MAX_ERROR_CHARS] if watch.error else None
    record.http_status = watch.status
    record.n_chunks = len(recorder.offsets_us)
    if watch.is_sent:
        record.sent_unix_ns = sent_ns
        record.e2e_s = recorder.ended_us / 1e6
    if recorder.offsets_us:
        record.first_chunk_unix_ns = sent_ns + recorder.offsets_us[0] * 1000
        record.ttft_s = recorder.offsets_us[0] / 1e6
        record.gaps_us = recorder.gaps_us[1:]
    record.finish_reason = answer.finish_reasons.get(0)
    if answer.usage is not None:
        record.input_tokens = answer.usage.input_tokens
        record.cached_tokens = answer.usage.cached_tokens
        record.output_tokens = answer.usage.output_tokens
    return record


def _message_of(body: bytes) -> str | None:
    """The sentence in an error answer, for the person who reads the records."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else None
