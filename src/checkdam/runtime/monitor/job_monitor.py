"""Listens to a job and provides its current record at any moment."""

from __future__ import annotations

import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from checkdam.checkpoint.settings import JobEnd
from checkdam.clock import Clock, SystemClock, to_milliseconds
from checkdam.config import WEB_CHECKPOINTS_HISTORY, WEB_EXCEPTION_HISTORY, Configuration
from checkdam.errors import CheckdamError
from checkdam.graph.levels import JobPlan
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.job import Job
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.checkpoint_history import CheckpointHistory
from checkdam.runtime.monitor.failure_records import exception_record
from checkdam.runtime.monitor.figure_history import FigureHistory, FigureSample
from checkdam.runtime.monitor.job_description import job_settings, operator_records, rescaled_settings
from checkdam.runtime.monitor.job_events import CheckpointStats, CheckpointTriggered, EpochStats, JobListener
from checkdam.runtime.monitor.job_records import (
    NEVER,
    EndingRecord,
    EpochRecord,
    ExceptionRecord,
    JobEventKind,
    JobEventRecord,
    JobRecord,
    RescaleRecord,
    RestartRecord,
    RestoreRecord,
    SlotRecord,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.monitor.operator_figures import Figures
from checkdam.runtime.monitor.resume_point import ResumePoint
from checkdam.runtime.monitor.time_series import TimeSeries
from checkdam.runtime.restart import Restart
from checkdam.state.snapshot_handles import SlotSnapshot

MOST_EPOCHS: Final = 100
MOST_RESCALES: Final = 20
MOST_EVENTS: Final = 200
_LONGEST_EVENT = 300  # characters
_REFRESH_SECONDS = 0.5
_CHECKPOINT = re.compile(r"chk-(\d+)")
_ENDS = {
    JobEnd.FINISHED: JobStatus.FINISHED,
    JobEnd.CANCELLED: JobStatus.CANCELED,
    JobEnd.FAILED: JobStatus.FAILED,
    JobEnd.SUSPENDED: JobStatus.SUSPENDED,
}

_replace = msgspec.structs.replace


class JobMonitor(JobListener):
    """The record of one job. Thread-safe; reading it costs nothing while nothing has happened.

    Counts of records, bytes and busy time are of the current attempt, as in Flink: after a failover records are read
    again, and after a rescale subtasks are different ones. Epochs, checkpoints and failures are kept across attempts.
    """

    def __init__(self, job: Job, clock: Clock | None = None, *, configuration: Configuration | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._job = job
        self._address: str | None = None
        self._settings = job_settings(job, configuration)
        known = configuration or Configuration()
        self._plan = job.plan
        self._operators = operator_records(job.plan)
        self._checkpoints = CheckpointHistory(self._operators, known.get(WEB_CHECKPOINTS_HISTORY))
        self._figures = Figures(self._plan, self._operators, self._clock.monotonic())
        self._exceptions: deque[ExceptionRecord] = deque(maxlen=known.get(WEB_EXCEPTION_HISTORY))
        self._rescales: deque[RescaleRecord] = deque(maxlen=MOST_RESCALES)
        self._epochs: deque[EpochRecord] = deque(maxlen=MOST_EPOCHS)
        self._series = TimeSeries()
        self._events: deque[JobEventRecord] = deque(maxlen=MOST_EVENTS)
        self._history = FigureHistory()
        self._slots: tuple[SlotRecord, ...] = ()
        self._resume: Callable[[str | None, int | None], str] | None = None
        self._resume_point = ResumePoint()
        self._ending: EndingRecord | None = None
        self._restored: RestoreRecord | None = None
        self._is_restoring = False
        self._epoch, self._restarts = NEVER, 0
        self._last_epoch = EpochRecord(NEVER, NEVER, 0.0, 0, keys=0, entries=0)
        self._restart: RestartRecord | None = None
        self._progress: str | None = None
        self._status = JobStatus.INITIALIZING
        self._timestamps = {JobStatus.INITIALIZING: self._now()}
        self._spent: dict[JobStatus, int] = {}
        self._record: JobRecord | None = None  # None: out of date
        self._recorded_at = 0.0

    def record(self) -> JobRecord:
        with self._lock:
            now = self._clock.monotonic()
            is_old = now - self._recorded_at >= _REFRESH_SECONDS and self._figures.is_moving(now)
            if self._record is None or is_old:
                self._record, self._recorded_at = self._made(now), now
                if self._status is JobStatus.RUNNING and self._history.is_due(self._now()):
                    self._history.add(self._now(), self._record.figures)
            return self._record

    def figure_history(self) -> tuple[FigureSample, ...]:
        with self._lock:
            return self._history.samples()

    def serve_at(self, address: str) -> None:
        """Set the address that serves the job from now on."""
        with self._lock:
            self._address = address
            self._record = None

    def resumed_by(self, command: Callable[[str | None, int | None], str] | None) -> None:
        """Set what gives the command that resumes the job from a path (None: its newest), at a parallelism."""
        with self._lock:
            self._resume = command

    def _made(self, now: float) -> JobRecord:
        return JobRecord(
            id=self._job.job_id,
            name=self._job.name,
            status=self._status,
            timestamps=dict(self._timestamps),
            parallelism=self._plan.slots,
            max_parallelism=self._plan.max_parallelism,
            settings=self._settings,
            operators=self._operators,
            figures=self._figures.records(self._checkpoints.state_bytes, now),
            slots=self._slots,
            checkpoints=self._checkpoints.records(),
            checkpoint_counts=self._checkpoints.counts,
            savepoints=self._checkpoints.savepoints(),
            restored=self._restored,
            exceptions=tuple(reversed(self._exceptions)),
            rescales=tuple(reversed(self._rescales)),
            epochs=tuple(self._epochs),
            epoch=self._epoch,
            keys=self._last_epoch.keys,
            entries=self._last_epoch.entries,
            is_estimated=self._last_epoch.is_estimated,
            restarts=self._restarts,
            restart=self._restart,
            checkpoint_trouble=self._checkpoints.trouble,
            progress=self._progress,
            logs=self._job.logs.directory if self._job.logs is not None else None,
            address=self._address,
            spent=dict(self._spent),
            series=self._series.points(),
            events=tuple(self._events),
            ending=self._ending,
        )

    def _now(self) -> int:
        return to_milliseconds(self._clock.now())

    # -- the life of the job ------------------------------------------------------------------------------------

    def job_started(self, job_id: JobId, name: str, slots: int) -> None:
        with self._lock:
            self._record = None

    def status_changed(self, status: JobStatus) -> None:
        with self._lock:
            self._enter(status)

    def progressed(self, what: str | None) -> None:
        with self._lock:
            self._record, self._progress = None, what

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        """Start the records of a new attempt."""
        with self._lock:
            self._record, self._slots = None, tuple(slots)
            self._series.attempt_started(self._now())
            self._figures = Figures(self._plan, self._operators, self._clock.monotonic())

    def restored(self, path: str, epoch: Epoch) -> None:
        name = path.rstrip("/").rpartition("/")[2]
        checkpoint = _CHECKPOINT.fullmatch(name)
        with self._lock:
            self._record = None
            self._checkpoints.restored()
            self._restored = RestoreRecord(
                checkpoint_id=int(checkpoint[1]) if checkpoint else self._id_of_savepoint(path),
                restored_at=self._now(),
                path=path,
                is_savepoint=checkpoint is None,
            )
            self._is_restoring = True
            self._epoch = epoch

    def epoch_ended(self, stats: EpochStats) -> None:
        with self._lock:
            self._record = None
            self._epoch, held = stats.epoch, stats.held
            keys = NEVER if held.keys is None else held.keys
            ended = (stats.epoch, self._now(), stats.seconds * 1000, stats.records)
            epoch = self._last_epoch = EpochRecord(*ended, keys, held.entries, not held.is_exact)
            self._epochs.append(epoch)
            self._series.epoch_ended(epoch)
            self._figures.epoch_ended(stats, self._clock.monotonic(), epoch.ended_at)
            if self._history.is_due(epoch.ended_at):
                state_bytes = self._checkpoints.state_bytes
                self._history.add(epoch.ended_at, self._figures.records(state_bytes, self._clock.monotonic()))
            memory: dict[int, int] = {report.subtask: report.memory for report in stats.reports}
            self._slots = tuple(_replace(slot, memory=memory.get(slot.subtask, slot.memory)) for slot in self._slots)

    def sources_seen(self, pending: Mapping[int, int]) -> None:
        with self._lock:
            self._record = None
            self._figures.sources_seen(pending)

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        with self._lock:
            noted = self._note(failure)
            self._resume_point.restarting()
            self._mark(JobEventKind.FAILOVER, f"restarted after a failure: {failure.message}")
            self._restarts += 1
            self._restart = RestartRecord(
                attempt=restart.attempt,
                most=restart.most,
                reason=noted.message.partition("\n")[0],
                failed_at=noted.at,
                next_at=noted.at + round(restart.delay.total_seconds() * 1000),
            )

    def failed(self, failure: CheckdamError) -> None:
        with self._lock:
            self._note(failure)

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        with self._lock:
            self._record, self._progress = None, None
            self._checkpoints.abandoned("the job has ended", self._now())
            self._ending = self._left(end, last_checkpoint)
            if not self._status.has_ended:
                self._enter(_ENDS[end])

    def drained(self, savepoint: str) -> None:
        with self._lock:
            self._resume_point.drained()

    def _left(self, end: JobEnd, checkpoint: str | None) -> EndingRecord:
        point, savepoint = self._resume_point, self._resume_point.savepoint(end)
        is_drained = point.is_drained and savepoint is not None
        path = savepoint or checkpoint
        resume = None
        if self._resume is not None and path is not None and not is_drained:
            resume = without_credentials(self._resume(None if end is JobEnd.SUSPENDED else path, point.parallelism))
        shown = [None if each is None else without_credentials(each) for each in (savepoint, checkpoint)]
        return EndingRecord(shown[0], shown[1], is_drained, resume)

    def _note(self, failure: CheckdamError) -> ExceptionRecord:
        self._record = None
        noted = exception_record(failure, self._now(), self._slots)
        self._exceptions.append(noted)
        self._checkpoints.abandoned("the job fails over", self._now())
        return noted

    def _mark(self, kind: JobEventKind, text: str) -> None:
        text = without_credentials(text)
        short = text if len(text) <= _LONGEST_EVENT else f"{text[:_LONGEST_EVENT]}…"
        self._events.append(JobEventRecord(self._now(), kind, short))

    def _enter(self, status: JobStatus) -> None:
        """Enter a status. Times use the clock that is displayed, so that the history adds up."""
        now = self._now()
        self._record = None
        if status is self._status:
            return
        stayed = max(now - self._timestamps[self._status], 0)
        self._spent[self._status] = self._spent.get(self._status, 0) + stayed
        self._status, self._timestamps[status] = status, now
        if status is JobStatus.RUNNING and self._is_restoring and self._restored is not None:
            self._restored = _replace(self._restored, duration=float(now - self._restored.restored_at))
            self._is_restoring = False

    # -- checkpoints --------------------------------------------------------------------------------------------

    def checkpoint_triggered(self, trigger: CheckpointTriggered) -> None:
        with self._lock:
            self._record = None
            at = self._now() if trigger.at is None else to_milliseconds(trigger.at)
            self._checkpoints.triggered(trigger, at)

    def checkpoint_acknowledged(self, snapshot: SlotSnapshot, at: datetime) -> None:
        with self._lock:
            self._record = None
            self._checkpoints.acknowledged(snapshot, to_milliseconds(at))

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        with self._lock:
            self._record = None
            completed = self._checkpoints.completed(stats, self._now())
            self._resume_point.checkpoint_completed(stats)
            self._series.checkpoint_completed(completed)
            if completed.kind.is_savepoint:
                self._mark(JobEventKind.SAVEPOINT, f"savepoint {completed.id}: {completed.path}")

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        with self._lock:
            self._record = None
            self._checkpoints.failed(checkpoint_id, reason, self._now())
            self._mark(JobEventKind.CHECKPOINT_FAILED, f"checkpoint {checkpoint_id} failed: {reason}")

    def checkpoints_discarded(self, checkpoint_ids: Sequence[CheckpointId]) -> None:
        with self._lock:
            self._record = None
            self._checkpoints.discarded(checkpoint_ids)

    def checkpoints_deleted(self, checkpoint_ids: Sequence[CheckpointId], place: str, retention: str) -> None:
        self.checkpoints_discarded(checkpoint_ids)

    def _id_of_savepoint(self, path: str) -> int:
        """Return the id of a savepoint of this driver; that of any other is unknown."""
        own = (each.id for each in self._checkpoints.savepoints() if each.path == path)
        return next(own, NEVER)

    # -- another parallelism ------------------------------------------------------------------------------------

    def rescaling(self, parallelism: int) -> None:
        with self._lock:
            self._record = None
            before = self._plan.slots
            self._rescales.append(RescaleRecord(secrets.token_hex(16), self._now(), before, parallelism))

    def replanned(self, plan: JobPlan) -> None:
        with self._lock:
            self._record = None
            self._plan, self._operators = plan, operator_records(plan)
            self._checkpoints.replanned(self._operators)
            self._figures = Figures(plan, self._operators, self._clock.monotonic())

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        with self._lock:
            self._record = None
            self._resume_point.rescaled(parallelism, failure)
            if failure is None:
                self._settings = rescaled_settings(self._settings, parallelism)
                self._mark(JobEventKind.RESCALE, f"rescaled to parallelism {parallelism}")
            else:
                self._mark(JobEventKind.RESCALE, f"not rescaled to parallelism {parallelism}: {failure.message}")
            if self._rescales and self._rescales[-1].ended_at == NEVER:
                ended = _replace(
                    self._rescales[-1], ended_at=self._now(), failure=str(failure) if failure is not None else None
                )
                self._rescales[-1] = ended
