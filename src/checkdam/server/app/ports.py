"""Where a server listens: the ports it may use, tried in order."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable

from checkdam.config import REST_BIND_PORT, REST_PORT, Configuration
from checkdam.errors import CheckdamError, ConfigError

_NEXT = 100  # ports after rest.port that are tried when it is taken
_PART = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


def candidate_ports(configuration: Configuration) -> list[int]:
    """`rest.bind-port` says exactly which; `rest.port` alone means it or the next free one. Raises ConfigError."""
    text = configuration.get(REST_BIND_PORT)
    if text is None:
        first = configuration.get(REST_PORT)
        return [0] if first == 0 else list(range(first, min(first + _NEXT, 65535) + 1))
    ports: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= 65535:
            raise ConfigError(
                f'setting "{REST_BIND_PORT.key}" is "{text}", which is not a list of ports',
                hint='Write for example "8081,8085-8090".',
            )
        ports += range(first, last + 1)
    return ports


def listen(address: str, ports: Iterable[int]) -> socket.socket:
    """A listening socket on the first port that is free. Raises CheckdamError if none is."""
    tried: list[int] = []
    resolved = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(resolved, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4: every client has it
    for port in ports:
        # The protocol is named because asyncio looks for it: without, answers wait 40 ms for an acknowledgement.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # A port that a server before this one has just left may be had at once; one in use may not.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((place[0], port, *place[2:]))
            found.listen(128)
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise CheckdamError(
                    f"the REST server cannot listen on {address}:{port}: {error.strerror}",
                    hint="Check rest.bind-address.",
                ) from error
            tried.append(port)
        else:
            return found
    span = f"{tried[0]} to {tried[-1]}" if len(tried) > 1 else str(tried[0])
    raise CheckdamError(
        f"the REST server finds no free port on {address}: tried {span}",
        hint="Set rest.port to a free one, or to 0 for any.",
    )
