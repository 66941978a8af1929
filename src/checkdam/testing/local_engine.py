"""Epochs in one process: the real slot code, and exchanges that do what Spark's shuffle does."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from checkdam.clock import Clock, SystemClock
from checkdam.connectors.simple_sinks import SparkSink
from checkdam.connectors.sources import CollectionSource
from checkdam.graph.levels import JobPlan, Level, Partitioning
from checkdam.graph.operators import SinkKind, SourceKind
from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.engine import RunEpoch, Slot
from checkdam.runtime.slot.level import records_and_keys
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.source_level import source_level
from checkdam.runtime.slot.task import SlotTask
from checkdam.runtime.wire import EdgeRows, Wire, wire_before
from checkdam.state.batch import Batch
from checkdam.state.key_groups import key_groups
from checkdam.state.rows import from_arrow
from checkdam.state.snapshots import SlotSnapshot
from checkdam.testing.mounts import watched_by
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import DriverKilled, Life, Moment, Step, Trouble

Records = dict[int, tuple[Any, ...]]
"""What an epoch brings, by source."""

_CHECKPOINT_FILE = re.compile(r".*/chk-(\d+)(/_metadata)?")


class LocalEngine:
    """Runs one job. Each scripted epoch is one epoch; epoch 0 holds the collections, as on Spark.

    In lockstep no epoch begins before the checkpoint behind the last one is settled, so that every run is the same.
    What arrives at a subtask is one batch, as from Spark's shuffle reader, or what was sent if not `joins_batches`.
    """

    def __init__(
        self,
        plan: JobPlan,
        troubles: Sequence[Trouble] = (),
        *,
        lockstep: bool = True,
        clock: Clock | None = None,
        joins_batches: bool = True,
    ) -> None:
        self._plan = plan
        self._troubles = troubles
        self._lockstep, self._joins_batches = lockstep, joins_batches
        self.clock = clock or SystemClock()
        self.driver = _DriverLife(self)
        self.slots: list[LocalSlot] = []
        self.settle_rest: Callable[[], None] = lambda: None  # waits for what the driver still has to remove
        self._changed = threading.Condition()
        self._stopped = False
        self._unsettled: set[CheckpointId] = set()
        self._epoch = Epoch(-1)  # the last one that has moved its records
        self._next_script = 0
        sources = {op.id: op.kind.spec for op in plan.source_side if isinstance(op.kind, SourceKind)}
        self._collections = {op: spec for op, spec in sources.items() if isinstance(spec, CollectionSource)}
        self._scripts = {op: spec for op, spec in sources.items() if isinstance(spec, ScriptedSource)}
        self._types = {op.id: op.output_type for op in plan.source_side}

    def at(self, moment: Moment) -> None:
        """Let happen what the test wants to happen now: the first trouble that has not been yet."""
        trouble = next((each for each in self._troubles if each.takes(moment)), None)
        if trouble is not None:
            trouble.do(self, moment)

    @property
    def is_stopped(self) -> bool:
        """Whether the attempt under way has been told to end."""
        return self._stopped

    def kill_driver(self) -> None:
        self.driver.end()
        for slot in self.slots:
            slot.kill()
        self.interrupt()

    # -- the contract -------------------------------------------------------------------------------------------

    def first_epoch(self) -> Epoch:
        return Epoch(0 if self._collections else 1)

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[LocalSlot]:
        self.driver.check()
        with self._changed:
            self._stopped = False
            self._unsettled.clear()
        self.slots = [LocalSlot(self, SubtaskIndex(index)) for index in range(count)]
        return self.slots

    def resume(self, last_epoch: Epoch, position: bytes) -> None:
        self._epoch, self._next_script = last_epoch, int(position or b"0")

    def run(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        if self._collections and self._epoch < 0:
            self._run_epoch({op: spec.values for op, spec in self._collections.items()}, run_epoch)
        last = max((len(spec.epochs) for spec in self._scripts.values()), default=0)
        while self._next_script < last and not self._stopped:
            index = self._next_script
            records = {op: spec.epochs[index] for op, spec in self._scripts.items() if index < len(spec.epochs)}
            self._run_epoch(records, run_epoch, script=index)
        self.driver.check()

    def run_extra(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        self._run_epoch({}, run_epoch)
        self.driver.check()

    def interrupt(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def position(self) -> bytes:
        return str(self._next_script).encode()

    # -- checkpoints under way ----------------------------------------------------------------------------------

    def begun(self, checkpoint_id: CheckpointId) -> None:
        with self._changed:
            self._unsettled.add(checkpoint_id)

    def settled(self, checkpoint_id: CheckpointId) -> None:
        with self._changed:
            self._unsettled.discard(checkpoint_id)
            self._changed.notify_all()

    def _run_epoch(self, records: Records, run_epoch: RunEpoch, script: int | None = None) -> None:
        def execute(epoch: Epoch) -> None:
            self._execute(epoch, records)
            self._epoch = epoch
            if script is not None:
                self._next_script = script + 1

        self.at(Moment(Step.BEFORE_EPOCH, self._epoch + 1))
        self.driver.check()
        run_epoch(execute)
        if self._lockstep:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or not self._unsettled)
            if not self._stopped:
                self.settle_rest()

    # -- moving records -----------------------------------------------------------------------------------------

    def _execute(self, epoch: Epoch, records: Records) -> None:
        flow = [(0, batch) for batch in self._source_side(records)]
        for level in self._plan.levels:
            arriving: list[list[pa.RecordBatch]] = [[] for _ in range(level.parallelism)]
            for subtask, rows in self._exchange(level, flow):
                arriving[subtask].append(rows)
            if self._joins_batches:
                arriving = [[pa.concat_batches(batches)] if batches else [] for batches in arriving]
            flow = [
                (subtask, produced)
                for subtask in range(level.parallelism)
                for produced in self.slots[subtask].run_level(level.index, epoch, arriving[subtask])
            ]
        self._to_spark_sinks(epoch, flow)

    def _source_side(self, records: Records) -> Iterator[pa.RecordBatch]:
        wire = self._wire(1)
        plain = {op.id: op for op in self._plan.source_side if not op.is_source}
        here = {op.id for op in self._plan.source_side}
        edges = tuple(edge for edge in wire.edges if edge.source in here)
        level = source_level(plain, edges, wire, self._plan.levels[0].parallelism)
        for source, values in records.items():
            if values:
                yield from level.pass_on(source, Batch(self._types[source], rows=list(values)))
        yield from level.flush()

    def _exchange(
        self, level: Level, flow: Iterable[tuple[int, pa.RecordBatch]]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each row to its subtask: what runtime/spark says in SQL."""
        wire = self._wire(level.index)
        dealt = 0
        for partition, batch in flow:
            if wire.controlled:
                addressed = batch.filter(batch.column(1).is_valid())
                batch = batch.filter(batch.column(1).is_null())
                yield from _parted(addressed, addressed.column(1).to_numpy(zero_copy_only=False))
            for rows in wire.unpack(batch):
                targets = self._targets(level, rows, partition, dealt)
                dealt += rows.num_rows
                yield from _parted(wire.pack(rows.edge, rows.values, rows.keys, rows.timestamps), targets)

    def _targets(self, level: Level, rows: EdgeRows, partition: int, dealt: int) -> Any:
        edge = rows.edge
        if edge.level != level.index or edge.partitioning is Partitioning.FORWARD:
            return np.full(rows.num_rows, partition % level.parallelism)
        if edge.partitioning is Partitioning.REBALANCE:
            return np.arange(dealt, dealt + rows.num_rows) % edge.parallelism
        assert edge.key is not None
        assert edge.target is not None
        _, keys = records_and_keys(rows)
        assert keys is not None
        groups = self._plan.key_groups_of(edge.target)
        return key_groups(keys.rows, edge.key.type, groups) * edge.parallelism // groups

    def _wire(self, level: int) -> Wire:
        wire = wire_before(self._plan, level)
        assert wire is not None
        return wire

    def _to_spark_sinks(self, epoch: Epoch, flow: Sequence[tuple[int, pa.RecordBatch]]) -> None:
        """A Spark sink's function gets a list of records here, in place of a DataFrame."""
        if not self._plan.spark_sinks:
            return
        wire = self._wire(len(self._plan.levels) + 1)
        arrived: dict[int, list[Any]] = {edge.id: [] for edge in self._plan.spark_sinks}
        for _, batch in flow:
            for rows in wire.unpack(batch):
                arrived[rows.edge.id] += from_arrow(rows.edge.type, rows.values)
        for edge in self._plan.spark_sinks:
            kind = next(op.kind for op in self._plan.operators if op.id == edge.spark_sink)
            assert isinstance(kind, SinkKind)
            assert isinstance(kind.spec, SparkSink)
            assert kind.spec.function is not None
            kind.spec.function(arrived[edge.id], int(epoch))


def _parted(batch: pa.RecordBatch, targets: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
    for subtask in np.unique(targets).tolist():
        yield subtask, batch.filter(pa.array(targets == subtask))


class LocalSlot:
    """A SlotTask as a process of its own would be: it has its own copy of everything, and can be killed."""

    def __init__(self, engine: LocalEngine, subtask: SubtaskIndex) -> None:
        self._engine = engine
        self._subtask = subtask
        self._life = _SlotLife(engine, subtask)
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._task: SlotTask | None = None
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

    def configure(self, setup: SlotSetup) -> None:
        self._life.check()
        with watched_by(self._life):
            self._task = SlotTask(cloudpickle.loads(cloudpickle.dumps(setup)), clock=self._engine.clock)
        self._life.check()

    def run_level(self, level: int, epoch: Epoch, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self._at(Step.BEFORE_LEVEL, epoch, level)
        self._last_level = (level, epoch, batches)
        with self._lock:
            produced = self._once(level, epoch, batches)
        self._at(Step.AFTER_LEVEL, epoch, level)
        self._life.check()
        return produced

    def repeat(self) -> None:
        """The last level once more, with the same records."""
        assert self._last_level is not None
        self._once(*self._last_level)

    def _once(self, level: int, epoch: Epoch, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        run = self._alive().begin_level(level, epoch)
        return [*(each for batch in batches for each in run.process(batch)), *run.finish()]

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport:
        self._at(Step.EPOCH_DONE, epoch)
        with self._lock:
            report = self._alive().end_epoch(epoch, commit=commit)
        self._at(Step.EPOCH_ENDED, epoch)
        self._life.check()
        return report

    def end_of_input(self) -> None:
        with self._lock:
            self._alive().end_of_input()

    def seal(self, checkpoint_id: CheckpointId, epoch: Epoch) -> float:
        self._life.last_checkpoint = checkpoint_id
        self._engine.begun(checkpoint_id)
        self._at(Step.BEFORE_SEAL, checkpoint_id)
        with self._lock:
            seconds = self._alive().seal(checkpoint_id, epoch)
        self._at(Step.SEALED, checkpoint_id)
        self._life.check()
        return seconds

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        task = self._alive()
        try:
            snapshot = task.snapshot(checkpoint_id)
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

    def hold(self) -> None:
        self._ended.wait()
        self._life.check()

    def close(self) -> None:
        try:
            with self._lock:
                self._alive().close()
        finally:
            self._ended.set()

    def kill(self) -> None:
        if not self._ended.is_set():
            self._life.end()
            self._ended.set()

    def disconnect(self) -> None:
        """There is no connection."""

    def _alive(self) -> SlotTask:
        self._life.check()
        assert self._task is not None
        return self._task

    def _at(self, step: Step, number: int, level: int | None = None) -> None:
        self._engine.at(Moment(step, number, self._subtask, level))


class _SlotLife(Life):
    """Watches what a slot does to storage."""

    def __init__(self, engine: LocalEngine, subtask: SubtaskIndex) -> None:
        super().__init__(f"slot {subtask}")
        self._engine = engine
        self._subtask = subtask
        self.last_checkpoint = CheckpointId(0)

    def before(self, operation: str, path: str) -> None:
        self.check()
        if self.last_checkpoint and operation in ("write", "open_output", "output", "close", "rename"):
            step = Step.WRITING if "/shared/" in path else Step.WRITING_OUTPUT
            self._engine.at(Moment(step, self.last_checkpoint, self._subtask))
            self.check()


class _DriverLife(Life):
    """Watches what the driver does to storage, and ends whatever it does once it is killed."""

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__("the driver")
        self._engine = engine
        self._last_checkpoint = 0

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
        elif operation == "rename":
            self._engine.at(Moment(rename, self._last_checkpoint))
        self.check()
