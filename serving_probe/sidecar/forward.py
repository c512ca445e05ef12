"""Carries a request to the upstream and the answer's bytes back, unread and unchanged.

Knows HTTP's hop-by-hop rules (RFC 9110, section 7.6.1) and nothing of models or spans.
"""

from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from serving_probe.sidecar.core import ProbeConfig

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_UPSTREAM: Final = _HOP_BY_HOP | {"host", "expect"}
IDLE_S: Final = 1.5
"""Idle upstream connections are dropped sooner than common servers (2 s and up) drop them, so that
a request seldom meets a connection that is just being closed: a POST is not safe to send twice."""


def open_session(config: ProbeConfig) -> aiohttp.ClientSession:
    """The one client session: no limits, no cookies kept, nothing decompressed, no deadline."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_s),
    )


def upstream_url(base: str, raw_path: str) -> URL:
    """The upstream's URL for a request target, its escapes left as they came.

    A base that ends in `/v1`, as clients are given it, does not double the target's own.
    """
    target = raw_path if raw_path.startswith("/") else URL(raw_path).raw_path_qs
    base = base.rstrip("/")
    if target.startswith("/v1/"):
        base = base.removesuffix("/v1")
    return URL(base + target, encoded=True)


def request_headers(request: web.Request) -> CIMultiDict[str]:
    """The caller's headers that go on to the upstream."""
    return _kept(request.headers, _NOT_UPSTREAM)


def start_response(
    upstream: aiohttp.ClientResponse, without: tuple[str, ...] = ()
) -> web.StreamResponse:
    """An answer with the upstream's status and headers but those named, not yet sent."""
    headers = _kept(upstream.headers, _HOP_BY_HOP)
    for name in without:
        headers.popall(name, None)
    return web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)


async def pass_through(
    request: web.Request, session: aiohttp.ClientSession, config: ProbeConfig
) -> web.StreamResponse:
    """Everything that is not measured: both bodies streamed as they come."""
    try:
        upstream = await session.request(
            request.method,
            upstream_url(config.upstream, request.raw_path),
            headers=request_headers(request),
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        )
    except (aiohttp.ClientError, TimeoutError) as error:
        return unreachable(config, error)
    async with upstream:
        response = start_response(upstream)
        await response.prepare(request)
        try:
            async for data in upstream.content.iter_any():
                await response.write(data)
        except aiohttp.ClientConnectionResetError:
            raise  # a write: the caller went away
        except aiohttp.ClientError:
            break_off(request)
        return response


def unreachable(config: ProbeConfig, error: Exception) -> web.Response:
    """502 in OpenAI's error shape, with one sentence."""
    why = str(error) or type(error).__name__
    message = f"the upstream {config.upstream} could not be reached: {why}."
    return web.json_response(
        {"error": {"message": message, "type": "upstream_unreachable", "code": 502}}, status=502
    )


def break_off(request: web.Request) -> None:
    """Close the caller's connection without the mark of a proper end: the answer isn't whole."""
    if request.transport is not None:
        request.transport.abort()


def _kept(headers: Mapping[str, str], dropped: frozenset[str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in dropped and name.lower() not in named
    )
