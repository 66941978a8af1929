"""LocalJob: a whole job in one process, with the real master, coordinator, slots and formats, and without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from checkdam import config
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch, Resume
from checkdam.api.streams import DataStream
from checkdam.backends.contract import StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.settings import (
    CheckpointConfig,
    CheckpointRetention,
    JobEnd,
    RestoreMode,
)
from checkdam.clock import Clock
from checkdam.config import Configuration, Origin
from checkdam.connectors.contract import Withdrawn
from checkdam.errors import CheckdamError
from checkdam.graph.operators import OP_STATE
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.attempt import Machinery
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import JobControl, JobHost, WatchedJob
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import CheckpointStats, CheckpointTriggered, EpochStats, JobListener
from checkdam.runtime.restart import FixedDelayRestart, Restart, RestartStrategy
from checkdam.runtime.source_position import SourceStart
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import SlotSnapshot
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state_reader import Savepoint
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_target import LocalTarget
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.mounts import mount
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import Trouble
from checkdam.types.inference import infer_type
from checkdam.types.type_info import type_info

_PATIENCE_SECONDS = 60

JOB_ID = JobId("c0ffee" + "0" * 26)

EVERY_EPOCH = CheckpointConfig(interval=timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION)
"""A checkpoint after every epoch, retained however the job ends."""

T = TypeVar("T")
Build = Callable[[StreamExecutionEnvironment, DataStream[Any]], Any]


@dataclass
class Heard(JobListener):
    """Records all events of a job."""

    printed_lines: list[str] = field(default_factory=list)
    epochs: list[EpochStats] = field(default_factory=list)
    completed: list[CheckpointStats] = field(default_factory=list)
    failed_checkpoints: list[tuple[CheckpointId, str]] = field(default_factory=list)
    skipped: list[tuple[str, CheckdamError]] = field(default_factory=list)
    restored_from: list[tuple[str, Epoch]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    withdrawn: list[tuple[str, Withdrawn]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    restarts: list[CheckdamError] = field(default_factory=list)
    statuses: list[JobStatus] = field(default_factory=list)
    progress: list[str | None] = field(default_factory=list)
    triggered: list[CheckpointTriggered] = field(default_factory=list)
    acknowledged: list[SlotSnapshot] = field(default_factory=list)
    discarded: list[CheckpointId] = field(default_factory=list)
    rescales: list[tuple[int, CheckdamError | None]] = field(default_factory=list)
    left: list[CheckdamError] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    deleted: list[CheckpointId] = field(default_factory=list)
    running: threading.Event = field(default_factory=threading.Event)
    _told: threading.Condition = field(default_factory=threading.Condition)
    unknown: CheckdamError | None = None
    end: JobEnd | None = None
    last_checkpoint: str | None = None

    def restored(self, path: str, epoch: Epoch) -> None:
        self.restored_from.append((path, epoch))

    def checkpoint_skipped(self, path: str, reason: CheckdamError) -> None:
        self.skipped.append((path, reason))

    def checkpoint_dropped(self, path: str) -> None:
        self.dropped.append(path)

    def output_withdrawn(self, uid: OperatorUid, withdrawn: Withdrawn) -> None:
        self.withdrawn.append((uid, withdrawn))

    def output_missing(self, path: str, files: Sequence[str]) -> None:
        self.missing += files

    def epoch_ended(self, stats: EpochStats) -> None:
        self._record(self.epochs, stats)

    def wait_for_epoch(self, epoch: int) -> None:
        """Wait until this epoch has ended, in any attempt."""
        self.wait_until(lambda: any(each.epoch >= epoch for each in self.epochs), f"epoch {epoch} never ended")

    def wait_until(self, holds: Callable[[], object], otherwise: str = "it never happened") -> None:
        """Wait until this holds of the epochs, printed lines, and completed, failed or discarded checkpoints."""
        with self._told:
            if not self._told.wait_for(holds, _PATIENCE_SECONDS):
                raise AssertionError(otherwise)

    def _record(self, events: list[T], *new: T) -> None:
        with self._told:
            events += new
            self._told.notify_all()

    def printed(self, lines: list[str]) -> None:
        self._record(self.printed_lines, *lines)

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        self._record(self.completed, stats)

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        self._record(self.failed_checkpoints, (checkpoint_id, reason))

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        self.restarts.append(failure)

    def status_changed(self, status: JobStatus) -> None:
        self.statuses.append(status)
        if status is JobStatus.RUNNING:
            self.running.set()

    def progressed(self, what: str | None) -> None:
        self.progress.append(what)

    def checkpoint_triggered(self, trigger: CheckpointTriggered) -> None:
        self.triggered.append(trigger)

    def checkpoint_acknowledged(self, snapshot: SlotSnapshot, at: datetime) -> None:
        self.acknowledged.append(snapshot)

    def checkpoints_discarded(self, checkpoint_ids: Sequence[CheckpointId]) -> None:
        self._record(self.discarded, *checkpoint_ids)

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        self.rescales.append((parallelism, failure))

    def last_checkpoint_missed(self, reason: str) -> None:
        self.missed.append(reason)

    def checkpoints_deleted(self, checkpoint_ids: Sequence[CheckpointId], place: str, retention: str) -> None:
        self.deleted += checkpoint_ids

    def left_behind(self, reason: CheckdamError) -> None:
        self.left.append(reason)

    def checkpoints_unknown(self, reason: CheckdamError) -> None:
        self.unknown = reason

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        self.end, self.last_checkpoint = end, last_checkpoint


class LocalJob:
    """One job over scripted epochs: `build(environment, stream)` writes it with the ordinary API.

    Two LocalJobs with the same storage and job id are one job, so the second resumes where the first was killed.
    Records are Python values of one type. The storage may be any double, or None: then the checkpoints go where
    `checkpoints` says (such as "memory://test"), or there are none. A `host` serves the job while it runs, and
    `watchers` returns more listeners. `settings` are those of the command line and the file; the program and these
    arguments take precedence.
    """

    def __init__(
        self,
        build: Build,
        epochs: Iterable[Iterable[Any]],
        storage: Storage | None,
        *,
        parallelism: int = 2,
        checkpoints: CheckpointConfig = EVERY_EPOCH,
        restart: RestartStrategy | None = None,
        troubles: Sequence[Trouble] = (),
        job_id: JobId = JOB_ID,
        record_type: Any = None,
        lockstep: bool = True,
        clock: Clock | None = None,
        joins_batches: bool = True,
        until: Gate | None = None,
        host: JobHost | None = None,
        watchers: Callable[[Job, WatchedJob], Sequence[JobListener]] | None = None,
        name: str = "local job",
        allow_repeated_output: bool = False,
        heartbeat: Heartbeat | None = None,
        cancellation_timeout: timedelta | None = None,
        settings: Configuration | None = None,
        engines: type[LocalEngine] = LocalEngine,
        machinery: Machinery | None = None,
    ) -> None:
        self._target = LocalTarget(
            troubles,
            lockstep=lockstep,
            clock=clock,
            joins_batches=joins_batches,
            until=until,
            change=self._changed,
            engines=engines,
            machinery=machinery,
        )
        self._build = build
        self._epochs = tuple(tuple(epoch) for epoch in epochs)
        if storage is None and checkpoints.storage is not None:
            storage = open_storage(checkpoints.storage)
        self._storage = storage
        self._parallelism = parallelism
        self._place = mount(storage) if storage is not None else None
        self._checkpoints = checkpoints
        self._configuration = settings or Configuration()
        self._restart = restart or FixedDelayRestart(attempts=5, delay=timedelta(0))
        self._job_id = job_id
        self._record_type = record_type
        self._clock = clock
        self._host = host
        self._watchers = watchers or (lambda job, monitor: ())
        self._name = name
        self._allow_repeated_output = allow_repeated_output
        self._heartbeat = heartbeat
        self._cancellation_timeout = cancellation_timeout
        self._thread: threading.Thread | None = None
        self._outcome: BaseException | None = None
        self._master: JobMaster | None = None
        self.heard = Heard()

    @property
    def uri(self) -> str:
        """The URI of the job's checkpoints."""
        return f"{self._place}/{self._job_id}"

    @property
    def control(self) -> JobControl:
        """The control of the job while it runs."""
        assert self._master is not None
        return self._master

    def start(self, **options: Any) -> JobControl:
        """Run in the background, with the options of `run`; return when the job runs or has ended."""

        def work() -> None:
            try:
                self.run(**options)
            except BaseException as failure:  # noqa: BLE001  re-raised by join
                self._outcome = failure
            finally:
                self.heard.running.set()

        self._thread = threading.Thread(target=work, daemon=True, name="local-job")
        self._thread.start()
        if not self.heard.running.wait(_PATIENCE_SECONDS):
            raise AssertionError("the job never ran")
        return self.control

    def join(self) -> Heard:
        """Wait for the end of a started job. Raise the errors of `run`."""
        assert self._thread is not None
        self._thread.join(_PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise AssertionError("the job never ended")
        if self._outcome is not None:
            raise self._outcome
        return self.heard

    def run(
        self,
        *,
        restore: str | None = None,
        allow_non_restored_state: bool = False,
        mode: RestoreMode = RestoreMode.NO_CLAIM,
        take_over: bool = False,
        source_positions: Mapping[OperatorUid, SourceStart] | None = None,
    ) -> Heard:
        """Run to the end, from the newest checkpoint, or from the one named by `restore`.

        `take_over` allows it while another LocalJob runs the same job, which then ends with FencedError.

        Raises:
            DriverKilled: a trouble killed the driver; another LocalJob may resume from storage.
        """
        has_own = restore is None and self._storage is not None and bool(self._store().completed())
        launch = Launch(
            self._configuration.with_value(config.RESTORE_MODE, mode),
            restore_path=restore,
            listener=self.heard,
            resume=Resume.LATEST if has_own else None,
            allow_non_restored_state=allow_non_restored_state,
            take_over=take_over,
            source_positions=source_positions or {},
            host=self._host,
            watchers=self._watchers,
            target=self._target,
        )
        self._built(launch)._prepare(self._name).run(self._known)
        return self.heard

    @contextmanager
    def _known(self, master: JobMaster) -> Iterator[None]:
        """Give the test access to the job while it runs."""
        assert self._target.engine is not None
        self._master = master
        self._target.engine.settle_rest = self._settle_rest
        if isinstance(self._clock, ManualClock):
            self._clock.on_advance = self._look_again
        yield

    def _changed(self, job: Job) -> Job:
        timeout = self._cancellation_timeout
        return replace(
            job,
            job_id=self._job_id,
            logs=None if job.logs is None else job.logs.of_job(self._job_id),
            allow_repeated_output=self._allow_repeated_output or job.allow_repeated_output,
            heartbeat=self._heartbeat or job.heartbeat,
            cancellation_timeout=timeout if timeout is not None else job.cancellation_timeout,
        )

    def _look_again(self) -> None:
        if self._master is not None and self._master._running is not None:
            self._master._running.look_again()

    def _settle_rest(self) -> None:
        if self._master is not None and self._master._running is not None:
            self._master._running.settle()

    def suspend(self, grace: timedelta = timedelta(seconds=_PATIENCE_SECONDS)) -> None:
        """Suspend the job as SIGTERM does."""
        assert self._master is not None
        self._master.suspend(grace)

    def cancel(self) -> None:
        assert self._master is not None
        self._master.cancel()

    def job(self) -> Job:
        """Return the job as it would run from the beginning."""
        return self._changed(self._built(Launch(self._configuration, target=LocalTarget()))._prepare(self._name).job)

    def checkpoint(self) -> CompletedCheckpoint:
        """Return the newest checkpoint on storage."""
        store = self._store()
        return store.load(store.completed()[-1])

    def savepoint(self) -> Savepoint:
        """Open the newest checkpoint on storage with the state reader."""
        return Savepoint.load(f"{self.uri}/chk-{self.checkpoint().checkpoint_id}")

    def state(self, uid: str, of: ValueStateDescriptor[Any] | str | None = None) -> dict[Any, Any]:
        """Return each key's value in the newest checkpoint: of sum, min, max and reduce, or of the given state.

        A state given by name may be of any kind; its values are as the state reader returns them, without your classes.
        """
        if isinstance(of, str):
            named = self.savepoint().keyed_state(uid, of)
            return dict(pair for group in named.groups() for pair in named.by_key(group))
        checkpoint, job = self.checkpoint(), self.job()
        plan = job.plan
        operator = next(op for op in plan.operators if op.uid == uid)
        assert operator.key is not None
        groups = plan.key_groups_of(operator.id)
        owner = StoreOwner(
            uid=OperatorUid(uid),
            subtask=SubtaskIndex(0),
            attempt=Attempt("reader"),
            key_groups=KeyGroupRange(0, groups - 1),
            max_parallelism=groups,
            key_type=operator.key.type,
        )
        handles = [h for entry in checkpoint.operators if entry.uid == uid for h in entry.subtasks.values()]
        assert self._storage is not None
        files = subtree(self._storage, self._job_id)
        store = job.backend.open(owner, handles, files, claim=False)
        kept = operator.output_type if of is None else type_info(of.type)
        spec = StateSpec(OP_STATE if of is None else of.name, StateKind.VALUE, kept)
        try:
            return dict(store.cells(spec).all())
        finally:
            store.close()

    def _built(self, launch: Launch) -> StreamExecutionEnvironment:
        environment = StreamExecutionEnvironment(launch)
        environment.set_parallelism(self._parallelism)
        environment.set_restart_strategy(self._restart)
        environment.enable_checkpointing(self._checkpoints)
        self._build(environment, self._source(environment))
        settings = environment.configuration.settled(config.CHECKPOINT_DIR, self._place, Origin.CODE)
        if self._place is None:
            settings = settings.settled(config.CHECKPOINT_INTERVAL, None, Origin.CODE)
        environment._configuration = settings
        return environment

    def _source(self, environment: StreamExecutionEnvironment) -> DataStream[Any]:
        values = [value for epoch in self._epochs for value in epoch]
        inferred = type_info(self._record_type) if self._record_type else infer_type(values)
        spec = ScriptedSource(self._epochs)
        return environment._source("script", spec, inferred or type_info(Any))

    def _store(self) -> CheckpointStore:
        assert self._storage is not None
        return CheckpointStore(self._storage, self._job_id)
