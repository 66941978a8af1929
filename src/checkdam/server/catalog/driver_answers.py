"""What the drivers of jobs in other processes answer: all are asked at once, and none is waited for long."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from checkdam.client.bounded_request import Limits, is_plain, send
from checkdam.clock import Clock, SystemClock
from checkdam.errors import RequestRefusedError, ServerUnreachableError
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.workers import Workers

OWN_JOBS: Final = "/jobs/overview?here=true"
"""The jobs of the asked process alone. Servers that ask each other must not pass the question on."""
PATIENCE: Final = timedelta(seconds=1)
MOST_ASKED: Final = 64
"""How many servers are asked at once."""
_OK = 200
_LIMITS = Limits(PATIENCE, 16 << 20)
_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True)
class Place:
    """A server to ask, and the token it needs."""

    url: str
    token: str | None = None


class DriverAnswers:
    """Asks servers in threads that never keep the process from exiting. Thread-safe.

    A server that does not answer is left alone for `pause`: archives may name many that are gone.
    """

    def __init__(self, pause: timedelta = _PAUSE, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._pause = pause.total_seconds()
        self._workers = Workers("driver-questions", 8)
        self._lock = threading.Lock()
        self._silent_until: dict[str, float] = {}
        self._asked: dict[tuple[str, str], Future[bytes | None]] = {}  # in progress

    def ask(self, places: Iterable[Place], target: str) -> Mapping[str, bytes]:
        """Send GET to every server; return the answers that succeed, by URL."""
        known = {place.url: place for place in places if is_plain(place.url)}
        asked = {url: self._begun(place, target) for url, place in list(known.items())[:MOST_ASKED]}
        futures = {url: future for url, future in asked.items() if future is not None}
        wait(futures.values(), PATIENCE.total_seconds())
        answers = {url: future.result() for url, future in futures.items() if future.done()}
        return {url: content for url, content in answers.items() if content is not None}

    def _begun(self, place: Place, target: str) -> Future[bytes | None] | None:
        key = (place.url, target)
        with self._lock:
            if key in self._asked:
                return self._asked[key]
            if self._clock.monotonic() < self._silent_until.get(place.url, 0.0):
                return None
            future = self._asked[key] = self._workers.submit(self._answer, place, target)
        return future

    def _answer(self, place: Place, target: str) -> bytes | None:
        content = None
        try:
            answer = send(place.url, "GET", target, _LIMITS, token=place.token)
            content = answer.content if answer.status == _OK else None
        except (ServerUnreachableError, RequestRefusedError):
            with self._lock:
                self._silent_until = {
                    url: until for url, until in self._silent_until.items() if until > self._clock.monotonic()
                }
                self._silent_until[place.url] = self._clock.monotonic() + self._pause
        finally:
            with self._lock:
                self._asked.pop((place.url, target), None)
        return content


class LiveStatus(msgspec.Struct, frozen=True, rename="kebab"):
    """How a running job is, as its own driver answers: the part of a job's overview that its record needs."""

    jid: str
    state: JobStatus
    last_modification: int


def live_statuses(answers: DriverAnswers, jobs: Mapping[str, Place]) -> Mapping[str, LiveStatus]:
    """Ask for each job the server that its record names; return the status of those that run, or ended, there."""
    told = answers.ask(jobs.values(), OWN_JOBS)
    found = {url: {each.jid: each for each in _statuses(content)} for url, content in told.items()}
    statuses = {job_id: found.get(place.url, {}).get(job_id) for job_id, place in jobs.items()}
    return {job_id: status for job_id, status in statuses.items() if status is not None}


class _Overviews(msgspec.Struct, frozen=True):
    jobs: list[Any]


def overviews(content: bytes) -> list[dict[str, Any]]:
    """Return the entries of GET /jobs/overview; none if the answer is something else."""
    try:
        entries = msgspec.json.decode(content, type=_Overviews).jobs
    except (ValueError, RecursionError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _statuses(content: bytes) -> list[LiveStatus]:
    found = []
    for entry in overviews(content):
        try:
            found.append(msgspec.convert(entry, LiveStatus))
        except msgspec.ValidationError:
            continue
    return found
