"""Epochs in one process: the real slot code, and exchanges that do what Spark's shuffle does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from checkdam.clock import Clock, SystemClock
from checkdam.connectors.simple_sinks import SparkSink
from checkdam.connectors.sources import CollectionSource
from checkdam.errors import JobGraphError
from checkdam.graph.levels import JobPlan, Level, Partitioning
from checkdam.graph.operators import SinkKind, SourceKind
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.engine import RunEpoch, Slot
from checkdam.runtime.exchange_rows import EdgeRows, Wire, wire_before
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.slot.level import RunningLevel, records_and_keys
from checkdam.runtime.slot.messages import OperatorCounts
from checkdam.runtime.slot.source_level import source_level
from checkdam.runtime.source_position import (
    VERSION,
    JobSource,
    SourcePosition,
    decode_position,
    encode_position,
    job_sources,
)
from checkdam.state.key_groups import key_groups
from checkdam.testing.gate import Gate
from checkdam.testing.local_slot import DriverLife, LocalSlot
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import Moment, Step, Trouble
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copy_of
from checkdam.types.rows import from_arrow

Records = dict[int, tuple[Any, ...]]
"""The records of an epoch, by source."""


class LocalEngine:
    """Runs one job. Each scripted epoch is one epoch; epoch 0 holds the collections, as on Spark.

    In lockstep an epoch begins only after the previous epoch's checkpoint has ended, so that every run is the same. A
    subtask gets its records in one batch, as from Spark's shuffle reader, or in the batches sent if not
    `joins_batches`. With `until` the input ends when that gate opens, not with the script.
    """

    def __init__(
        self,
        plan: JobPlan,
        troubles: Sequence[Trouble] = (),
        *,
        lockstep: bool = True,
        clock: Clock | None = None,
        joins_batches: bool = True,
        until: Gate | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.heartbeat = heartbeat or Heartbeat()
        self._troubles = troubles
        self._until = until
        self._lockstep, self._joins_batches = lockstep, joins_batches
        self.clock = clock or SystemClock()
        self.driver = DriverLife(self)
        self.slots: list[LocalSlot] = []
        self.make_slot: Callable[[LocalEngine, SubtaskIndex], LocalSlot] = LocalSlot
        self.settle_rest: Callable[[], None] = lambda: None  # waits for the driver's pending deletions
        self._changed = threading.Condition()
        self._stopped = False
        self._source_counts: Mapping[tuple[int, int], OperatorCounts] = {}
        self.report_pending: Callable[[Mapping[int, int]], object] = lambda pending: None  # as watch_sources took it
        self._unsettled: set[CheckpointId] = set()
        self._epoch = Epoch(-1)  # the last one whose records have been moved
        self._next: dict[OperatorUid, int] = {}  # the next epoch of each scripted source
        self._read: set[OperatorUid] = set()  # the collections already read
        self.adopt(plan)

    def adopt(self, plan: JobPlan) -> LocalEngine:
        """Run this plan from the next attempt on."""
        _check_sources(plan)
        self._plan = plan
        specs = {op.id: op.kind.spec for op in plan.source_side if isinstance(op.kind, SourceKind)}
        self._sources = job_sources(plan)
        self._collections = [(each, specs[each.id]) for each in self._sources if each.is_static]
        self._scripts = [(each, specs[each.id]) for each in self._sources if not each.is_static]
        self._types = {op.id: op.output_type for op in plan.source_side}
        return self

    def at(self, moment: Moment) -> None:
        """Trigger the first unused trouble that the test has planned for this moment."""
        trouble = next((each for each in self._troubles if each.takes(moment)), None)
        if trouble is not None:
            trouble.do(self, moment)

    @property
    def is_stopped(self) -> bool:
        """Whether the current attempt has been told to end."""
        return self._stopped

    def wait_for(self, future: Future[Any]) -> None:
        """Wait until the future is done, or the current attempt has been told to end."""
        future.add_done_callback(lambda _: self._look())
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or future.done())

    def _look(self) -> None:
        with self._changed:
            self._changed.notify_all()

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
        self.slots = [self.make_slot(self, SubtaskIndex(index)) for index in range(count)]
        return self.slots

    def resume(self, last_epoch: Epoch, position: bytes) -> None:
        held = {OperatorUid(each.uid): each for each in decode_position(position).held}
        self._epoch = last_epoch
        self._read = {source.uid for source, _ in self._collections if source.uid in held}
        self._next = {source.uid: held[source.uid].lines[0] for source, _ in self._scripts if source.uid in held}

    def run_static(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        unread = [(source, spec) for source, spec in self._collections if source.uid not in self._read]
        if unread:
            self._run_epoch({source: spec.values for source, spec in unread}, run_epoch)

    def run(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        while not self._stopped and self.run_next(run_epoch):
            pass
        if self._until is not None:
            until = self._until
            until.when_open(self._look)
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or until.is_open)
        self.driver.check()

    def run_next(self, run_epoch: RunEpoch) -> bool:
        """Run the next scripted epoch. Return False if there is none."""
        following = ((source, spec, self._next.get(source.uid, 0)) for source, spec in self._scripts)
        records = {source: spec.epochs[index] for source, spec, index in following if index < len(spec.epochs)}
        if records:
            self._run_epoch(records, run_epoch)
        return bool(records)

    def run_extra(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        self._run_epoch({}, run_epoch)
        self.driver.check()

    def interrupt(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def progress(self) -> None:
        """Do nothing: the slots report all progress."""

    def position(self) -> bytes:
        held = [source.held() for source, _ in self._collections if source.uid in self._read]
        held += [source.held([self._next[source.uid]]) for source, _ in self._scripts if source.uid in self._next]
        return encode_position(SourcePosition(-1, {}, [source.kind for source in self._sources], VERSION, held))

    def source_counts(self) -> Mapping[tuple[int, int], OperatorCounts]:
        return self._source_counts

    def watch_sources(self, report: Callable[[Mapping[int, int]], object]) -> None:
        self.report_pending = report

    # -- checkpoints under way ----------------------------------------------------------------------------------

    def begun(self, checkpoint_id: CheckpointId) -> None:
        with self._changed:
            self._unsettled.add(checkpoint_id)

    def settled(self, checkpoint_id: CheckpointId) -> None:
        with self._changed:
            self._unsettled.discard(checkpoint_id)
            self._changed.notify_all()

    def _run_epoch(self, records: Mapping[JobSource, tuple[Any, ...]], run_epoch: RunEpoch) -> None:
        def execute(epoch: Epoch) -> None:
            self._execute(epoch, {source.id: values for source, values in records.items()})
            self._epoch = epoch
            self._read |= {source.uid for source in records if source.is_static}
            self._next |= {each.uid: self._next.get(each.uid, 0) + 1 for each in records if not each.is_static}

        self.at(Moment(Step.BEFORE_EPOCH, self._epoch + 1))
        self.driver.check()
        run_epoch(execute).result()
        if self._lockstep:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or not self._unsettled)
            if not self._stopped:
                self.settle_rest()

    # -- moving records -----------------------------------------------------------------------------------------

    def _execute(self, epoch: Epoch, records: Records) -> None:
        self.move(epoch, list(self._source_side(records)))

    def move(self, epoch: Epoch, flow: list[tuple[int, pa.RecordBatch]], dealt: int = 0) -> None:
        """Move the output of the source side, with its source partition, through every level.

        `dealt` is how many records a rebalance has distributed before.
        """
        for level in self._plan.levels:
            arriving: list[list[pa.RecordBatch]] = [[] for _ in range(level.parallelism)]
            for subtask, rows in self._exchange(level, flow, dealt):
                arriving[subtask].append(rows)
            if self._joins_batches:
                arriving = [[pa.concat_batches(batches)] if batches else [] for batches in arriving]
            flow = [
                (subtask, produced)
                for subtask in range(level.parallelism)
                for produced in self.slots[subtask].run_level(level.index, epoch, arriving[subtask])
            ]
        self._to_spark_sinks(epoch, flow)

    def source_level(self) -> RunningLevel:
        """Return the operators upstream of the first exchange, ready for the records of one epoch."""
        wire = self._wire(1)
        here = {op.id: op for op in self._plan.source_side}
        edges = tuple(edge for edge in wire.edges if edge.source in here)
        return source_level(here, edges, wire, self._plan.levels[0].parallelism)

    def _source_side(self, records: Records) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return the output of the source side with its partition: each source is one partition."""
        level = self.source_level()
        for partition, (source, values) in enumerate(records.items()):
            if values:
                for batch in level.bring(source, Batch(self._types[source], rows=list(map(copy_of, values)))):
                    yield partition, batch
        yield from ((0, batch) for batch in level.flush())
        self._source_counts = {(op, 0): running.take_counts() for op, running in level.operators.items()}

    def _exchange(
        self, level: Level, flow: Iterable[tuple[int, pa.RecordBatch]], dealt: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Send each row to its subtask, as runtime/spark does in SQL."""
        wire = self._wire(level.index)
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
        if edge.partitioning is Partitioning.ORIGIN:
            return np.full(rows.num_rows, partition % edge.parallelism)
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
        """Call the functions of Spark sinks, with a list of records instead of a DataFrame."""
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


def _check_sources(plan: JobPlan) -> None:
    """Raise for sources that only Spark can read."""
    for op in plan.source_side:
        if isinstance(op.kind, SourceKind) and not isinstance(op.kind.spec, CollectionSource | ScriptedSource):
            raise JobGraphError(
                f'source "{op.name}" is read by Spark, and this job runs without it',
                hint="In a test give the records with from_collection(), or as the epochs of a LocalJob.",
            )


def _parted(batch: pa.RecordBatch, targets: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
    for subtask in np.unique(targets).tolist():
        yield subtask, batch.filter(pa.array(targets == subtask))
