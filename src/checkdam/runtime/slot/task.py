"""One subtask: every level of slot i, its state, and the rules for moving from epoch to epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

import pyarrow as pa

from checkdam.backends.contract import KeyedStateStore
from checkdam.clock import Clock, SystemClock
from checkdam.connectors.simple_sinks import PrintWriter
from checkdam.errors import CheckdamError, SlotLostError, UserFunctionError
from checkdam.graph.operators import SourceFunctionKind
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.current_operator import working_for
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.live_state.slot_queries import SlotQueries
from checkdam.runtime.slot.context import OperatorTime, SnapshotContext
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.level import RunningLevel, RunningOperator, running_level
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.operator_setup import OpenOperator, SlotResources
from checkdam.runtime.slot.process_memory import resident_bytes
from checkdam.runtime.slot.slot_files import files_to_restore, own_files
from checkdam.runtime.slot.snapshot_writer import SnapshotWriter, one_thread, stores, transactional
from checkdam.runtime.slot.source_functions import RecordsSignal
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot
from checkdam.types.type_info import register

_log = logging.getLogger(__name__)


class SlotTask:
    """One subtask of every level. Not thread-safe except for `snapshot`, which may wait while epochs continue."""

    def __init__(
        self,
        setup: SlotSetup,
        clock: Clock | None = None,
        executors: Callable[[str], Executor] = one_thread,
    ) -> None:
        self._setup = setup
        self._plan = setup.plan
        for of, info in setup.registered_types.items():
            register(of, info)
        files, copies = own_files(setup)
        clock = clock or SystemClock()
        self._time = OperatorTime(clock)
        self._event_time = EventTime(
            setup.plan,
            clock,
            setup.event_time,
            setup.watermarks,
            subtask=setup.subtask,
            last_epoch=setup.last_epoch,
            unread=setup.unread_assigners,
            ended=_ended_sources(setup),
        )
        self.records_signal = RecordsSignal()
        self._slot = SlotResources(setup, self._event_time, clock, files_to_restore(setup, files), self.records_signal)
        self._operators: dict[int, OpenOperator] = {}
        self._epoch = setup.last_epoch
        self._level_done = 0  # the last complete level of the current epoch
        self._broken: str | None = None
        self._snapshots = SnapshotWriter(setup, files, self._operators, executors, copies)
        kept: dict[str, KeyedStateStore] = {}  # by uid
        read: dict[str, OpenOperator] = {}  # likewise
        self.queries = SlotQueries(setup.subtask, kept, self._border, read)
        self._levels = self._open_levels()
        if copies is not None and copies.reads:
            _log.info("slot %d has restored %d files from local copies", setup.subtask, copies.reads)
        kept.update((str(self._operators[op].uid), store) for op, store in stores(self._operators))
        read.update((str(opened.uid), opened) for opened in self._operators.values())

    def begin_level(self, level: int, epoch: Epoch) -> LevelRun:
        """Start one level of an epoch; refuse one that was applied already or comes too early.

        A task that Spark runs again, for any reason, must never apply its records twice.
        """
        self._refuse_if_broken()
        if epoch != self._epoch + 1 or level <= self._level_done:
            raise SlotLostError(
                f"slot {self._setup.subtask} refuses level {level} of epoch {epoch}: "
                f"it has done epoch {self._epoch} and {self._level_done} levels of the next"
            )
        self._broken = f"level {level} of epoch {epoch} was not finished"  # until it is
        return LevelRun(self, self._levels[level], level)

    def _level_finished(self, level: int) -> None:
        self._broken = None
        self._level_done = level

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport:
        """End an epoch that every level has seen; with `commit`, return the sinks' output at once.

        A level with less parallelism than the job does not reach every slot: one that was not visited counts as empty.
        """
        self._refuse_if_broken()
        if epoch != self._epoch + 1:
            raise SlotLostError(f"slot {self._setup.subtask} stands at epoch {self._epoch}, cannot end {epoch}")
        self._broken = f"epoch {epoch} was not ended"  # until it is
        running = {op: each for level in self._levels.values() for op, each in level.operators.items()}
        for op, store in stores(self._operators):
            running[op].work(store.end_epoch)
        self._event_time.end_epoch(epoch)
        self._broken = None
        self._epoch, self._level_done = epoch, 0
        self.queries.epoch_ended(epoch)
        held = {op: store.count() for op, store in stores(self._operators)}
        operators = {op: each.take_counts(held.get(op)) for op, each in running.items()}
        writers = [opened.writer for opened in self._operators.values()]
        printed = [line for writer in writers if isinstance(writer, PrintWriter) for line in writer.take_lines()]
        committables = (
            {self._operators[op].uid: w.snapshot()() for op, w in transactional(self._operators)} if commit else {}
        )
        processes = [opened.process for opened in self._operators.values()]
        signals = self.records_signal.count  # read first: records that arrive later are signalled again
        dues = [self._event_time.next_due(), *(process.next_due for process in processes)]
        return EpochReport(
            epoch,
            self._setup.subtask,
            operators,
            tuple(printed),
            committables,
            event_time=self._event_time.largest,
            watermarks=self._event_time.reached,
            unfinished_sources=not all(process.is_finished for process in processes),
            ready_sources=any(process.has_records for process in processes),
            signals=signals,
            next_due=min((due for due in dues if due is not None), default=None),
            received={edge: n for level in self._levels.values() for edge, n in level.take_received().items()},
            memory=resident_bytes(),
            metrics={op: values for op, opened in self._operators.items() if (values := opened.metrics.read())},
        )

    def end_of_input(self) -> None:
        """Let the next epoch be at the end of event time: no source will produce more records."""
        self._refuse_if_broken()
        self._event_time.end_of_input()
        for opened in self._operators.values():
            opened.process.end_of_input()

    def begin_snapshot(
        self,
        checkpoint_id: CheckpointId,
        epoch: Epoch,
        *,
        savepoint: SavepointTarget | None = None,
        full: bool = False,
    ) -> float:
        """Take the synchronous part of a snapshot as of this epoch. Return the seconds it took."""
        self._refuse_if_broken()
        if epoch != self._epoch or self._level_done:
            raise SlotLostError(
                f"slot {self._setup.subtask} cannot take a snapshot for checkpoint {checkpoint_id} at epoch {epoch}"
            )
        context = SnapshotContext(checkpoint_id, self._time.processing_time())
        return self._snapshots.begin(context, savepoint, full=full)

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        """Wait for the asynchronous part of a checkpoint."""
        return self._snapshots.snapshot(checkpoint_id)

    def completed(self, checkpoint_id: CheckpointId) -> None:
        self._snapshots.completed(checkpoint_id)

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget a checkpoint; its files are removed when the writer is done with it."""
        self._snapshots.aborted(checkpoint_id)

    def released(self, checkpoint_id: CheckpointId) -> None:
        """Forget a completed savepoint; its files stay."""
        self._snapshots.released(checkpoint_id)

    def interrupt(self) -> None:
        """Let threads of user code end, as in a process that is killed. Any thread may call this."""
        for opened in list(self._operators.values()):
            opened.process.interrupt()

    def close(self) -> None:
        """Close every function that was opened, also after a failure; raise the first error at the end."""
        self.queries.close()
        self._snapshots.close()
        errors: list[Exception] = []
        for opened in reversed(self._operators.values()):
            for closing in opened.closings():
                try:
                    with working_for(opened.operator):
                        closing()
                except Exception as error:  # noqa: BLE001  user code may raise anything; the others must close too
                    errors.append(user_error(opened.operator, NO_RECORD, error, where="close"))
        self._operators.clear()
        if errors:
            raise errors[0]

    def _open_levels(self) -> dict[int, RunningLevel]:
        levels = {}
        try:
            for level in self._plan.levels:
                here = {}
                for operator in level.operators:
                    if self._setup.subtask < (operator.parallelism or 1):
                        opened = self._operators[operator.id] = OpenOperator(operator, self._slot)
                        here[operator.id] = RunningOperator(opened.operator, opened.open())
                levels[level.index] = running_level(self._plan, level, here, self._event_time)
        except BaseException as failure:
            try:
                self.close()
            except CheckdamError as another:
                failure.add_note(f"and then: {another}")
            raise
        return levels

    def _border(self) -> Epoch | None:
        """Return the last epoch while nothing of the next one has been applied, else None."""
        return None if self._broken is not None or self._level_done else self._epoch

    def _refuse_if_broken(self) -> None:
        reason = self._snapshots.lost_output or self._broken
        if reason is not None:
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {reason}")

    def fail(self, reason: CheckdamError) -> None:
        """Refuse everything from now on."""
        self._broken = str(reason)
        if isinstance(reason, UserFunctionError):
            reason.subtask = self._setup.subtask


def _ended_sources(setup: SlotSetup) -> Iterator[tuple[int, int]]:
    """Yield the source functions that had no more records at the restored checkpoint, with the subtask."""
    for level in setup.plan.levels:
        for op in level.operators:
            if setup.restore is not None and op.uid is not None and isinstance(op.kind, SourceFunctionKind):
                width = op.parallelism or 1
                for subtask in map(SubtaskIndex, range(width)):
                    if setup.restore.had_finished(op.uid, subtask, width):
                        yield op.id, subtask


class LevelRun:
    """One level of one epoch in progress; until `finish`, the slot counts as broken."""

    def __init__(self, task: SlotTask, level: RunningLevel, index: int) -> None:
        self._task = task
        self._level = level
        self._index = index

    @property
    def output_schema(self) -> pa.Schema:
        return self._level.output_schema

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._level.receive(batch)
        except CheckdamError as error:
            self._task.fail(error)
            raise

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Finish the level after its last record; yield the output gathered so far."""
        try:
            yield from self._level.flush()
        except CheckdamError as error:
            self._task.fail(error)
            raise
        self._task._level_finished(self._index)
