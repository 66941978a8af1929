"""The socket on which a slot is asked for live state: messages with their length before them, after a token.

Not Arrow Flight: a question costs a tenth of what it does there, a slot takes Python's lock once for it, and the token
of this socket allows to read live state, but neither to send records nor to control the slot.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from checkdam.errors import StateAccessError

LARGEST_MESSAGE: Final = 256 << 20
_PART: Final = 1 << 18
_CONNECT_SECONDS: Final = 2.0
_LENGTH: Final = struct.Struct(">I")
_UNIX: Final = "unix:"
_TCP: Final = "tcp:"


@dataclass(frozen=True)
class QueryAccess:
    """Where a slot listens for questions, "unix:PATH" or "tcp:HOST:PORT", and the token that only allows to ask."""

    location: str
    token: str = field(repr=False)


class QueryConnection:
    """Asks one slot, one message at a time. Opens the connection with the first; a failed one is not used again.

    Not thread-safe, except for `close`.
    """

    def __init__(self, access: QueryAccess, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for each part of an answer."""
        self._access = access
        self._timeout = timeout
        self._frames: Frames | None = None
        self._is_closed = False

    def ask(self, request: bytes) -> bytes:
        """Send a message and return the answer.

        Raises:
            OSError: the slot is not reachable, has ended, is silent, or does not accept the token.
        """
        try:
            if self._frames is None:
                self._frames = self._open()
                if self._is_closed:  # meanwhile
                    self._frames.close()
            self._frames.send(request)
            answer = self._frames.read()
            if answer is None:
                raise ConnectionError("the slot has closed the connection")
        except BaseException:  # what is left of an answer must not be read as the next one
            self.close()
            raise
        return answer

    def close(self) -> None:
        """Close the connection for good. A thread that waits for an answer gets an OSError."""
        self._is_closed = True
        if self._frames is not None:
            self._frames.close()

    def _open(self) -> Frames:
        if self._is_closed:
            raise ConnectionError("the connection is closed")
        near, place = place_of(self._access.location)
        connection = socket.socket(near, socket.SOCK_STREAM)
        try:
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(place)
            connection.settimeout(self._timeout)
            frames = Frames(connection, LARGEST_MESSAGE)
            frames.send(self._access.token.encode())  # not awaited: a slot that refuses it closes the connection
        except BaseException:
            connection.close()
            raise
        return frames


def place_of(location: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """Return the family and address of a socket.

    Raises:
        StateAccessError: the location is not one of a slot.
    """
    if location.startswith(_UNIX):
        return socket.AF_UNIX, location.removeprefix(_UNIX)
    host, _, port = location.removeprefix(_TCP).rpartition(":")
    if location.startswith(_TCP) and host and port.isdecimal() and len(port) < 6:
        return socket.AF_INET, (host, int(port))
    raise StateAccessError(f"{ascii(location)[:200]} is not the address of a slot")


class Frames:
    """Messages on a connected socket."""

    def __init__(self, connection: socket.socket, largest: int) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self.largest = largest
        self._read = bytearray()

    def send(self, message: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(message)) + message)

    def read(self) -> bytes | None:
        """Return the next message; None if the other side has closed the connection.

        Raises:
            OSError: the connection broke, also in the middle of a message, or the message is too large.
        """
        read, length = self._read, None
        while True:
            if length is None and len(read) >= _LENGTH.size:
                [length] = _LENGTH.unpack_from(read)
                if length > self.largest:
                    raise ConnectionError(f"a message of {length} bytes: at most {self.largest} are allowed")
            if length is not None and len(read) >= _LENGTH.size + length:
                message = bytes(memoryview(read)[_LENGTH.size : _LENGTH.size + length])
                self._read = read[_LENGTH.size + length :]
                return message
            part = self._socket.recv(_PART)
            if not part:
                if read:
                    raise ConnectionError("the connection ended in the middle of a message")
                return None
            read += part

    def close(self) -> None:
        """Close the socket; a thread that waits for it is woken."""
        with suppress(OSError):  # it has ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
