"""One HTTP request whose answer is bounded in size and time: for servers that ask other servers."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from checkdam.errors import RequestRefusedError, ServerUnreachableError

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


@dataclass(frozen=True)
class Limits:
    """`patience` bounds the whole exchange, and so also each wait for a part of it."""

    patience: timedelta
    most_bytes: int


def send(
    url: str,
    method: str,
    target: str,
    limits: Limits,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send one request to a server and return its answer, whatever its status.

    `url` is scheme, host and port; `target` is the path with its query, sent as it is.

    Raises:
        ServerUnreachableError: the server does not answer, or not in time.
        RequestRefusedError: the answer is larger than the limit.
    """
    deadline = time.monotonic() + limits.patience.total_seconds()
    given = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token is not None else {})}
    try:
        with closing(_connection(url, limits.patience.total_seconds())) as connection:
            connection.connect()
            with _ended_at(deadline, connection.sock):
                connection.request(method, target, body, given)
                with connection.getresponse() as response:  # closing the connection would not close it
                    content = _content(url, response, limits.most_bytes)
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: no host can have this name
        raise ServerUnreachableError(f"no answer from {url}: {error or type(error).__name__}") from error
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)


def is_plain(url: str) -> bool:
    """Return whether a URL names a server alone, as Checkdam records it: http, a host and a port, nothing else."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.port) and url == f"http://{parts.netloc}" and "@" not in url
    except ValueError:
        return False


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    if not is_plain(url):
        raise http.client.InvalidURL(f'"{url}" is not the address of a server')
    # Not urllib: it would send requests for this machine to the proxy named by the environment.
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)


@contextmanager
def _ended_at(deadline: float, connection: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline: a timeout of the socket begins anew with every byte that arrives.

    What was read until then may look whole, so it is always a TimeoutError.
    """
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        with suppress(OSError):  # it has ended by itself
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError("timeout") from error
        raise
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError("timeout")


def _content(url: str, response: http.client.HTTPResponse, most: int) -> bytes:
    content = bytearray()
    while part := response.read1(_CHUNK):
        content += part
        if len(content) > most:
            raise RequestRefusedError(f"the answer of {url} is larger than {most} bytes")
    if response.length:  # `read1` ends silently where the connection does
        raise http.client.IncompleteRead(bytes(content), response.length)
    return bytes(content)
