"""The REST server of a process: serves the jobs that run in it, from a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType

import uvicorn

from checkdam.checkpoint.savepoints import dispose as dispose_savepoint
from checkdam.clock import Clock
from checkdam.config import (
    REST_ADDRESS,
    REST_ASYNC_STORE_DURATION,
    REST_BIND_ADDRESS,
    REST_MAX_CONTENT_LENGTH,
    WEB_ALLOW_ORIGIN,
    Configuration,
)
from checkdam.errors import CheckdamError
from checkdam.ids import JobId
from checkdam.runtime.job_control import RunningJob
from checkdam.server.all_endpoints import endpoints
from checkdam.server.app.application import App
from checkdam.server.app.endpoint import Endpoint
from checkdam.server.app.ports import candidate_ports, listen
from checkdam.server.app.security import Guard, check_binding, rest_token
from checkdam.server.catalog.known_jobs import Archive, Jobs
from checkdam.server.flink_api.operations import Operations

_LOG = logging.getLogger(__name__)
_START_TIMEOUT = 30.0  # seconds
_STOP_TIMEOUT = 5


class RestServer:
    """A JobHost. Nothing that happens here reaches a job but what a client asked for."""

    def __init__(
        self,
        configuration: Configuration,
        archive: Archive | None = None,
        extra: Sequence[Endpoint] = (),
        *,
        dispose: Callable[[str], None] = dispose_savepoint,
        clock: Clock | None = None,
    ) -> None:
        self.jobs = Jobs(archive)
        self.operations = Operations(configuration.get(REST_ASYNC_STORE_DURATION), clock)
        self.token = rest_token(configuration)
        self._configuration = configuration
        self._extra = extra
        self._dispose = dispose
        self._port = 0
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, and return when requests are answered. Raises ConfigError, or CheckdamError if no port is free."""
        address = self._configuration.get(REST_BIND_ADDRESS)
        check_binding(address, self.token)
        listening = listen(address, candidate_ports(self._configuration))
        self._port = int(listening.getsockname()[1])
        server = _Server(
            uvicorn.Config(
                self._app(),
                lifespan="off",
                log_config=None,
                log_level="critical",  # bytes that are no HTTP, or a client cut off at the end: no news of the job
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=_STOP_TIMEOUT,
            )
        )
        self._uvicorn = server
        # The socket is the server's from here on: it closes it when it ends.
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
        """The one it listens on; 0 before it has started."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients on this machine, or with rest.address on others, find it."""
        bound = self._configuration.get(REST_BIND_ADDRESS)
        name = self._configuration.get(REST_ADDRESS) or ("localhost" if bound in ("0.0.0.0", "::") else bound)
        return f"http://[{name}]:{self._port}" if ":" in name else f"http://{name}:{self._port}"

    def job_started(self, job: RunningJob) -> None:
        self.jobs.started(job)

    def job_ended(self, job_id: JobId) -> None:
        self.jobs.ended(job_id)

    def close(self, grace: timedelta = timedelta(seconds=10)) -> None:
        """Stop serving. First wait, at most `grace`, until clients have had the results they are waiting for."""
        thread = self._thread
        if self._uvicorn is None or thread is None:
            return
        self.operations.wait_until_fetched(grace.total_seconds())
        self._uvicorn.should_exit = True
        thread.join(_STOP_TIMEOUT + 5)
        self._uvicorn = self._thread = None

    def __enter__(self) -> RestServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _app(self) -> App:
        configuration = self._configuration
        return App(
            endpoints(self.jobs, self.operations, configuration, self._dispose, self._extra),
            Guard.of(configuration.get(REST_BIND_ADDRESS), self._port, self.token, configuration.get(REST_ADDRESS)),
            max_body=configuration.get(REST_MAX_CONTENT_LENGTH),
            allow_origin=configuration.get(WEB_ALLOW_ORIGIN),
        )


class _Server(uvicorn.Server):
    """Says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_ready.set()
