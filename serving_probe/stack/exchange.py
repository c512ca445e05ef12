"""One HTTP exchange of a generation: what is sent, when each part was handed over, how it ended.

Joins the ASGI connection to the attempt's readings; it knows neither tokens nor workers.
"""

from typing import Final

from starlette.types import Message, Receive, Scope, Send

from serving_probe.attempt import AttemptRecorder, Attributes
from serving_probe.contract import Gen, Outcome
from serving_probe.emit import Telemetry, context_from, end_root, start_root, traceparent_of
from serving_probe.stack.caller import read_headers
from serving_probe.stack.errors import RequestError
from serving_probe.stack.openai_schema import error_body, error_event

_MAX_BODY_BYTES: Final = 16 * 2**20
_ERROR_KINDS: Final = {
    429: "rate_limit_error",
    502: "server_error",
    503: "server_error",
    504: "timeout_error",
}


class ClientGoneError(Exception):
    """The caller closed the connection."""


class Exchange:
    """Request in, response out, and the readings of both."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, recorder: AttemptRecorder
    ) -> None:
        self._receive = receive
        self._send = send
        self.recorder = recorder
        self.caller, self.header_fault = read_headers(scope["headers"])
        self.attrs: Attributes = {**self.caller.attributes(), Gen.PROVIDER: "tokenmill"}
        self.has_begun = False
        self.is_over = False

    def start_span(self, telemetry: Telemetry, name: str) -> str:
        """Open the root span as of arrival; returns the traceparent for the workers."""
        self._span = start_root(
            telemetry, name, context_from(self.caller.traceparent), self.recorder
        )
        return traceparent_of(self._span)

    def end_span(self, outcome: Outcome, error_type: str | None = None) -> None:
        """Close the root span with all that was gathered."""
        self.recorder.end(outcome, error_type)
        end_root(self._span, self.recorder, self.attrs)

    async def body(self) -> bytes:
        """The whole request body; raises `RequestError` when it is too large."""
        parts = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts += message.get("body", b"")
            if len(parts) > _MAX_BODY_BYTES:
                raise RequestError(f"The body must be at most {_MAX_BODY_BYTES} bytes.", status=413)
            if not message.get("more_body", False):
                return bytes(parts)

    async def gone(self) -> None:
        """Returns when the caller has closed the connection (or the response is over)."""
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await self._receive()

    async def whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Answer with JSON, all at once."""
        await self._begin(status, {"content-length": str(len(body)), **(headers or {})})
        self.is_over = True
        await self._send({"type": "http.response.body", "body": body})

    async def message(self, event: bytes) -> None:
        """Hand a message without content to the socket."""
        await self._stream(event)
        self.recorder.message()

    async def chunk(self, event: bytes, n_tokens: int) -> None:
        """Hand a message with content to the socket and take its time."""
        await self._stream(event)
        self.recorder.chunk(n_tokens)

    async def close(self, last: bytes) -> None:
        """End the stream."""
        await self._stream(last, is_last=True)

    async def error(self, message: str, status: int, code: str | None, param: str | None) -> None:
        """Answer with OpenAI's error object; in a stream that has begun, as its last message."""
        kind = _ERROR_KINDS.get(status, "invalid_request_error")
        if self.is_over:
            return
        if self.has_begun:
            await self.close(error_event(message, kind, code))
            return
        headers = {"retry-after": "1"} if status in (429, 503) else {}
        await self.whole(status, error_body(message, kind, code, param), headers)

    async def _stream(self, event: bytes, *, is_last: bool = False) -> None:
        if not self.has_begun:
            await self._begin(200, {"cache-control": "no-cache"}, "text/event-stream")
        self.is_over = is_last
        await self._send({"type": "http.response.body", "body": event, "more_body": not is_last})

    async def _begin(
        self, status: int, headers: dict[str, str], content_type: str = "application/json"
    ) -> None:
        self.has_begun = True
        self.attrs[Gen.HTTP_STATUS] = status
        named = {"content-type": content_type, "x-request-id": self.caller.request_id, **headers}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
