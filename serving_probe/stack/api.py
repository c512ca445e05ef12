"""The OpenAI-compatible HTTP routes.

What happens to a generation is `gateway`'s; here are only addresses, health and error shapes.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving_probe.attempt import AttemptRecorder
from serving_probe.contract import Gen
from serving_probe.stack.exchange import Exchange
from serving_probe.stack.gateway import Gateway, Generation
from serving_probe.stack.openai_schema import error_body

_RECORDER: Final = "tokenmill.recorder"

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


class ArrivalStamp:
    """Takes the time at which a request's scope comes in, before anything else looks at it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[_RECORDER] = AttemptRecorder()
        await self._app(scope, receive, send)


class _GenerationRoute:
    """ASGI endpoint of one of the two generation routes."""

    def __init__(self, gateway: Gateway, path: str, *, is_chat: bool) -> None:
        self._gateway = gateway
        self._path = path
        self._is_chat = is_chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, scope[_RECORDER])
        exchange.attrs[Gen.HTTP_ROUTE] = self._path
        await Generation(self._gateway, exchange, is_chat=self._is_chat).run()

    def route(self) -> Route:
        """The route that leads here."""
        return Route(self._path, endpoint=self, methods=["POST"])


def create_app(gateway: Gateway, lifespan: Lifespan) -> ASGIApp:
    """The whole API; `lifespan` starts and stops the router."""
    started_unix_s = int(time.time())
    model = {
        "id": gateway.topology.model,
        "object": "model",
        "created": started_unix_s,
        "owned_by": "tokenmill",
        "max_model_len": gateway.max_context,
    }

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        if request.path_params["model"] != model["id"]:
            raise HTTPException(404, f"There is no such model: use {model['id']!r}.")
        return JSONResponse(model)

    async def health(_: Request) -> Response:
        missing = gateway.router.members.missing_roles()
        workers = [
            {"worker_id": m.worker_id, "role": m.hello.role, "incarnation": m.hello.incarnation}
            for m in gateway.router.members.all()
        ]
        content = {
            "status": "unavailable" if missing else "ok",
            "missing_roles": missing,
            "workers": workers,
            "waiting": gateway.router.n_waiting,
        }
        return JSONResponse(content, 503 if missing else 200)

    routes = [
        _GenerationRoute(gateway, "/v1/chat/completions", is_chat=True).route(),
        _GenerationRoute(gateway, "/v1/completions", is_chat=False).route(),
        Route("/v1/models", models),
        Route("/v1/models/{model}", one_model),
        Route("/health", health),
    ]
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error}
    )
    return ArrivalStamp(app)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for this class alone"
    body = error_body(error.detail, "invalid_request_error", None)
    return Response(body, error.status_code, error.headers, media_type="application/json")
