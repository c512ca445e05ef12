"""OTLP/HTTP as the protocol has it: three paths in, protobuf answers out.

It turns requests into bodies for the committer, and what the committer says into status codes that
senders act on: 400, 413 and 415 are never sent again, 503 always. Never 500 for "busy".
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Any, Final, cast

from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from isal import isal_zlib
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ingest.commit import Committer, Receipt
from ingest.errors import (
    BodyError,
    BodyTooLargeError,
    BusyError,
    UnreadableBodyError,
    UnsupportedBodyError,
)
from ingest.frames import Signal
from ingest.quarantine import Quarantine

PROTOBUF: Final = "application/x-protobuf"
RETRY_AFTER_S: Final = 1

_OFF_LOOP_BYTES: Final = 64 * 2**10
"""Compressed bodies above this are inflated in a thread: it takes longer than the hand-over."""

_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)  # isal's stubs call the class an instance

# google.rpc.Code
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED, _UNAVAILABLE = 3, 8, 12, 14


class HttpLimits(BaseModel):
    """What one request may weigh."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: Annotated[int, Field(gt=0, description="after inflation too")] = 64 * 2**20


class OtlpHttp:
    """The endpoints `/v1/traces`, `/v1/metrics`, `/v1/logs` over one committer."""

    def __init__(self, committer: Committer, quarantine: Quarantine, limits: HttpLimits) -> None:
        self._committer = committer
        self._quarantine = quarantine
        self._limits = limits

    def app(self, stats: Callable[[], dict[str, Any]]) -> Starlette:
        """The ASGI application, with `/healthz` and what `stats` returns under `/stats`."""

        async def healthz(_: Request) -> Response:
            if self._committer.is_running:
                return JSONResponse({"status": "ok"})
            return JSONResponse({"status": "closing"}, status_code=503)

        async def show_stats(_: Request) -> Response:
            return JSONResponse(stats())

        return Starlette(
            routes=[
                Route("/v1/traces", self._endpoint(Signal.SPAN), methods=["POST"]),
                Route("/v1/metrics", self._endpoint(Signal.METRIC), methods=["POST"]),
                Route("/v1/logs", self._endpoint(Signal.LOG), methods=["POST"]),
                Route("/healthz", healthz),
                Route("/stats", show_stats),
            ]
        )

    def _endpoint(self, signal: Signal) -> Callable[[Request], Any]:
        async def export(request: Request) -> Response:
            return await self._export(signal, request)

        return export

    async def _export(self, signal: Signal, request: Request) -> Response:
        try:
            body = await self._body(signal, request)
            receipt = await _answered(self._committer.submit(signal, body))
        except BusyError as error:
            return _refusal(503, _UNAVAILABLE, error, {"retry-after": str(RETRY_AFTER_S)})
        except BodyTooLargeError as error:
            return _refusal(413, _RESOURCE_EXHAUSTED, error)
        except UnsupportedBodyError as error:
            return _refusal(415, _UNIMPLEMENTED, error, {"accept-encoding": "gzip, identity"})
        except BodyError as error:
            return _refusal(400, _INVALID_ARGUMENT, error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        return Response(_success(signal, receipt).SerializeToString(), media_type=PROTOBUF)

    async def _body(self, signal: Signal, request: Request) -> bytes:
        """The request's body, inflated; BodyError says why it can't be had."""
        content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if content_type != PROTOBUF:
            raise UnsupportedBodyError(
                f"content type {content_type or 'missing'!r}: send OTLP as {PROTOBUF}"
            )
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip"):
            raise UnsupportedBodyError(f"content encoding {encoding!r}: send gzip or none")
        raw = await self._raw(request)
        if encoding != "gzip":
            return raw
        try:
            if len(raw) > _OFF_LOOP_BYTES:
                return await asyncio.to_thread(inflate, raw, self._limits.max_body_bytes)
            return inflate(raw, self._limits.max_body_bytes)
        except UnreadableBodyError as error:
            about = {"signal": str(signal), "content_encoding": encoding}
            await asyncio.to_thread(self._quarantine.keep, raw, str(error), **about)
            raise

    async def _raw(self, request: Request) -> bytes:
        limit = self._limits.max_body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise BodyTooLargeError(f"a body of {declared} bytes: at most {limit} are taken")
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise BodyTooLargeError(f"a body of more than {limit} bytes: send smaller batches")
            parts.append(part)
        return b"".join(parts)


def inflate(raw: bytes, limit: int) -> bytes:
    """The content of the gzip members in `raw`; never more than `limit` bytes are made."""
    out, size = [], 0
    while raw:
        member = isal_zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(raw, limit - size + 1)
        except _INFLATE_ERROR as error:
            raise UnreadableBodyError(
                f"content encoding is gzip, the body is not: {error}"
            ) from error
        size += len(part)
        if size > limit:
            raise BodyTooLargeError(f"a body of more than {limit} bytes once inflated")
        if not member.eof:
            raise UnreadableBodyError("the gzip body ends too early")
        out.append(part)
        raw = member.unused_data
    return b"".join(out)


async def _answered(answer: Future[Receipt]) -> Receipt:
    """The committer's answer. A sender that hangs up doesn't undo what is being written."""
    return await asyncio.shield(asyncio.wrap_future(answer))


def _success(signal: Signal, receipt: Receipt) -> Message:
    response: Any
    if signal is Signal.SPAN:
        response = ExportTraceServiceResponse()
        response.partial_success.rejected_spans = receipt.rejected
    elif signal is Signal.METRIC:
        response = ExportMetricsServiceResponse()
        response.partial_success.rejected_data_points = receipt.rejected
    else:
        response = ExportLogsServiceResponse()
        response.partial_success.rejected_log_records = receipt.rejected
    message = _told(receipt)
    if not message:
        response.ClearField("partial_success")
    else:
        response.partial_success.error_message = message
    done: Message = response
    return done


def _told(receipt: Receipt) -> str:
    parts = []
    if receipt.rejected:
        parts.append(
            f"{receipt.rejected} refused: trace_id must be 16 bytes and span_id 8, not all zero"
        )
    if receipt.repaired:
        parts.append(
            f"{receipt.repaired} repaired: text that was not UTF-8, optional ids of a wrong length "
            "or repeated attribute keys"
        )
    return "; ".join(parts)


def _refusal(
    status: int, code: int, error: Exception, headers: dict[str, str] | None = None
) -> Response:
    body = Status(code=code, message=str(error)).SerializeToString()
    return Response(body, status_code=status, media_type=PROTOBUF, headers=headers)
