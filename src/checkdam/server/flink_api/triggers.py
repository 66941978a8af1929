"""Operations that a client can trigger, and their status: checkpoint, savepoint, stop, cancel, disposal, rescale.

Flink spells one idea in three ways, `target-directory`, `targetDirectory` and `savepoint-path`, and failures in two.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.config import (
    REST_AUTH_TOKEN,
    REST_AUTH_TOKEN_FILE,
    SAVEPOINT_ALLOWED_DIRS,
    SAVEPOINT_DIR,
    Configuration,
)
from checkdam.runtime.job_control import JobControl, SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.masking import MASKED, without_credentials
from checkdam.runtime.workers import settle
from checkdam.server.app.endpoint import ApiCall, Endpoint, Nothing, Positive, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.app.security import GUARDED
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.operations import (
    FailureCause,
    Operation,
    OperationKind,
    Operations,
    UnknownJobError,
    failure_cause,
    in_thread,
)
from checkdam.server.flink_api.savepoint_places import SavepointPlaces

_MAX_PARALLELISM = 32768
_NO_JOB = ""  # a disposal belongs to no job
Info = TypeVar("Info")


class TriggerResponse(msgspec.Struct, frozen=True, rename="kebab"):
    request_id: str


class CheckpointTriggerRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] | None = None
    trigger_id: str | None = None


class SavepointTriggerRequestBody(msgspec.Struct, frozen=True):
    target_directory: str | None = msgspec.field(default=None, name="target-directory")
    cancel_job: bool | None = msgspec.field(default=None, name="cancel-job")
    format_type: SavepointFormat | None = msgspec.field(default=None, name="formatType")
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


class StopWithSavepointRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    target_directory: str | None = None
    drain: bool | None = None
    format_type: SavepointFormat | None = None
    trigger_id: str | None = None


class SavepointDisposalRequest(msgspec.Struct, frozen=True, rename="kebab"):
    savepoint_path: str


class QueueStatus(msgspec.Struct, frozen=True):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class CheckpointInfo(msgspec.Struct, frozen=True, rename="camel"):
    checkpoint_id: int | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = UNSET


class SavepointInfo(msgspec.Struct, frozen=True, rename="kebab"):
    location: str | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = UNSET


class OperationInfo(msgspec.Struct, frozen=True, rename="kebab"):
    failure_cause: FailureCause | UnsetType = UNSET


class OperationStatus(msgspec.Struct, Generic[Info], frozen=True):
    status: QueueStatus
    operation: Info | None


_IN_PROGRESS, _COMPLETED = QueueStatus("IN_PROGRESS"), QueueStatus("COMPLETED")


@dataclass(frozen=True)
class Triggers:
    jobs: Jobs
    operations: Operations
    configuration: Configuration
    dispose: Callable[[str], None]

    def checkpoint(self, call: ApiCall) -> TriggerResponse:
        body: CheckpointTriggerRequestBody = call.body
        if body.checkpoint_type == "INCREMENTAL":
            raise RestError(400, "CheckpointType INCREMENTAL cannot be requested: use CONFIGURED or FULL.")
        full = body.checkpoint_type == "FULL"
        return self._start(
            OperationKind.CHECKPOINT,
            call.job_id,
            body.trigger_id,
            lambda: control_of(self.jobs, call.job_id).trigger_checkpoint(full=full),
        )

    def savepoint(self, call: ApiCall) -> TriggerResponse:
        body: SavepointTriggerRequestBody = call.body
        target = self._target(call, body.target_directory, "target-directory")
        format = body.format_type or SavepointFormat.CANONICAL

        def begin() -> Future[Any]:
            control = control_of(self.jobs, call.job_id)
            if body.cancel_job:
                return savepoint_then_cancel(control, target, format)
            return control.trigger_savepoint(target, format)

        return self._start(OperationKind.SAVEPOINT, call.job_id, body.trigger_id, begin)

    def stop(self, call: ApiCall) -> TriggerResponse:
        body: StopWithSavepointRequestBody = call.body
        target = self._target(call, body.target_directory, "targetDirectory")
        return self._start(
            OperationKind.SAVEPOINT,
            call.job_id,
            body.trigger_id,
            lambda: control_of(self.jobs, call.job_id).stop_with_savepoint(
                target, body.format_type or SavepointFormat.CANONICAL, drain=bool(body.drain)
            ),
        )

    def disposal(self, call: ApiCall) -> TriggerResponse:
        path = self._whole_path(call.body.savepoint_path)
        return self._start(OperationKind.DISPOSAL, _NO_JOB, None, lambda: in_thread(lambda: self._dispose(path)))

    def _dispose(self, path: str) -> None:
        try:
            self.dispose(path)
        finally:  # it is listed no more
            self.jobs.savepoint_files.expire()

    def rescaling(self, call: ApiCall) -> TriggerResponse:
        parallelism = call.query["parallelism"]
        if parallelism > _MAX_PARALLELISM:
            raise RestError(400, f"Parallelism {parallelism} is above {_MAX_PARALLELISM}.")
        return self._start(
            OperationKind.RESCALING,
            call.job_id,
            None,
            lambda: control_of(self.jobs, call.job_id).rescale(parallelism),
        )

    def cancel(self, call: ApiCall) -> Nothing:
        if call.query.get("mode") == "stop":
            raise _stop_has_moved()
        cancel(self.jobs, call.job_id)
        return Nothing()

    def yarn_stop(self, _: ApiCall) -> Nothing:
        """Refuse, as Flink does: a client that wants a graceful stop must not get a cancellation."""
        raise _stop_has_moved()

    def status(self, kind: OperationKind, info: type[Any], result: str | None, call: ApiCall) -> OperationStatus[Any]:
        """Return the status of an operation. Its result becomes the field `result` of `info`."""
        operation = self._find(kind, call)
        if not operation.was_fetched:  # not `done`: it may have ended after `find`, and would not be marked
            return OperationStatus(_IN_PROGRESS, None)
        failure = operation.failure
        if failure is not None:
            return OperationStatus(_COMPLETED, info(failure_cause=failure_cause(failure)))
        return OperationStatus(_COMPLETED, info() if result is None else info(**{result: operation.future.result()}))

    def _start(
        self, kind: OperationKind, job_id: str, trigger_id: str | None, begin: Callable[[], Future[Any]]
    ) -> TriggerResponse:
        return TriggerResponse(self.operations.start(kind, job_id, trigger_id, begin))

    def _find(self, kind: OperationKind, call: ApiCall) -> Operation:
        job_id, trigger = call.path.get("jobid", _NO_JOB), str(call.path["triggerid"])
        operation = self.operations.find(kind, job_id, trigger)
        if operation is None:
            of_job = f" for job {job_id}" if job_id else ""
            raise RestError(404, f"There is no {kind} operation with triggerId={trigger}{of_job}.")
        return operation

    def _target(self, call: ApiCall, given: str | None, name: str) -> str:
        """Return the target directory; the only check made before an operation is accepted."""
        places = self._places(call)
        if given:
            return places.resolve(given)
        if not places.directory:
            raise RestError(400, f"Config key [{SAVEPOINT_DIR.key}] is not set. Property [{name}] must be provided.")
        return places.directory

    def _whole_path(self, path: str) -> str:
        """Return the path with its credentials: a client may name a savepoint as shown, without them."""
        if MASKED not in path:
            return path
        known = {s.path for record in self.jobs.records() for s in record.savepoints if s.path is not None}
        return next((each for each in known if without_credentials(each) == path), path)

    def _places(self, call: ApiCall) -> SavepointPlaces:
        """Return where savepoints of the job may go: its own settings win over those of the server."""
        directory, allowed = map(self.configuration.get, (SAVEPOINT_DIR, SAVEPOINT_ALLOWED_DIRS))
        with suppress(RestError):  # an unknown job is reported by the status call
            settings = self.jobs.record(call.job_id).settings
            directory = settings.savepoint_directory or directory
            allowed = settings.savepoint_allowed_dirs or allowed
        has_token = GUARDED in call.headers or any(map(self.configuration.get, (REST_AUTH_TOKEN, REST_AUTH_TOKEN_FILE)))
        listed = allowed.split(",") if allowed else []
        return SavepointPlaces(directory, listed, anywhere=allowed is None and not has_token)


def control_of(jobs: Jobs, job_id: str) -> JobControl:
    """Return the job's control. Raise the RestError that the status call of such an operation reports."""
    job = jobs.running(job_id)
    try:
        status = jobs.record(job_id).status
    except RestError:
        raise UnknownJobError(job_id) from None
    if job is not None and not status.has_ended:  # an ended job is known as running until its driver has returned
        return job.control
    raise RestError(409, f"Job {job_id} is not running on this server: its status is {status}")


def cancel(jobs: Jobs, job_id: str) -> None:
    """Cancel the job. Raise RestError: 404 if it is unknown, 409 if it has ended otherwise. Idempotent."""
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
    """Take a savepoint, then cancel; the result is the savepoint's path. If the savepoint fails, the job continues."""
    result: Future[Any] = Future()

    def then_cancel(taken: Future[str]) -> str:
        path = taken.result()
        control.cancel()
        return path

    control.trigger_savepoint(target, format).add_done_callback(
        lambda taken: settle(result, lambda: then_cancel(taken))
    )
    return result


def _stop_has_moved() -> RestError:
    return RestError(
        308,
        'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" '
        'instead. For a graceful shutdown, please use "jobs/:jobid/stop" instead.',
    )


def routes(
    jobs: Jobs, operations: Operations, configuration: Configuration, dispose: Callable[[str], None]
) -> list[Endpoint]:
    triggers = Triggers(jobs, operations, configuration, dispose)
    job, disposal = "/jobs/{jobid}", "/savepoint-disposal"
    rescaling = job + "/rescaling"
    mode = Query("mode", description="What to do", default="cancel", choices=("cancel", "stop"))
    parallelism = Query("parallelism", Positive, "The new number of slots", required=True)

    def trigger(
        method: str, path: str, handler: Callable[[ApiCall], Any], summary: str, body: Any = None, **more: Any
    ) -> Endpoint:
        given = {"status": 202, **more}
        return Endpoint(method, path, handler, summary, response=TriggerResponse, body=body, errors=(403,), **given)

    def status(path: str, kind: OperationKind, info: Any, result: str | None = None) -> Endpoint:
        handler = partial(triggers.status, kind, info, result)
        answer = OperationStatus[info]
        return Endpoint(
            "GET", path + "/{triggerid}", handler, f"The status of a {kind}", response=answer, errors=(404,)
        )

    def cancelling(method: str, path: str, handler: Callable[[ApiCall], Any], **more: Any) -> Endpoint:
        return Endpoint(
            method, path, handler, "Cancel the job", response=Nothing, status=202, errors=(308, 403, 404, 409), **more
        )

    return [
        trigger("POST", job + "/checkpoints", triggers.checkpoint, "Take a checkpoint", CheckpointTriggerRequestBody),
        status(job + "/checkpoints", OperationKind.CHECKPOINT, CheckpointInfo, "checkpoint_id"),
        trigger("POST", job + "/savepoints", triggers.savepoint, "Write a savepoint", SavepointTriggerRequestBody),
        trigger("POST", job + "/stop", triggers.stop, "Stop with a savepoint", StopWithSavepointRequestBody),
        status(job + "/savepoints", OperationKind.SAVEPOINT, SavepointInfo, "location"),  # also of a stop
        trigger("POST", disposal, triggers.disposal, "Delete a savepoint", SavepointDisposalRequest, status=200),
        status(disposal, OperationKind.DISPOSAL, OperationInfo),
        trigger("PATCH", rescaling, triggers.rescaling, "Change the parallelism", query=(parallelism,), status=200),
        status(rescaling, OperationKind.RESCALING, OperationInfo),
        cancelling("PATCH", job, triggers.cancel, query=(mode,)),
        # For Flink's web page, and for proxies that only allow GET: it is a write nevertheless.
        cancelling("GET", job + "/yarn-cancel", triggers.cancel, writes=True),
        cancelling("GET", job + "/yarn-stop", triggers.yarn_stop, writes=True),
    ]
