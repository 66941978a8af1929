"""Forwards requests about a job that runs in another process of this user to that job's own server.

A request arrives here after Host, token, origin, path, query and body have been checked. It is sent on to a server of
the registry, with that server's token, and without any other header of the client that could carry one; the answer
comes back without cookies.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from checkdam.client.bounded_request import Answer, Limits, send
from checkdam.errors import RequestRefusedError, ServerUnreachableError
from checkdam.runtime.workers import Workers
from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.app.http_errors import RestError
from checkdam.server.app.security import GUARDED
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.catalog.registry import Server

MOST_AT_ONCE: Final = 16
"""How many requests wait for one driver. More are refused, so that a driver that hangs does not block the others."""
MOST_BYTES: Final = 64 << 20
"""Larger answers are refused: they pass through this process's memory."""
_PATIENCE = timedelta(seconds=30)
_THREADS = 64
_MARK = "checkdam-forwarded"
"""A request with this header is not forwarded again."""
_PASSED_ON = ("accept", "content-type", "range")
_PASSED_BACK = ("content-type", "content-disposition", "content-range", "accept-ranges")


class Forwarding:
    """Answers requests about jobs and slots of other processes. Returns None for all others."""

    def __init__(self, jobs: Jobs, *, is_guarded: bool) -> None:
        """Forward to the servers of `jobs`; `is_guarded`: clients of this server need a token."""
        self._jobs = jobs
        self._marks = {_MARK: "1"} | ({GUARDED: "1"} if is_guarded else {})
        self._waiting = Counter[str]()
        self._lock = threading.Lock()
        self._workers = Workers("forwarding", _THREADS)

    async def __call__(self, endpoint: Endpoint, call: ApiCall, request: Request, body: bytes) -> Response | None:
        if _MARK in request.headers or not self._may_be_elsewhere(call):
            return None
        answer = self._workers.submit(self._answer, endpoint, call, request, body)
        return await asyncio.shield(asyncio.wrap_future(answer))

    def _answer(self, endpoint: Endpoint, call: ApiCall, request: Request, body: bytes) -> Response | None:
        server = self._server(call)
        if server is None:
            return None
        try:
            with self._one_more(server.url):
                return _response(self._sent(server, request, body if endpoint.body is not None else None))
        except ServerUnreachableError as error:
            self._jobs.driver_gone()
            if _is_gone(error, endpoint):
                return None  # the archive knows how the job ended
            raise RestError(503, f"The driver of this job does not answer: {error.message}") from error
        except RequestRefusedError as error:
            raise RestError(502, f"The driver of this job cannot be shown: {error.message}") from error

    def _may_be_elsewhere(self, call: ApiCall) -> bool:
        """Return False without waiting for anything: requests about jobs of this process are not delayed."""
        if "jobid" in call.path:
            return self._jobs.running(call.job_id) is None
        return "taskmanagerid" in call.path

    def _server(self, call: ApiCall) -> Server | None:
        if "jobid" in call.path:
            return self._jobs.server_elsewhere(call.job_id)
        wanted = call.path["taskmanagerid"]
        return next((server for server, slot in self._jobs.slots_elsewhere() if slot.get("id") == wanted), None)

    def _sent(self, server: Server, request: Request, body: bytes | None) -> Answer:
        passed = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        return send(
            server.url,
            request.method,
            _target(request),
            Limits(_PATIENCE, MOST_BYTES),
            token=server.token,
            headers=passed | self._marks,
            body=body,
        )

    @contextmanager
    def _one_more(self, url: str) -> Iterator[None]:
        with self._lock:
            if self._waiting[url] >= MOST_AT_ONCE:
                raise RestError(503, f"The driver of this job does not answer: {MOST_AT_ONCE} requests wait for {url}.")
            self._waiting[url] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[url] -= 1


def _is_gone(error: ServerUnreachableError, endpoint: Endpoint) -> bool:
    """Return whether the driver has ended. A write may have taken effect, unless nothing was listening."""
    if isinstance(error.__cause__, ConnectionRefusedError):
        return True
    return not endpoint.is_write and not isinstance(error.__cause__, TimeoutError)


def _target(request: Request) -> str:
    """Return path and query as they came, without a token, which was meant for this server."""
    path = request.scope["raw_path"].decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    if "token" in request.query_params:
        query = urlencode([pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "token"])
    return f"{path}?{query}" if query else path


def _response(answer: Answer) -> Response:
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    return Response(answer.content, answer.status, headers)
