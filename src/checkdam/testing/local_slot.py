"""One slot of a LocalJob: the real slot code, in a process that a test can kill."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
import pyarrow as pa

from checkdam.connectors.file_sink import WITHDRAWN
from checkdam.graph.metrics import MetricValue
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.driver.publish_history import PUBLISHED
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.slot.control_messages import pack_answer, unpack_answer
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.slot_watch import Beat, SlotWatch
from checkdam.runtime.slot.task import SlotTask
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot
from checkdam.testing.mounts import watched_by
from checkdam.testing.trouble import DriverKilled, Life, Moment, Step

if TYPE_CHECKING:
    from checkdam.testing.local_engine import LocalEngine

T = TypeVar("T")

_SAVEPOINT_FILE = re.compile(r"(.*/)?savepoint-[0-9a-f]+-[0-9a-f]+/")
_CHECKPOINT_FILE = re.compile(r".*/chk-(\d+)(/_metadata)?")


class LocalSlot:
    """A SlotTask isolated as in its own process: it has its own copy of everything, and can be killed."""

    def __init__(self, engine: LocalEngine, subtask: SubtaskIndex) -> None:
        self._engine = engine
        self._subtask = subtask
        self._life = _SlotLife(engine, subtask)
        self._ended = threading.Event()
        self._stirred = threading.Event()  # set when the slot ended, or a source function wants an epoch
        self._lock = threading.RLock()
        self._watch = SlotWatch(engine.heartbeat.interval, engine.clock)
        self._task: SlotTask | None = None
        self.on_records: Callable[[], None] = lambda: None  # called when a source function has new records
        self._last_level: tuple[int, Epoch, list[pa.RecordBatch]] | None = None

    @property
    def subtask(self) -> SubtaskIndex:
        return self._subtask

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def host(self) -> str:
        return os.uname().nodename

    @property
    def location(self) -> str:
        return f"in process {os.getpid()}"

    @property
    def query_access(self) -> QueryAccess | None:
        return None

    def function_of(self, operator: int) -> Any:
        """Return the slot's own copy of a function, for inspection."""
        return self._alive()._operators[operator].operator.function

    def metrics_of(self, operator: int) -> Mapping[str, MetricValue]:
        """Return the metrics of a function."""
        return self._alive()._operators[operator].metrics.read()

    def configure(self, setup: SlotSetup) -> None:
        self._life.check()
        with self._watch.working("configure"), watched_by(self._life):
            self._task = SlotTask(cloudpickle.loads(cloudpickle.dumps(setup)), clock=self._engine.clock)
            self._task.records_signal.on_count = self._stir
        self._life.check()

    def run_level(self, level: int, epoch: Epoch, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self._at(Step.BEFORE_LEVEL, epoch, level)
        self._last_level = (level, epoch, batches)
        try:
            with self._lock, self._watch.working(f"level {level} of epoch {epoch}"):
                produced = self._once(level, epoch, batches)
        finally:
            self._life.check()  # whatever a killed slot raises, it is its death that the driver notices
        self._at(Step.AFTER_LEVEL, epoch, level)
        self._life.check()
        return produced

    def repeat(self) -> None:
        """Run the last level again, with the same records."""
        assert self._last_level is not None
        self._once(*self._last_level)

    def _once(self, level: int, epoch: Epoch, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        run = self._alive().begin_level(level, epoch)
        return [*(each for batch in batches for each in run.process(batch)), *run.finish()]

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport:
        self._at(Step.EPOCH_DONE, epoch)
        with self._lock, self._watch.working("end_epoch"):
            report = _sent("end_epoch", self._alive().end_epoch(epoch, commit=commit))
        self._at(Step.EPOCH_ENDED, epoch)
        self._life.check()
        return report

    def end_of_input(self) -> None:
        with self._lock:
            self._alive().end_of_input()

    def begin_snapshot(
        self,
        checkpoint_id: CheckpointId,
        epoch: Epoch,
        *,
        savepoint: SavepointTarget | None = None,
        full: bool = False,
    ) -> float:
        self._life.last_checkpoint = checkpoint_id
        self._engine.begun(checkpoint_id)
        self._at(Step.BEFORE_SNAPSHOT, checkpoint_id)
        # A savepoint opens its storage here.
        with self._lock, self._watch.working("begin_snapshot"), watched_by(self._life):
            seconds = self._alive().begin_snapshot(checkpoint_id, epoch, savepoint=savepoint, full=full)
        self._at(Step.BEFORE_WRITING, checkpoint_id)
        self._life.check()
        return seconds

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        task = self._alive()
        try:
            snapshot = _sent("snapshot", task.snapshot(checkpoint_id))
        finally:
            self._life.check()
        self._at(Step.SNAPSHOT_TAKEN, checkpoint_id)
        self._life.check()
        return snapshot

    def completed(self, checkpoint_id: CheckpointId) -> None:
        self._at(Step.BEFORE_COMPLETED, checkpoint_id)
        self._alive().completed(checkpoint_id)
        self._at(Step.AFTER_COMPLETED, checkpoint_id)
        self._engine.settled(checkpoint_id)
        self._life.check()

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        self._at(Step.BEFORE_ABORTED, checkpoint_id)
        self._alive().aborted(checkpoint_id)
        self._at(Step.AFTER_ABORTED, checkpoint_id)
        self._engine.settled(checkpoint_id)

    def released(self, checkpoint_id: CheckpointId) -> None:
        self._alive().released(checkpoint_id)
        self._engine.settled(checkpoint_id)

    def query(self, request: bytes) -> bytes:
        answers = self._alive().queries.answer(request, self._lock)
        self._life.check()
        return answers

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        while not self._ended.is_set():
            self._stirred.wait(self._engine.heartbeat.interval_seconds)
            self._stirred.clear()
            if not self._ended.is_set():
                on_beat(self._watch.beat(0 if self._task is None else self._task.records_signal.count))
        self._life.check()

    def close(self) -> None:
        try:
            with self._lock:
                self._alive().close()
        finally:
            self._end()

    def kill(self) -> None:
        if not self._ended.is_set():
            self._life.end()
            self._end()
            if self._task is not None:
                self._task.interrupt()

    def _stir(self) -> None:
        self._stirred.set()
        self.on_records()

    def _end(self) -> None:
        self._ended.set()
        self._stirred.set()

    def disconnect(self) -> None:
        """Do nothing: there is no connection."""

    def _alive(self) -> SlotTask:
        self._life.check()
        assert self._task is not None
        return self._task

    def _at(self, step: Step, number: int, level: int | None = None) -> None:
        self._engine.at(Moment(step, number, self._subtask, level))


def _sent(call: str, answer: T) -> T:
    """Pickle and unpickle an answer as a slot in another process would, to find what cannot be sent."""
    again: T = unpack_answer(call, pack_answer(answer))
    return again


class _SlotLife(Life):
    """Watches a slot's storage operations."""

    def __init__(self, engine: LocalEngine, subtask: SubtaskIndex) -> None:
        super().__init__(f"slot {subtask}")
        self._engine = engine
        self._subtask = subtask
        self.last_checkpoint = CheckpointId(0)

    def before(self, operation: str, path: str) -> None:
        self.check()
        if self.last_checkpoint and operation in ("write", "open_output", "output", "close", "rename"):
            step = Step.WRITING if "/shared/" in path else Step.WRITING_OUTPUT
            step = Step.WRITING_SAVEPOINT if _SAVEPOINT_FILE.match(path) else step
            self._engine.at(Moment(step, self.last_checkpoint, self._subtask))
            self.check()


class DriverLife(Life):
    """Watches the driver's storage operations, and makes them fail once the driver is killed."""

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__("the driver")
        self._engine = engine
        self._last_checkpoint = 0
        self._withdrawn = 0  # number of files

    def check(self) -> None:
        if self.is_dead:
            raise DriverKilled

    def before(self, operation: str, path: str) -> None:
        self._pass(operation, path, Step.BEFORE_METADATA, Step.COMMITTING, Step.BEFORE_DISCARD)

    def after(self, operation: str, path: str) -> None:
        self._pass(operation, path, Step.METADATA_WRITTEN, Step.COMMITTED, Step.DISCARDED)

    def _pass(self, operation: str, path: str, write: Step, rename: Step, delete: Step) -> None:
        self.check()
        found = _CHECKPOINT_FILE.fullmatch(path)
        if found and operation in ("write", "delete"):
            self._last_checkpoint = int(found[1])
            self._engine.at(Moment(write if operation == "write" else delete, self._last_checkpoint))
        elif operation == "write" and _SAVEPOINT_FILE.match(path) and path.endswith("/_metadata"):
            is_before = write is Step.BEFORE_METADATA
            self._engine.at(Moment(Step.BEFORE_SAVEPOINT_METADATA if is_before else Step.SAVEPOINT_WRITTEN, 0))
        elif operation == "write" and f"/{PUBLISHED}" in path:
            is_before = write is Step.BEFORE_METADATA
            self._engine.at(Moment(Step.REMEMBERING if is_before else Step.REMEMBERED, self._last_checkpoint))
        elif operation == "rename" and path.startswith(f"{WITHDRAWN}/"):
            is_before = write is Step.BEFORE_METADATA
            self._withdrawn += is_before
            self._engine.at(Moment(Step.WITHDRAWING if is_before else Step.WITHDRAWN, self._withdrawn))
        elif operation == "rename":
            self._engine.at(Moment(rename, self._last_checkpoint))
        self.check()
