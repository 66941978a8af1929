"""The background jobs of this process, and their suspension when it ends."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta

from checkdam.api.execution import JobExecution
from checkdam.api.job_handle import JobHandle
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.job_result import JobResult
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.workers import settle

_lock = threading.Lock()
_running: set[JobHandle] = set()
_is_registered = False


class JobWatch(JobListener):
    """Calls callbacks that wait for a job to run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] | None = []  # None: the job has run, or has ended before it ran

    def status_changed(self, status: JobStatus) -> None:
        if status is JobStatus.RUNNING or status.has_ended:
            self.stop_waiting()

    def once_running(self, call: Callable[[], None]) -> None:
        """Call the callback when the job first runs or has ended; immediately if it already has."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(call)
                return
        call()

    def stop_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
        for call in waiting:
            call()


def start_job(execution: JobExecution, watch: JobWatch, grace: timedelta) -> JobHandle:
    """Start a job in its own thread. Raise the error that prevents its start."""
    _register()
    begun: Future[JobMaster] = Future()
    done: Future[JobResult] = Future()

    @contextmanager
    def known(master: JobMaster) -> Iterator[None]:
        begun.set_result(master)
        yield

    here = contextvars.copy_context()

    def work() -> None:
        settle(done, lambda: here.run(execution.run, known))
        watch.stop_waiting()
        if not begun.done():
            begun.set_exception(done.exception())

    threading.Thread(target=work, daemon=True, name="job-in-background").start()
    handle = JobHandle(execution, watch, begun.result(), done, grace)
    with _lock:
        _running.add(handle)
    done.add_done_callback(lambda _: _forget(handle))
    return handle


def _forget(handle: JobHandle) -> None:
    with _lock:
        _running.discard(handle)


def suspend_running_jobs() -> None:
    """Suspend all background jobs of this process at once, and wait until they have ended."""
    with _lock:
        running = list(_running)
    threads = [threading.Thread(target=handle._suspend, name="suspend-job") for handle in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _register() -> None:
    """Register the suspension of background jobs at program exit.

    `atexit` is too late: by then executors accept no more work, and a checkpoint needs them. This hook of `threading`
    runs before that, and before Python waits for threads.
    """
    global _is_registered
    with _lock:
        if not _is_registered:
            threading._register_atexit(suspend_running_jobs)  # type: ignore[attr-defined]  # not in typeshed
            _is_registered = True
