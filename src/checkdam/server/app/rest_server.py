"""The REST server of a process: serves the page and the jobs running in this process, in its own thread."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

import uvicorn
from starlette.applications import Starlette

from checkdam.checkpoint.savepoints import dispose as dispose_savepoint
from checkdam.clock import Clock
from checkdam.config import (
    REST_ADDRESS,
    REST_ASYNC_STORE_DURATION,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_MAX_CONTENT_LENGTH,
    REST_PORT,
    WEB_ALLOW_ORIGIN,
    Configuration,
)
from checkdam.errors import CheckdamError, ConfigError
from checkdam.ids import JobId
from checkdam.runtime.job_control import RunningJob
from checkdam.server.all_endpoints import endpoints
from checkdam.server.app.application import application
from checkdam.server.app.forwarding import Forwarding
from checkdam.server.app.security import Guard, check_binding, rest_token
from checkdam.server.catalog.known_jobs import Archive, Jobs
from checkdam.server.catalog.neighbours import Neighbours
from checkdam.server.flink_api.operations import Operations
from checkdam.server.page.page_files import is_page

_LOG = logging.getLogger(__name__)
_START_TIMEOUT = 30.0  # seconds
_STOP_TIMEOUT = 5
_VIEWERS_TIMEOUT = 5.0  # a page asks every 3 s by default
_NEXT_PORTS = 100  # how many ports after rest.port to try when it is taken
_PORTS = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


class RestServer:
    """A JobHost. It affects a job only through explicit client requests."""

    def __init__(
        self,
        configuration: Configuration,
        archive: Archive | None = None,
        *,
        neighbours: Neighbours | None = None,
        dispose: Callable[[str], None] = dispose_savepoint,
        clock: Clock | None = None,
    ) -> None:
        self.jobs = Jobs(archive, neighbours)
        self.operations = Operations(configuration.get(REST_ASYNC_STORE_DURATION), clock)
        self.token = rest_token(configuration)
        self._configuration = configuration
        self._dispose = dispose
        self._port = 0
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, and return once requests are answered. Raise ConfigError, or CheckdamError if no port is free."""
        address = self._configuration.get(REST_BIND_ADDRESS)
        check_binding(address, self.token)
        listening = listen(address, candidate_ports(self._configuration))
        self._port = int(listening.getsockname()[1])
        server = _Server(
            uvicorn.Config(
                self._app(),
                lifespan="off",
                log_config=None,
                log_level="critical",  # malformed HTTP and clients cut off at shutdown are not worth a log line
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=_STOP_TIMEOUT,
            )
        )
        self._uvicorn = server
        # From here on the server owns the socket and closes it when it ends.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listening])), name="checkdam-rest", daemon=True
        )
        self._thread.start()
        if not server.is_ready.wait(_START_TIMEOUT):
            raise CheckdamError(
                f"the REST server on port {self._port} has not started", hint="Set rest.port to another."
            )
        _LOG.info("rest: serving on %s", self.url)

    @property
    def port(self) -> int:
        """The port it listens on; 0 before it has started."""
        return self._port

    @property
    def url(self) -> str:
        """The URL for clients on this machine, or on others if rest.address is set."""
        bound = self._configuration.get(REST_BIND_ADDRESS)
        name = self._configuration.get(REST_ADDRESS) or ("localhost" if bound in ("0.0.0.0", "::") else bound)
        return f"http://[{name}]:{self._port}" if ":" in name else f"http://{name}:{self._port}"

    @property
    def urls_for_others(self) -> list[str]:
        """The URLs for clients on other machines; none unless the server listens on all addresses."""
        if self._configuration.get(REST_BIND_ADDRESS) not in ("0.0.0.0", "::") or self._configuration.get(REST_ADDRESS):
            return []
        names = [socket.gethostname().lower(), *own_addresses()]
        return [f"http://[{name}]:{self._port}" if ":" in name else f"http://{name}:{self._port}" for name in names]

    def job_started(self, job: RunningJob) -> None:
        self.jobs.started(job)

    def job_ended(self, job_id: JobId) -> None:
        self.jobs.ended(job_id)

    def close(self, grace: timedelta = timedelta(seconds=10)) -> None:
        """Stop serving, after waiting at most `grace` for clients to fetch the results they are waiting for.

        Pages that show a job are waited for too, but shorter: until they have asked once more and know how it ended.
        """
        thread = self._thread
        if self._uvicorn is None or thread is None:
            return
        self.operations.wait_until_fetched(grace.total_seconds())
        self.jobs.viewers.wait_until_told(min(grace.total_seconds(), _VIEWERS_TIMEOUT))
        self._uvicorn.should_exit = True
        thread.join(_STOP_TIMEOUT + 5)
        self._uvicorn = self._thread = None

    def __enter__(self) -> RestServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _app(self) -> Starlette:
        configuration = self._configuration
        return application(
            endpoints(self.jobs, self.operations, configuration, self._dispose),
            Guard.of(configuration.get(REST_BIND_ADDRESS), self._port, self.token, configuration.get(REST_ADDRESS)),
            is_open=is_page,
            max_body=configuration.get(REST_MAX_CONTENT_LENGTH),
            allow_origin=configuration.get(WEB_ALLOW_ORIGIN),
            forward=Forwarding(self.jobs, is_guarded=self.token is not None)
            if self.jobs.neighbours is not None
            else None,
        )


class _Server(uvicorn.Server):
    """A uvicorn server that signals when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_ready.set()


def own_addresses() -> list[str]:
    """Return the IPv4 addresses under which other machines can reach this one, as far as they are known."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # chooses the route, and so the address; a datagram socket sends nothing yet
        found.append(str(probe.getsockname()[0]))
    with suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return [each for each in dict.fromkeys(found) if not ipaddress.ip_address(each).is_loopback]


def candidate_ports(configuration: Configuration) -> list[int]:
    """Return the ports to try: exactly `rest.bind-port`, or `rest.port` and the ports after it. Raise ConfigError."""
    text = configuration.get(REST_BIND_PORT)
    if text is None:
        first = configuration.get(REST_PORT)
        return [0] if first == 0 else list(range(first, min(first + _NEXT_PORTS, 65535) + 1))
    ports: list[int] = []
    for part in text.split(","):
        match = _PORTS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= 65535:
            raise ConfigError(
                f'setting "{REST_BIND_PORT.key}" is "{text}", which is not a list of ports',
                hint='Write for example "8081,8085-8090".',
            )
        ports += range(first, last + 1)
    return ports


def listen(address: str, ports: Iterable[int]) -> socket.socket:
    """Open a listening socket on the first free port. Raise CheckdamError if none is free."""
    tried: list[int] = []
    resolved = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(resolved, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, for all clients
    for port in ports:
        # asyncio sets TCP_NODELAY only if the protocol is named; without it, responses wait 40 ms for an ACK.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Reuse a port that a previous server has just released; this does not allow taking one that is in use.
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
        f"there is no free port for the REST server on {address}: tried {span}",
        hint="Set rest.port to a free one, or to 0 for any.",
    )
