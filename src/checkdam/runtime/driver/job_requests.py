"""Requests to a running job, from question to answer. The attempt serves them between two epochs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import CheckdamError, JobControlError
from checkdam.ids import CheckpointId
from checkdam.runtime.answers import new_answer, refuse
from checkdam.runtime.job import Job
from checkdam.state.snapshot_handles import SavepointFormat


@dataclass(frozen=True, eq=False)
class CheckpointRequest:
    full: bool
    asked: float | None = None  # time on the monotonic clock; None: when it is served
    answer: Future[CheckpointId] = field(default_factory=new_answer)


@dataclass(frozen=True, eq=False)
class SavepointRequest:
    target: str
    format: SavepointFormat
    answer: Future[str] = field(default_factory=new_answer)


@dataclass(frozen=True, eq=False)
class StopRequest:
    target: str
    format: SavepointFormat
    drain: bool
    answer: Future[str] = field(default_factory=new_answer)


@dataclass(frozen=True, eq=False)
class RescaleRequest:
    """A request for another parallelism; `job` is the job as it will be."""

    job: Job
    answer: Future[None] = field(default_factory=new_answer)


@dataclass(frozen=True, eq=False)
class SuspendRequest:
    """A request for a last checkpoint and the end of the attempt. The job ends anyway: the answer is never read."""

    answer: Future[None] = field(default_factory=new_answer)


Request = CheckpointRequest | SavepointRequest | StopRequest | RescaleRequest | SuspendRequest


class EndRequested(Exception):  # noqa: N818  not an error, but requested
    """The job was cancelled or suspended."""

    def __init__(self, end: JobEnd) -> None:
        super().__init__(f"the job was {end.value}")
        self.end = end


class Rescaled(Exception):  # noqa: N818  not an error, but requested
    """The attempt has ended with a checkpoint, for the job to resume at another parallelism."""

    def __init__(self, request: RescaleRequest) -> None:
        super().__init__(f"the job is being rescaled to parallelism {request.job.parallelism}")
        self.request = request


class Requests:
    """The requests to one attempt that have not begun. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._last: StopRequest | RescaleRequest | None = None  # the request that will end the attempt, or has
        self._closed: CheckdamError | None = None

    @property
    def is_asked_to_end(self) -> bool:
        """Whether a stop or a rescale is waiting, or has ended the attempt."""
        return self._last is not None

    def add(self, request: Request) -> None:
        """Queue a request; a suspension goes first.

        A request that cannot be served is refused at once: an attempt ends only once, so a second stop or rescale has
        to wait.
        """
        with self._lock:
            reason = self._closed or self._conflict(request)
            if reason is None:
                if isinstance(request, StopRequest | RescaleRequest):
                    self._last = request
                self._waiting.insert(0 if isinstance(request, SuspendRequest) else len(self._waiting), request)
        if reason is not None:
            refuse(request.answer, reason)

    def _conflict(self, request: Request) -> CheckdamError | None:
        if self._last is None or not isinstance(request, StopRequest | RescaleRequest):
            return None
        what = "being stopped with a savepoint" if isinstance(self._last, StopRequest) else "being rescaled"
        return JobControlError(f"the job is {what} already", hint="Wait for it, and see what it led to.")

    def waiting(self) -> list[Request]:
        """Return the requests that have not begun, in the order in which they are served."""
        with self._lock:
            return list(self._waiting)

    def first(self, can_begin: Callable[[Request], bool]) -> Request | None:
        """Return the oldest request that can begin now. One that ends the attempt does not overtake earlier ones."""
        with self._lock:
            for place, request in enumerate(self._waiting):
                if isinstance(request, StopRequest | RescaleRequest) and place > 0:
                    return None
                if can_begin(request):
                    return request
            return None

    def take(self, request: Request) -> None:
        with self._lock:
            self._waiting.remove(request)

    def failed(self, request: Request, reason: CheckdamError) -> None:
        """Refuse a request that was not done, so that it may be made again."""
        with self._lock:
            if self._last is request:
                self._last = None
            if request in self._waiting:
                self._waiting.remove(request)
        refuse(request.answer, reason)

    def close(self, reason: CheckdamError) -> None:
        """Refuse all remaining and later requests for this reason."""
        with self._lock:
            self._closed = reason
            waiting, self._waiting = self._waiting, []
        for request in waiting:
            refuse(request.answer, reason)
