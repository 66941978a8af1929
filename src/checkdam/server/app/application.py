"""The ASGI application: Starlette routes and parses requests; Flink's wire rules and the security checks are ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checkdam.errors import CheckdamError
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.app.http_errors import ErrorBody, RestError, status_of, unhandled
from checkdam.server.app.security import Guard

_LOG = logging.getLogger(__name__)
Forward = Callable[[Endpoint, ApiCall, Request, bytes], Awaitable[Response | None]]

_JSON = "application/json; charset=UTF-8"
_BODY_TIMEOUT = 30.0  # seconds within which the whole body must arrive
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # no other site may frame this page (clickjacking)
    "Referrer-Policy": "same-origin",
}


def application(
    endpoints: Iterable[Endpoint],
    guard: Guard,
    *,
    is_open: Callable[[str], bool] = lambda path: False,
    max_body: int = 16 << 20,
    allow_origin: str | None = None,
    forward: Forward | None = None,
) -> Starlette:
    """Build the application that serves the endpoints, both with and without the prefix /v1.

    A path for which `is_open` holds needs no token. A request that has passed all checks is answered by `forward`, or
    where that returns None by the endpoint's handler. If a handler fails, the client gets an error in Flink's form and
    the process keeps running.
    """
    # As in Flink, a literal segment takes precedence over a parameter, regardless of declaration order.
    routes = [_route(endpoint, guard, max_body, forward) for endpoint in sorted(endpoints, key=_precedence)]
    served = Router(routes, redirect_slashes=False)
    app = Starlette(
        routes=[Mount("/v1", app=served), *routes],
        middleware=[Middleware(_Gate, guard=guard, is_open=is_open, allow_origin=allow_origin)],
        exception_handlers={RestError: _refused, CheckdamError: _refused, HTTPException: _not_found},
    )
    app.router.redirect_slashes = False
    return app


def _precedence(endpoint: Endpoint) -> list[int]:
    segments = endpoint.path.split("/")
    return [2 if segment.endswith(":path}") else int(segment.startswith("{")) for segment in segments]


def _route(endpoint: Endpoint, guard: Guard, max_body: int, forward: Forward | None) -> Route:
    async def serve(request: Request) -> Response:
        if endpoint.is_write:
            guard.check_origin(request.headers)
        body = await _body(request, max_body) if endpoint.body is not None else b""
        call = endpoint.read(request.path_params, request.query_params, body, request.headers)
        try:
            answer = None if forward is None else await forward(endpoint, call, request, body)
            if answer is not None:
                return answer
            if endpoint.is_awaited:
                result = await endpoint.handler(call)
            else:
                result = await run_in_threadpool(endpoint.handler, call)
            return result if isinstance(result, Response) else _json(result, endpoint.status)
        except (RestError, CheckdamError):
            raise
        except Exception as error:  # noqa: BLE001  report the failure to the client; it must not affect the job
            _LOG.exception("rest: %s %s failed", request.method, request.scope["path"])
            return _json(unhandled(error), 500)

    route = Route(endpoint.path, serve, methods=[endpoint.method])
    if endpoint.is_write and route.methods is not None:
        route.methods.discard("HEAD")  # Starlette adds HEAD to GET
    return route


async def _body(request: Request, limit: int) -> bytes:
    too_large = RestError(413, f"The body of the request is larger than {limit} bytes.")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise RestError(408, f"The body did not arrive within {_BODY_TIMEOUT:.0f} s.") from None
    except ClientDisconnect:
        raise RestError(400, "The request ended early.") from None
    return bytes(body)


class _Gate:
    """Middleware in front of the router: checks Host and token of every request, adds headers to every response."""

    def __init__(self, app: ASGIApp, guard: Guard, is_open: Callable[[str], bool], allow_origin: str | None) -> None:
        self._app = app
        self._guard = guard
        self._is_open = is_open
        self._allow_origin = allow_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The router matches the raw path, so a quoted slash stays within its segment. Handlers get it unquoted.
        scope["path"] = "/" + _raw_path(scope).strip("/")
        request = Request(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if self._allow_origin is not None and request.method in ("GET", "HEAD"):
                    headers["Access-Control-Allow-Origin"] = self._allow_origin
            await send(message)

        try:
            answer: ASGIApp = self._admit(request) or self._app
        except RestError as error:
            answer = await _refused(request, error)
        await answer(scope, receive, send_with_headers)

    def _admit(self, request: Request) -> Response | None:
        """Return None to let the request through, or a response that sets the cookie. Raise RestError to refuse it."""
        self._guard.check_host(request.headers)
        if self._guard.token is not None and request.method == "GET" and "token" in request.query_params:
            return self._log_in(request)
        if not self._is_open(request.scope["path"]):
            self._guard.check_token(request.headers, request.cookies)
        return None

    def _log_in(self, request: Request) -> Response:
        """Exchange the token in the URL for a cookie and redirect to the URL without the token."""
        self._guard.check_login(request.query_params["token"])
        rest = urlencode([each for each in request.query_params.multi_items() if each[0] != "token"])
        # Exactly one leading slash: browsers read "//" and "/\\" as the start of another host's URL.
        location = "/" + _raw_path(request.scope).lstrip("/\\") + ("?" + rest if rest else "")
        answer = RedirectResponse(location, 303)
        answer.set_cookie(self._guard.cookie_name, self._guard.session, httponly=True, samesite="strict")
        return answer


def _raw_path(scope: Scope) -> str:
    path: bytes = scope["raw_path"]
    return path.decode("latin-1")


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, RestError):
        return _json(ErrorBody([without_credentials(error.message)]), error.status, error.headers)
    assert isinstance(error, CheckdamError)
    return _json(ErrorBody([without_credentials(str(error))]), status_of(error))


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer an unknown path or an unsupported method; Flink answers both in the same way."""
    query = request.scope["query_string"].decode("latin-1")
    return _json(ErrorBody([f"Not found: {_raw_path(request.scope)}{'?' if query else ''}{query}"]), 404)


def _json(body: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, _JSON)
