"""Client of Checkdam's REST server; also works with Flink's where the paths are the same."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from checkdam.errors import RequestRefusedError, ServerUnreachableError, UsageError

DEFAULT_TIMEOUT = timedelta(seconds=30)  # for one response, not for the work behind it

_FIRST_PAUSE = 0.01
_LAST_PAUSE = 2.0
_ATTEMPTS = 4
_BUSY = 503
_INTERNAL = "Internal server error."


class RestClient:
    """Sends requests to one server. Thread-safe: each call opens its own connection.

    Calls raise ServerUnreachableError or RequestRefusedError. Idempotent calls are retried when the connection broke or
    the server was not ready: reads, and work started under an id that the client chose.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url_of(address)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError(
                "the token has characters that an HTTP header cannot contain",
                hint="Check that it was copied completely.",
            )
        self._token = token
        self._timeout = timeout.total_seconds()
        self._pause = pause

    def get(self, path: str, **query: Any) -> Any:
        return self._repeatedly("GET", path, query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send once, without a retry: if the connection breaks, the request may or may not have taken effect."""
        return self._call("POST", path, {}, body)

    def patch(self, path: str, **query: Any) -> Any:
        """Send once, without a retry, as `post`."""
        return self._call("PATCH", path, query)

    def trigger(self, path: str, body: Mapping[str, Any]) -> str:
        """Start asynchronous work and return its trigger id. Retries are safe: the work starts exactly once."""
        given = {key: value for key, value in body.items() if value is not None}
        answer = self._repeatedly("POST", path, {}, {**given, "triggerId": secrets.token_hex(16)})
        return str(answer["request-id"])

    def wait(self, path: str, *, on_poll: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Poll the status of asynchronous work until it ends; call `on_poll` between polls.

        Raises:
            RequestRefusedError: the work has failed, or the server does not know it.
        """
        pause = _FIRST_PAUSE
        while (answer := self.get(path))["status"]["id"] != "COMPLETED":
            on_poll()
            self._pause(pause)
            pause = min(pause * 2, _LAST_PAUSE)
        return result_of(answer)

    def _repeatedly(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None
    ) -> Any:
        pause = _FIRST_PAUSE
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._call(method, path, query, body)
            except ServerUnreachableError as error:
                if isinstance(error.__cause__, ConnectionRefusedError):
                    raise  # no server is listening: a retry does not help
            except RequestRefusedError as error:
                if error.status != _BUSY:
                    raise
            self._pause(pause)
            pause *= 4
        return self._call(method, path, query, body)

    def _call(self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> Any:
        connection = self.connection()
        try:
            return self.ask(connection, method, path + ("?" + urlencode(query) if query else ""), body)
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection to the server. `ask` opens it, and reopens it after it was closed."""
        # Not urllib: it would send requests for this machine to the proxy named by the environment.
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.netloc, timeout=self._timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(parts.netloc, timeout=self._timeout)

    def ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request on this connection and return its response; close the connection if it breaks."""
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json; charset=UTF-8"
        content = msgspec.json.encode(body) if body is not None else None
        try:
            connection.request(method, urlsplit(self.url).path + path, content, headers)
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()  # the rest of this response must not be read as the response to the next request
            raise
        return self._read(status, answer)

    def _unreachable(self, error: Exception) -> ServerUnreachableError:
        return ServerUnreachableError(
            f"no answer from {self.url}: {_reason(error)}",
            hint="Check that the job runs; -m host:port must be the address that it printed.",
        )

    def _read(self, status: int, content: bytes) -> Any:
        try:
            answer = json.loads(content)  # accepts "NaN" and the like
        except ValueError as error:
            raise _refused(status, f"{self.url} is not a Checkdam server: its answer is not JSON") from error
        if status >= 400 or not isinstance(answer, dict | list):
            raise _refused(status, _error_message(answer, status))
        return answer


def result_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return Flink's "operation" of asynchronous work that has ended. Raise RequestRefusedError if it has failed."""
    operation: dict[str, Any] = answer.get("operation") or {}
    cause = operation.get("failure-cause") or operation.get("failureCause")
    if cause is not None:
        raise RequestRefusedError(_cause(cause))
    return operation


def url_of(address: str) -> str:
    """Return the full URL for "host:port" or a URL. Raise UsageError."""
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or ("://" not in address and parts.port is None) or parts.query or parts.fragment:
        raise UsageError(f'"{address}" is not the address of a server', hint="Write host:port, such as localhost:8081.")
    return url.rstrip("/")


def segment(text: str) -> str:
    """Quote a name as one path segment."""
    return quote(text, safe="")


def _refused(status: int, message: str) -> RequestRefusedError:
    hint = "Give the server's token: --token or CHECKDAM_REST_TOKEN; in Python token=…." if status == 401 else None
    error = RequestRefusedError(message if hint is None else message.rstrip("."), hint=hint)
    error.status = status
    return error


def _error_message(answer: Any, status: int) -> str:
    """Return the message of an error in Flink's form. A handled error may have a stack trace after its first line."""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    texts = [str(text).strip() for text in errors] if isinstance(errors, list) else []
    if len(texts) > 1 and texts[0] == _INTERNAL:
        lines = [line for line in texts[1].splitlines() if line.strip() and not line.startswith(("<Exc", "End of"))]
        return f"{texts[0].rstrip('.')}: {lines[-1].strip()}" if lines else texts[0]
    first = [text.splitlines()[0] for text in texts if text]
    return "; ".join(first) or f"the server answered with status {status} and gave no reason"


def _cause(cause: Mapping[str, Any]) -> str:
    """Return the message if the server sends one, else the first line of Flink's stack trace."""
    message = cause.get("message")
    if message:
        return str(message)
    lines = str(cause.get("stack-trace") or "").strip().splitlines()
    return lines[0] if lines else str(cause.get("class") or "it failed, and the server gave no reason")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
