"""The slot's end of the socket for live state: answers questions in threads of their own, beside the records."""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from checkdam.errors import CheckdamError
from checkdam.runtime.live_state.query_connection import LARGEST_MESSAGE, Frames, QueryAccess, place_of

_log = logging.getLogger(__name__)

_LONGEST_TOKEN: Final = 256
_TOKEN_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1
_MOST_CONNECTIONS: Final = 512


class QueryServer:
    """Listens for questions until `close`. A client must send the token first, and can only ask.

    A connection is served by one thread, which takes Python's lock once a message: with more of them each would wait
    for the others.
    """

    def __init__(self, access: QueryAccess, answer: Callable[[bytes], bytes]) -> None:
        """`answer` is called in many threads. A CheckdamError of it ends the connection."""
        self._token = access.token.encode()
        self._answer = answer
        self._lock = threading.Lock()
        self._open: set[Frames] = set()
        self._closed = threading.Event()
        family, place = place_of(access.location)
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind(place)
        self._listener.listen()
        self.port = 0 if family == socket.AF_UNIX else int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True, name="queries").start()

    def close(self) -> None:
        """End all connections; each message in progress may still be answered."""
        with self._lock:
            self._closed.set()
            left = list(self._open)
        with suppress(OSError):  # not every system wakes `accept` with an error
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for frames in left:
            frames.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.warning("live state: a connection could not be accepted: %s", error)
                self._closed.wait(_PAUSE_SECONDS)  # such as for a file descriptor
                continue
            connection.settimeout(_TOKEN_SECONDS)
            frames = Frames(connection, _LONGEST_TOKEN)
            with self._lock:
                is_taken = not self._closed.is_set() and len(self._open) < _MOST_CONNECTIONS
                if is_taken:
                    self._open.add(frames)
            if not is_taken:
                frames.close()
                continue
            threading.Thread(target=self._serve, args=(connection, frames), daemon=True, name="query").start()

    def _serve(self, connection: socket.socket, frames: Frames) -> None:
        try:
            given = frames.read()
            if given is None or not hmac.compare_digest(given, self._token):
                return  # before anything it sends is looked at
            frames.largest = LARGEST_MESSAGE
            connection.settimeout(None)
            while not self._closed.is_set() and (asked := frames.read()) is not None:
                frames.send(self._answer(asked))
        except OSError:
            return  # the other side is gone, or too slow to give its token
        except (CheckdamError, msgspec.DecodeError) as error:
            _log.warning("live state: a question ended its connection: %s", error)
        finally:
            with self._lock:
                self._open.discard(frames)
            frames.close()
