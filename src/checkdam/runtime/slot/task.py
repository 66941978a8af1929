"""The subtask itself: every level of slot i, its state, and the rules under which it moves from epoch to epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from checkdam.backends.contract import KeyedStateStore, Sealed
from checkdam.checkpoint.operator_state import keep
from checkdam.clock import Clock, SystemClock
from checkdam.connectors.contract import Prepare, SinkWriter
from checkdam.connectors.simple_sinks import PrintWriter
from checkdam.errors import CheckdamError, SlotLostError, StorageError
from checkdam.graph.operators import SinkKind
from checkdam.ids import CheckpointId, Epoch
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.context import OperatorTime, SnapshotContext
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.level import RunningLevel, RunningOperator, running_level
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.opening import OpenOperator, Slot
from checkdam.state.snapshots import (
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStatePart,
    SlotSnapshot,
    StateFile,
)
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree

SHARED = "shared"
"""Where state files lie in a job's directory."""


@dataclass(frozen=True)
class _Cut:
    """What the synchronous part of a snapshot hands to the asynchronous one."""

    checkpoint_id: CheckpointId
    parts: dict[int, tuple[OperatorStatePart, ...]]
    finished: frozenset[int]
    sealed: dict[int, Sealed]
    prepared: dict[int, Prepare]
    sync_seconds: float


class SlotTask:
    """One subtask of every level. Not thread-safe but for `snapshot`, which may wait while epochs go on."""

    def __init__(
        self,
        setup: SlotSetup,
        storage: Storage | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._setup = setup
        self._plan = setup.plan
        whole = storage or (open_storage(setup.storage) if setup.storage else None)
        self._storage = subtree(whole, setup.job_id) if whole is not None else None  # the job's own directory
        clock = clock or SystemClock()
        self._time = OperatorTime(clock)
        self._event_time = EventTime(setup.plan, clock, setup.event_time, setup.watermarks, last_epoch=setup.last_epoch)
        self._slot = Slot(setup, self._event_time, clock, _files_to_restore(setup))
        self._operators: dict[int, OpenOperator] = {}
        self._epoch = setup.last_epoch
        self._level_done = 0  # the last level of the epoch under way that is complete
        self._broken: str | None = None
        self._lost_output: str | None = None  # set by the writing thread; no later checkpoint could cover it
        self._snapshots: dict[CheckpointId, Future[SlotSnapshot]] = {}
        self._unpublished: dict[int, dict[CheckpointId, tuple[bytes, ...]]] = {}
        self._writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="snapshot")
        self._levels = self._open_levels()

    def begin_level(self, level: int, epoch: Epoch) -> LevelRun:
        """Start one level of an epoch; refuses what was applied already and what comes too early.

        A task that Spark runs again, for whatever reason, must never apply its records twice.
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
        """Close an epoch that every level has seen; with `commit`, hand out the sinks' output at once.

        A level narrower than the job does not reach every slot: one that was not visited counts as empty.
        """
        self._refuse_if_broken()
        if epoch != self._epoch + 1:
            raise SlotLostError(f"slot {self._setup.subtask} stands at epoch {self._epoch}, cannot end {epoch}")
        self._broken = f"epoch {epoch} was not ended"  # until it is
        for _, store in self._stores():
            store.end_epoch()
        self._event_time.end_epoch(epoch)
        self._broken = None
        self._epoch, self._level_done = epoch, 0
        operators = {op_id: r.take_counts() for level in self._levels.values() for op_id, r in level.operators.items()}
        writers = [opened.writer for opened in self._operators.values()]
        printed = [line for writer in writers if isinstance(writer, PrintWriter) for line in writer.take_lines()]
        committables = {self._operators[op].uid: w.cut()() for op, w in self._transactional()} if commit else {}
        processes = [opened.process for opened in self._operators.values()]
        dues = [self._event_time.next_due(), *(process.next_due for process in processes)]
        return EpochReport(
            epoch,
            self._setup.subtask,
            operators,
            tuple(printed),
            committables,
            keys=sum(store.key_count for _, store in self._stores()),
            event_time=self._event_time.largest,
            watermarks=self._event_time.reached,
            unfinished_sources=not all(process.is_finished for process in processes),
            next_due=min((due for due in dues if due is not None), default=None),
        )

    def end_of_input(self) -> None:
        """No source will bring anything any more: the next epoch is at the end of event time."""
        self._refuse_if_broken()
        self._event_time.end_of_input()

    def seal(self, checkpoint_id: CheckpointId, epoch: Epoch) -> float:
        """Cut the state as of this epoch; the synchronous part. Returns the seconds it took.

        A function that fails in snapshot_state, or holds state that cannot be kept, costs this checkpoint only: the
        output of sinks is cut last, when nothing can fail any more.
        """
        self._refuse_if_broken()
        if epoch != self._epoch or self._level_done:
            raise SlotLostError(f"slot {self._setup.subtask} cannot cut checkpoint {checkpoint_id} at epoch {epoch}")
        started = time.perf_counter()
        parts: dict[int, tuple[OperatorStatePart, ...]] = {}
        sealed: dict[int, Sealed] = {}
        if self._storage is not None:
            context = SnapshotContext(checkpoint_id, self._time.processing_time())
            parts = {op: opened.snapshot_state(context) for op, opened in self._operators.items()}
            sealed = {op: store.seal(checkpoint_id) for op, store in self._stores()}
        finished = frozenset(op for op, opened in self._operators.items() if opened.is_finished)
        prepared = {op: writer.cut() for op, writer in self._transactional()}
        elapsed = time.perf_counter() - started
        cut = _Cut(checkpoint_id, parts, finished, sealed, prepared, elapsed)
        self._snapshots[checkpoint_id] = self._writing.submit(self._write, cut)
        return elapsed

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        """Wait for the asynchronous part of a checkpoint."""
        try:
            return self._snapshots[checkpoint_id].result()
        finally:
            self._snapshots.pop(checkpoint_id, None)

    def _write(self, cut: _Cut) -> SlotSnapshot:
        started = time.perf_counter()
        # Output first: should the state not be written, the next checkpoint still publishes what this one cut.
        committables = {op: self._prepared(op, cut.checkpoint_id, prepare) for op, prepare in cut.prepared.items()}
        keyed: dict[int, KeyedStateHandle] = {}
        operator: dict[int, OperatorStateHandle] = {}
        new_files: list[StateFile] = []
        try:
            for op, parts in cut.parts.items():
                if parts:
                    operator[op] = self._write_operator_state(op, cut.checkpoint_id, parts, new_files)
            for op, sealed in cut.sealed.items():
                assert self._storage is not None
                keyed[op] = sealed.write(self._storage, SHARED)
                new_files.extend(sealed.new_files)
        except BaseException:
            self._remove(new_files)
            raise
        operators = tuple(
            OperatorSnapshot(
                uid=self._operators[op].uid,
                name=self._operators[op].operator.name,
                keyed=keyed.get(op),
                committables=committables.get(op, ()),
                operator_state=operator.get(op),
                is_finished=op in cut.finished,
            )
            for op in sorted(keyed.keys() | operator.keys() | committables.keys() | cut.finished)
        )
        files = [file for handle in keyed.values() for file in handle.files]
        contents = [handle.content for handle in operator.values()]
        return SlotSnapshot(
            checkpoint_id=cut.checkpoint_id,
            subtask=self._setup.subtask,
            operators=operators,
            new_files=tuple(new_files),
            sync_seconds=cut.sync_seconds,
            async_seconds=time.perf_counter() - started,
            state_bytes=sum(file.size for file in files)
            + sum(len(each) if isinstance(each, bytes) else each.size for each in contents),
        )

    def _write_operator_state(
        self,
        op: int,
        checkpoint_id: CheckpointId,
        parts: tuple[OperatorStatePart, ...],
        new_files: list[StateFile],
    ) -> OperatorStateHandle:
        assert self._storage is not None
        owner = f"{xxhash.xxh3_128_hexdigest(self._operators[op].uid.encode())}-{self._setup.subtask}"
        path = f"{SHARED}/{owner}-{checkpoint_id}-{self._setup.attempt}.operator"
        new_files.append(StateFile(path, 0))  # so that it is removed if it is written in part
        handle = keep(parts, self._storage, path)
        new_files[-1:] = [handle.content] if isinstance(handle.content, StateFile) else []
        return handle

    def _prepared(self, op: int, checkpoint_id: CheckpointId, prepare: Prepare) -> tuple[bytes, ...]:
        """Output to publish with this checkpoint: also what an earlier one prepared and never got to publish."""
        waiting = self._unpublished.setdefault(op, {})
        try:
            waiting[checkpoint_id] = prepare()
        except Exception as error:
            name = self._operators[op].operator.name
            self._lost_output = f'output of "{name}" was not written: {error}'
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {self._lost_output}") from error
        earlier = waiting.copy()  # `completed` may take from it meanwhile
        return tuple(each for number in sorted(earlier) for each in earlier[number])

    def completed(self, checkpoint_id: CheckpointId) -> None:
        for waiting in self._unpublished.values():
            for covered in [earlier for earlier in list(waiting) if earlier <= checkpoint_id]:
                del waiting[covered]
        for _, store in self._stores():
            store.completed(checkpoint_id)

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget a checkpoint; what it wrote, or is still writing, is removed when the writer is done with it."""
        for _, store in self._stores():
            store.aborted(checkpoint_id)
        self._writing.submit(self._remove_files_of, self._snapshots.pop(checkpoint_id, None))

    def _remove_files_of(self, snapshot: Future[SlotSnapshot] | None) -> None:
        if snapshot is not None and snapshot.exception() is None:
            self._remove(snapshot.result().new_files)

    def _remove(self, files: Sequence[StateFile]) -> None:
        """Remove files that no checkpoint will need; what the storage keeps is swept by the next start."""
        for file in files:
            assert self._storage is not None
            with suppress(StorageError):
                self._storage.delete(file.path)

    def close(self) -> None:
        """Close every function that was opened, also after a failure; the first error is raised at the end."""
        self._writing.shutdown(wait=True)
        errors: list[Exception] = []
        for opened in reversed(self._operators.values()):
            for closing in opened.closings():
                try:
                    closing()
                except Exception as error:  # noqa: BLE001  the user's code may raise anything; the others must close too
                    errors.append(user_error(opened.operator.name, "(none: in close)", error))
        self._operators = {}
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

    def _stores(self) -> Iterator[tuple[int, KeyedStateStore]]:
        for op, opened in self._operators.items():
            if opened.store is not None:
                yield op, opened.store

    def _transactional(self) -> Iterator[tuple[int, SinkWriter]]:
        for op, opened in self._operators.items():
            kind = opened.operator.kind
            if opened.writer is not None and isinstance(kind, SinkKind) and kind.spec.is_transactional:
                yield op, opened.writer

    def _refuse_if_broken(self) -> None:
        reason = self._lost_output or self._broken
        if reason is not None:
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {reason}")

    def fail(self, reason: Any) -> None:
        """Refuse everything from now on."""
        self._broken = str(reason)


def _files_to_restore(setup: SlotSetup) -> Storage | None:
    restore = setup.restore
    return None if restore is None else subtree(open_storage(restore.storage), restore.directory)


class LevelRun:
    """One level of one epoch under way; until `finish`, the slot counts as broken."""

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
        """The level has had all its records; yields what was gathered until now."""
        try:
            yield from self._level.flush()
        except CheckdamError as error:
            self._task.fail(error)
            raise
        self._task._level_finished(self._index)
