"""Serves one generation: body to prompt, prompt to flight, tokens to messages, all to one span.

Knows text, the API's shapes and the router's `submit`; of workers it knows nothing.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from serving_probe.contract import Gen, Leg, Outcome, Span
from serving_probe.emit import Telemetry, context_from
from serving_probe.stack.core import BLOCK_TOKENS, Sampling
from serving_probe.stack.errors import RequestError
from serving_probe.stack.exchange import ClientGoneError, Exchange
from serving_probe.stack.flight import Flight, Interrupted, LostDecode
from serving_probe.stack.model.tokenizer import Tokenizer
from serving_probe.stack.openai_schema import (
    DONE,
    ChatRequest,
    CompletionRequest,
    Form,
    GenerationRequest,
    Usage,
    read_request,
    usage_of,
)
from serving_probe.stack.router import Router
from serving_probe.stack.text_stream import Piece, TextStream
from serving_probe.stack.topology import Topology

_CHAT_TOKENS: Final = 256
_COMPLETION_TOKENS: Final = 16  # OpenAI's default of the older endpoint
_LONG_TEXT: Final = 32_768  # characters; a longer text is tokenised off the event loop

_Ended = tuple[Outcome, str | None]


@dataclass(frozen=True)
class Gateway:
    """What a generation needs."""

    router: Router
    tokenizer: Tokenizer
    telemetry: Telemetry
    topology: Topology

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and output together that model and smallest KV pool can hold."""
        pools = [group.n_pages * BLOCK_TOKENS for group in self.topology.workers]
        return min(self.tokenizer.max_context, *pools)


class _InterruptedError(Exception):
    """The flight was interrupted."""

    def __init__(self, event: Interrupted) -> None:
        super().__init__(event.message)
        self.event = event


class Generation:
    """One generation from body to span."""

    def __init__(self, gateway: Gateway, exchange: Exchange, *, is_chat: bool) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._is_chat = is_chat
        self._operation = "chat" if is_chat else "text_completion"
        self._traceparent: str | None = None
        self._flight: Flight | None = None
        self._text: TextStream | None = None

    async def run(self) -> None:
        """Answer, whatever comes, and close the span with how it ended."""
        self._exchange.attrs[Gen.OPERATION] = self._operation
        try:
            outcome, error_type = await self._serve()
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            self._end(Outcome.FAILED, "shutting_down" if is_cancelled else "internal_error")
            raise
        self._end(outcome, error_type)

    async def _serve(self) -> _Ended:
        try:
            return await self._generate()
        except RequestError as error:
            await self._exchange.error(str(error), error.status, error.code, error.param)
            return Outcome.REJECTED, error.code or "invalid_request"
        except _InterruptedError as broken:
            event = broken.event
            if event.outcome is not Outcome.CANCELLED:
                await self._exchange.error(event.message, event.http_status, event.error_type, None)
            return event.outcome, event.error_type
        except ClientGoneError:
            return Outcome.CANCELLED, "client_disconnected"

    async def _generate(self) -> _Ended:
        exchange = self._exchange
        body = await exchange.body()
        request = read_request(body, ChatRequest if self._is_chat else CompletionRequest)
        exchange.attrs[Gen.REQUEST_MODEL] = request.model
        exchange.attrs[Gen.STREAM] = bool(request.stream)
        if exchange.header_fault is not None:
            raise exchange.header_fault
        flight = await self._take_off(request)
        text = TextStream(self._gateway.tokenizer.detokenizer(), request.stop_strings)
        self._text = text
        form = self._form(request, flight)
        with self._attended(flight):
            if request.stream:
                await self._answer_stream(flight, text, form)
            else:
                await self._answer_whole(flight, text, form)
        return Outcome.COMPLETED, None

    async def _take_off(self, request: GenerationRequest) -> Flight:
        served = self._gateway.topology.model
        if request.model != served:
            raise RequestError(
                f"Model {request.model[:80]!r} isn't served here: use {served!r}.",
                status=404,
                code="model_not_found",
                param="model",
            )
        token_ids = await self._prompt(request)
        attrs = self._exchange.attrs
        sampling = self._sampling(request, len(token_ids))
        attrs[Gen.MAX_TOKENS] = sampling.max_tokens
        flight = Flight(
            attempt_id=uuid.uuid4().hex,
            traceparent=self._open_span(),
            token_ids=tuple(token_ids),
            cache_scope=self._exchange.caller.tenant_id,
            sampling=sampling,
        )
        self._gateway.router.submit(flight)
        attrs[Gen.INPUT_TOKENS] = len(token_ids)  # a refused prompt is nobody's input
        self._flight = flight
        return flight

    async def _prompt(self, request: GenerationRequest) -> list[int]:
        tokenizer = self._gateway.tokenizer
        if isinstance(request, ChatRequest):
            turns = [message.turn() for message in request.messages]
            if sum(len(turn["content"]) for turn in turns) > _LONG_TEXT:
                return await asyncio.to_thread(tokenizer.chat, turns)
            return tokenizer.chat(turns)
        assert isinstance(request, CompletionRequest), "there are two kinds of request"
        if isinstance(request.prompt, str):
            if len(request.prompt) > _LONG_TEXT:
                return await asyncio.to_thread(tokenizer.encode, request.prompt)
            return tokenizer.encode(request.prompt)
        worst = max(request.prompt)
        if worst >= tokenizer.vocab_size:
            raise RequestError(
                f"prompt: token id {worst} isn't in the vocabulary of {tokenizer.vocab_size}.",
                param="prompt",
            )
        return list(request.prompt)

    def _sampling(self, request: GenerationRequest, n_prompt: int) -> Sampling:
        most = self._gateway.max_context
        if n_prompt == 0:
            raise RequestError("prompt: it must have at least one token.", param="prompt")
        wanted = request.wanted_tokens
        room = most - n_prompt
        if room < (wanted or 1):
            raise RequestError(
                f"The context holds {most} tokens; the prompt has {n_prompt} and "
                f"{wanted or 1} were asked for: shorten either.",
                code="context_length_exceeded",
            )
        default = _CHAT_TOKENS if self._is_chat else _COMPLETION_TOKENS
        seed = request.seed if request.seed is not None else secrets.randbits(63)
        return Sampling(
            max_tokens=wanted or min(default, room),
            temperature=request.temperature or 0.0,
            top_p=request.top_p or 1.0,
            seed=seed & (2**63 - 1),
            stop_token_ids=() if request.ignore_eos else self._gateway.tokenizer.eos_token_ids,
            ignore_eos=request.ignore_eos,
        )

    def _form(self, request: GenerationRequest, flight: Flight) -> Form:
        form = Form(
            response_id=f"{'chatcmpl' if self._is_chat else 'cmpl'}-{flight.attempt_id}",
            created=self._exchange.recorder.arrived_unix_ns // 1_000_000_000,
            model=request.model,
            is_chat=self._is_chat,
            has_usage_message=request.has_usage_message,
        )
        self._exchange.attrs[Gen.RESPONSE_ID] = form.response_id
        self._exchange.attrs[Gen.RESPONSE_MODEL] = form.model
        return form

    @contextmanager
    def _attended(self, flight: Flight) -> Iterator[None]:
        """While open, a caller that leaves and a deadline that passes interrupt the flight."""

        def left(watch: "asyncio.Task[None]") -> None:
            if not watch.cancelled():
                flight.interrupt(Outcome.CANCELLED, "client_disconnected", "The caller left.", 499)

        def late() -> None:
            message = f"The answer wasn't finished within {limit_s:g} s."
            flight.interrupt(Outcome.TIMED_OUT, "timeout", message, 504)

        limit_s = self._gateway.topology.request_timeout_s
        left_s = limit_s - self._exchange.recorder.elapsed_us() / 1e6
        timer = asyncio.get_running_loop().call_later(left_s, late)
        watch = asyncio.create_task(self._exchange.gone())
        watch.add_done_callback(left)
        try:
            yield
        finally:
            timer.cancel()
            watch.cancel()

    async def _answer_stream(self, flight: Flight, text: TextStream, form: Form) -> None:
        exchange = self._exchange
        opening = form.opening()
        async for piece, finish_reason in _pieces(flight, text):
            if opening is not None:
                await exchange.message(opening)
                opening = None
            if piece.text:
                await exchange.chunk(form.content(piece.text), piece.n_tokens)
            if finish_reason is not None:
                self._finished(finish_reason)
                usage = form.usage(_usage(flight, text)) if form.has_usage_message else b""
                await exchange.close(form.closing(finish_reason) + usage + DONE)

    async def _answer_whole(self, flight: Flight, text: TextStream, form: Form) -> None:
        parts: list[str] = []
        async for piece, finish_reason in _pieces(flight, text):
            parts.append(piece.text)
            if finish_reason is not None:
                self._finished(finish_reason)
                body = form.whole("".join(parts), finish_reason, _usage(flight, text))
                await self._exchange.whole(200, body)

    def _finished(self, finish_reason: str) -> None:
        self._exchange.attrs[Gen.FINISH_REASONS] = [finish_reason]

    def _open_span(self) -> str:
        if self._traceparent is None:
            model = self._exchange.attrs.get(Gen.REQUEST_MODEL)
            name = f"{self._operation} {model}" if model else self._operation
            self._traceparent = self._exchange.start_span(self._gateway.telemetry, name)
        return self._traceparent

    def _end(self, outcome: Outcome, error_type: str | None) -> None:
        """Let go of the workers and close the span."""
        attrs = self._exchange.attrs
        if self._flight is not None:
            self._gateway.router.abort(self._flight)
            if self._flight.reused_tokens is not None:
                attrs[Gen.CACHE_READ_TOKENS] = self._flight.reused_tokens
            if self._flight.lost is not None:
                self._speak_for(self._flight.lost)
        if self._text is not None:
            attrs[Gen.OUTPUT_TOKENS] = self._text.n_tokens
        self._open_span()
        self._exchange.end_span(outcome, error_type)

    def _speak_for(self, lost: LostDecode) -> None:
        """Emit the decode span that a dead worker can't: where it ran and how long."""
        worker = lost.worker
        self._gateway.telemetry.child(
            Span.DECODE,
            context_from(self._traceparent),
            lost.since_unix_ns,
            time.time_ns(),
            {
                Leg.WORKER_ID: worker.worker_id,
                Leg.WORKER_ROLE: worker.role,
                Leg.WORKER_TYPE: worker.worker_type,
                Leg.WORKER_POOL: worker.pool,
                Gen.ERROR_TYPE: "worker_died",
            },
        )


async def _pieces(flight: Flight, text: TextStream) -> AsyncIterator[tuple[Piece, str | None]]:
    """Text as it comes, with the finish reason at the last; raises when the flight breaks."""
    finish_reason: str | None = None
    while finish_reason is None:
        event = await flight.events.get()
        if isinstance(event, Interrupted):
            raise _InterruptedError(event)
        finish_reason = event.finish_reason
        piece = text.push(event.token_ids, is_last=finish_reason is not None)
        if piece.is_stopped:
            finish_reason = "stop"
        yield piece, finish_reason


def _usage(flight: Flight, text: TextStream) -> Usage:
    assert flight.reused_tokens is not None, "whoever gave token 1 said what it reused"
    return usage_of(len(flight.token_ids), text.n_tokens, flight.reused_tokens)
