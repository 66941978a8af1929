"""What a client may ask of a job, checked against what the job is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from checkdam.runtime.job_control import JobControl, SavepointFormat
from checkdam.runtime.monitor.job_records import JobStatus
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.failure_cause import UnknownJobError


def control_of(jobs: Jobs, job_id: str) -> JobControl:
    """Raises RestError: what the status call of an operation on such a job tells."""
    job = jobs.running(job_id)
    if job is not None:
        return job.control
    try:
        status = jobs.record(job_id).status
    except RestError:
        raise UnknownJobError(job_id) from None
    raise RestError(409, f"Job {job_id} is not running on this server: its status is {status}")


def cancel(jobs: Jobs, job_id: str) -> None:
    """Raises RestError: 404 for an unknown job, 409 for one that has ended otherwise. Twice is no error."""
    status = jobs.record(job_id).status
    if status is JobStatus.CANCELED:
        return
    if status.is_terminal:
        raise RestError(
            409,
            f"Job cancellation failed because the job has already reached another terminal state ({status}).",
        )
    jobs.require_running(job_id).control.cancel()


def savepoint_then_cancel(control: JobControl, target: str, format: SavepointFormat) -> Future[Any]:
    """The result is the savepoint's place; if it fails the job goes on."""
    return _then(control.trigger_savepoint(target, format), control.cancel)


def _then(first: Future[Any], act: Callable[[], None]) -> Future[Any]:
    result: Future[Any] = Future()

    def ended(done: Future[Any]) -> None:
        try:
            value = done.result()
            act()
        except BaseException as error:  # noqa: BLE001  whoever asks for the result is told
            result.set_exception(error)
        else:
            result.set_result(value)

    first.add_done_callback(ended)
    return result
