"""The running jobs in this user's other processes on this machine, found by the registry of servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from checkdam.client.bounded_request import is_plain
from checkdam.clock import Clock, SystemClock
from checkdam.server.catalog import registry
from checkdam.server.catalog.driver_answers import OWN_JOBS, DriverAnswers, Place, overviews
from checkdam.server.catalog.registry import Server

_LIFETIME = 1.0  # seconds for which the registry and an answer are used again: pages poll several paths at once
_PAUSE = timedelta(seconds=2)


class Neighbours:
    """The other servers of this user that run jobs. Thread-safe.

    Who can call this server must not reach jobs that ask for another token, so a job's own server ignores all servers
    but those with the same `token`, or without one if it has none. One that `shows_all` is there for all jobs: with a
    token it ignores none.

    If a driver does not answer in time, its last answer is used for as long as its process lives.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        token: str | None = None,
        shows_all: bool = False,
        on_gone: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self.shows_all = shows_all
        self.on_gone = on_gone  # called when a server has ended, so that what its jobs left is looked for
        self.own_url = ""
        self._directory = directory
        self._token = token
        self._clock = clock or SystemClock()
        self._answers = DriverAnswers(_PAUSE, clock)
        self._lock = threading.Lock()
        self._servers: Sequence[Server] = ()
        self._listed_until = 0.0
        self._last: dict[tuple[str, str], bytes] = {}  # the latest answer by URL and path
        self._asked_until: dict[str, float] = {}  # by path
        self._asking: dict[str, threading.Lock] = {}  # by path

    def servers(self) -> Sequence[Server]:
        """Return the servers that run jobs and that this one may show, latest change last."""
        return [server for server in self._listed() if self._may_show(server)]

    def guarded(self) -> Sequence[Server]:
        """Return the servers that are ignored because of their token."""
        return [server for server in self._listed() if not self._may_show(server)]

    def server_of(self, job_id: str) -> Server | None:
        """Return the server that runs the job; of several, the one that started it last."""
        return next((server for server in reversed(self.servers()) if job_id in server.jobs), None)

    def overviews(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the jobs that run, or ended, in the other processes, by id, each as in GET /jobs/overview."""
        found: dict[str, Mapping[str, Any]] = {}
        answers = self.ask(OWN_JOBS)
        for server in self.servers():
            entries = overviews(answers.get(server.url, b""))
            found |= {entry["jid"]: entry for entry in entries if entry.get("jid") in server.jobs}
        return found

    def slots(self) -> Sequence[tuple[Server, Mapping[str, Any]]]:
        """Return the slots of the other processes' jobs, each as in GET /taskmanagers."""
        answers = self.ask("/taskmanagers")
        return [(server, slot) for server in self.servers() for slot in _slots(answers.get(server.url, b""))]

    def ask(self, target: str) -> Mapping[str, bytes]:
        """Send GET to every server; return the answers by URL. Concurrent calls for the same path ask once."""
        with self._lock:
            asking = self._asking.setdefault(target, threading.Lock())
        with asking:
            return self._asked(target)

    def _asked(self, target: str) -> Mapping[str, bytes]:
        servers = self.servers()
        if self._clock.monotonic() >= self._asked_until.get(target, 0.0):
            answers = self._answers.ask([Place(server.url, server.token) for server in servers], target)
            self._asked_until[target] = self._clock.monotonic() + _LIFETIME
            with self._lock:
                self._last |= {(url, target): content for url, content in answers.items()}
            if len(answers) < len(servers):
                servers = self._still_there()
        urls = {server.url for server in servers}
        with self._lock:
            self._last = {key: content for key, content in self._last.items() if key[0] in urls}
            return {url: content for (url, path), content in self._last.items() if path == target}

    def _still_there(self) -> Sequence[Server]:
        """Read the registry anew: a server that does not answer may have ended since it was read."""
        with self._lock:
            self._listed_until = 0.0
        return self.servers()

    def _listed(self) -> Sequence[Server]:
        now = self._clock.monotonic()
        is_gone = False
        with self._lock:
            if now >= self._listed_until:
                found = registry.servers(self._directory)
                before, self._servers = (
                    self._servers,
                    [each for each in found if each.jobs and each.url != self.own_url and is_plain(each.url)],
                )
                is_gone = bool({each.url for each in before} - {each.url for each in self._servers})
                self._listed_until = now + _LIFETIME
            listed = self._servers
        if is_gone:
            self.on_gone()
        return listed

    def _may_show(self, server: Server) -> bool:
        return server.token == self._token or (self.shows_all and self._token is not None)


class _TaskManagers(msgspec.Struct, frozen=True):
    taskmanagers: list[Any]


def _slots(content: bytes) -> list[dict[str, Any]]:
    try:
        found = msgspec.json.decode(content, type=_TaskManagers).taskmanagers
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)]
