"""The ASGI application: checks who asks, finds the endpoint, runs its handler in a thread, answers in Flink's form."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.types import Receive, Scope, Send

from checkdam.errors import CheckdamError
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import Answer, Endpoint, Raw
from checkdam.server.app.http_call import read_call
from checkdam.server.app.http_errors import ErrorBody, RestError, status_of, unhandled
from checkdam.server.app.routing import Router
from checkdam.server.app.security import Guard

_LOG = logging.getLogger(__name__)

JSON = "application/json; charset=UTF-8"
_BODY_TIMEOUT = 30.0  # seconds until a body must have arrived
_THREADS = 32  # handlers at work at once; the rest wait
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # no other page may put this one's buttons under somebody's mouse
    "Referrer-Policy": "same-origin",
}


class App:
    """Serves endpoints. Whatever a handler does, the caller gets an answer and the process goes on."""

    def __init__(
        self, endpoints: Iterable[Endpoint], guard: Guard, *, max_body: int = 16 << 20, allow_origin: str | None = None
    ) -> None:
        self._router = Router(endpoints)
        self._guard = guard
        self._max_body = max_body
        self._allow_origin = allow_origin
        self._threads: CapacityLimiter | None = None  # belongs to the event loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._answer(scope, receive)
        headers = {
            "Content-Type": answer.media_type,
            "Content-Length": str(len(answer.content)),
            "Cache-Control": "no-store",
            **_ALWAYS,
            **answer.headers,
        }
        if self._allow_origin is not None and scope["method"] in ("GET", "HEAD"):
            headers["Access-Control-Allow-Origin"] = self._allow_origin
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.content})

    async def _answer(self, scope: Scope, receive: Receive) -> Raw:
        try:
            return await self._serve(scope, receive)
        except RestError as error:
            return _json(ErrorBody([without_credentials(error.message)]), error.status, error.headers)
        except CheckdamError as error:
            return _json(ErrorBody([without_credentials(str(error))]), status_of(error))
        except Exception as error:  # noqa: BLE001  a fault of one answer is told to who asked; the job must not hear of it
            _LOG.exception("rest: %s %s failed", scope["method"], scope["path"])
            return _json(unhandled(error), 500)

    async def _serve(self, scope: Scope, receive: Receive) -> Raw:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        self._guard.check_host(headers)
        is_shown = self._guard.token is not None and "token=" in query and "token" in parse_qs(query)
        if is_shown and scope["method"] == "GET":
            return self._let_in(path, query)
        found = self._router.find(scope["method"], path)
        if found is None or not found[0].is_open:
            self._guard.check_token(headers)
        if found is None:
            raise RestError(404, f"Not found: {path}{'?' if query else ''}{query}")
        endpoint, parameters = found
        if endpoint.is_write:
            self._guard.check_origin(headers)
        body = await self._read(headers, receive) if endpoint.body is not None else b""
        call = read_call(endpoint, parameters, query, body, headers)
        if self._threads is None:
            self._threads = CapacityLimiter(_THREADS)
        if endpoint.is_awaited:
            result = await endpoint.handler(call)
        else:
            result = await to_thread.run_sync(endpoint.handler, call, limiter=self._threads)
        if isinstance(result, Raw):
            return result
        if isinstance(result, Answer):
            return _json(result.body, result.status, result.headers)
        return _json(result, endpoint.status)

    def _let_in(self, path: str, query: str) -> Raw:
        """A browser shows the token once, in the address; from then on it has a cookie and the address is clean."""
        given = parse_qs(query)
        cookie = self._guard.cookie_for(given.pop("token", [""])[0])
        if cookie is None:
            raise RestError(401, "Unauthorized: that is not this server's token.", {"WWW-Authenticate": "Bearer"})
        rest = urlencode(given, doseq=True)
        # One slash: a path that begins with two names another machine, and browsers read "\\" as one.
        location = "/" + path.lstrip("/\\") + ("?" + rest if rest else "")
        return Raw(b"", "text/plain", {"Location": location, "Set-Cookie": cookie}, 303)

    async def _read(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        too_large = RestError(413, f"The body of the request is larger than {self._max_body} bytes.")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RestError(400, "The request ended early.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_body:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RestError(408, f"The body did not arrive within {_BODY_TIMEOUT:.0f} s.") from None


def _json(body: Any, status: int, headers: Mapping[str, str] | None = None) -> Raw:
    return Raw(msgspec.json.encode(body), JSON, headers or {}, status)
