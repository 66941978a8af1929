"""The subtask itself: every level of slot i, its state, and the rules under which it moves from epoch to epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import pyarrow as pa

from checkdam.backends.contract import KeyedStateStore, Sealed, StoreOwner
from checkdam.connectors.contract import Prepare, SinkWriter, WriterContext
from checkdam.connectors.simple_sinks import PrintWriter
from checkdam.errors import CheckdamError, SlotLostError
from checkdam.graph.operators import Operator, SinkKind
from checkdam.ids import CheckpointId, Epoch, OperatorUid
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.level import RunningLevel, RunningOperator, running_level
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.operators import make_process
from checkdam.state.key_groups import key_group_range
from checkdam.state.snapshots import KeyedStateHandle, OperatorSnapshot, SlotSnapshot, StateFile
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree

SHARED = "shared"
"""Where state files lie in a job's directory."""


@dataclass(frozen=True)
class _Cut:
    """What the synchronous part of a snapshot hands to the asynchronous one."""

    checkpoint_id: CheckpointId
    sealed: dict[int, Sealed]
    prepared: dict[int, Prepare]
    sync_seconds: float


class SlotTask:
    """One subtask of every level. Not thread-safe but for `snapshot`, which may wait while epochs go on."""

    def __init__(
        self, setup: SlotSetup, storage: Storage | None = None, restore_storage: Storage | None = None
    ) -> None:
        self._setup = setup
        self._plan = setup.plan
        whole = storage or (open_storage(setup.storage) if setup.storage else None)
        self._storage = subtree(whole, setup.job_id) if whole is not None else None  # the job's own directory
        self._restore_storage = restore_storage
        self._stores: dict[int, KeyedStateStore] = {}
        self._writers: dict[int, SinkWriter] = {}
        self._opened: list[Operator] = []
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
        self._epoch, self._level_done = epoch, 0
        operators = {op_id: r.take_counts() for level in self._levels.values() for op_id, r in level.operators.items()}
        printed = [line for w in self._writers.values() if isinstance(w, PrintWriter) for line in w.take_lines()]
        committables = {self._uid(op): w.cut()() for op, w in self._transactional()} if commit else {}
        keys = sum(store.key_count for store in self._stores.values())
        return EpochReport(epoch, self._setup.subtask, operators, tuple(printed), committables, keys)

    def seal(self, checkpoint_id: CheckpointId, epoch: Epoch) -> float:
        """Cut the state as of this epoch; the synchronous part. Returns the seconds it took."""
        self._refuse_if_broken()
        if epoch != self._epoch or self._level_done:
            raise SlotLostError(f"slot {self._setup.subtask} cannot cut checkpoint {checkpoint_id} at epoch {epoch}")
        started = time.perf_counter()
        sealed = {op: s.seal(checkpoint_id) for op, s in self._stores.items()} if self._storage is not None else {}
        prepared = {op: writer.cut() for op, writer in self._transactional()}
        elapsed = time.perf_counter() - started
        self._snapshots[checkpoint_id] = self._writing.submit(
            self._write, _Cut(checkpoint_id, sealed, prepared, elapsed)
        )
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
        handles: dict[int, KeyedStateHandle] = {}
        new_files: list[StateFile] = []
        for op, sealed in cut.sealed.items():
            assert self._storage is not None
            handles[op] = sealed.write(self._storage, SHARED)
            new_files.extend(sealed.new_files)
        operators = tuple(
            OperatorSnapshot(self._uid(op), self._operator(op).name, handles.get(op), committables.get(op, ()))
            for op in sorted(handles.keys() | committables.keys())
        )
        return SlotSnapshot(
            checkpoint_id=cut.checkpoint_id,
            subtask=self._setup.subtask,
            operators=operators,
            new_files=tuple(new_files),
            sync_seconds=cut.sync_seconds,
            async_seconds=time.perf_counter() - started,
            state_bytes=sum(file.size for handle in handles.values() for file in handle.files),
        )

    def _prepared(self, op: int, checkpoint_id: CheckpointId, prepare: Prepare) -> tuple[bytes, ...]:
        """Output to publish with this checkpoint: also what an earlier one prepared and never got to publish."""
        waiting = self._unpublished.setdefault(op, {})
        try:
            waiting[checkpoint_id] = prepare()
        except Exception as error:
            self._lost_output = f'output of "{self._operator(op).name}" was not written: {error}'
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {self._lost_output}") from error
        earlier = waiting.copy()  # `completed` may take from it meanwhile
        return tuple(each for number in sorted(earlier) for each in earlier[number])

    def completed(self, checkpoint_id: CheckpointId) -> None:
        for waiting in self._unpublished.values():
            for covered in [earlier for earlier in list(waiting) if earlier <= checkpoint_id]:
                del waiting[covered]
        for store in self._stores.values():
            store.completed(checkpoint_id)

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget a checkpoint; what it wrote, or is still writing, is removed when the writer is done with it."""
        for store in self._stores.values():
            store.aborted(checkpoint_id)
        self._writing.submit(self._remove_files_of, self._snapshots.pop(checkpoint_id, None))

    def _remove_files_of(self, snapshot: Future[SlotSnapshot] | None) -> None:
        if snapshot is None or snapshot.exception() is not None or self._storage is None:
            return
        for file in snapshot.result().new_files:
            self._storage.delete(file.path)

    def close(self) -> None:
        """Close every function that was opened, also after a failure; the first error is raised at the end."""
        self._writing.shutdown(wait=True)
        errors: list[Exception] = []
        closings = [("sink", w.close) for w in self._writers.values()]
        closings += [(op.name, op.rich_function.close) for op in reversed(self._opened) if op.rich_function is not None]
        for name, closing in closings:
            try:
                closing()
            except Exception as error:  # noqa: BLE001  the user's code may raise anything; the others must close too
                errors.append(user_error(name, "(none: in close)", error))
        self._opened, self._writers = [], {}
        if errors:
            raise errors[0]

    def _open_levels(self) -> dict[int, RunningLevel]:
        levels = {}
        try:
            for level in self._plan.levels:
                mine = [op for op in level.operators if self._setup.subtask < (op.parallelism or 1)]
                here = {op.id: self._open_operator(_own_copy(op)) for op in mine}
                levels[level.index] = running_level(self._plan, level, here)
        except BaseException:
            self.close()
            raise
        return levels

    def _open_operator(self, operator: Operator) -> RunningOperator:
        if operator.key is not None and operator.is_stateful and not isinstance(operator.kind, SinkKind):
            self._stores[operator.id] = self._open_store(operator)
        if isinstance(operator.kind, SinkKind) and not operator.kind.spec.returns_to_spark:
            setup = self._setup
            context = WriterContext(
                setup.job_id, self._uid(operator.id), setup.attempt, setup.subtask, operator.parallelism or 1
            )
            self._writers[operator.id] = operator.kind.spec.open_writer(context)
        store = self._stores.get(operator.id)
        context_of = FunctionContext(operator.name, self._setup.subtask, operator.parallelism or 1, store)
        self._opened.append(operator)
        process = make_process(operator, context=context_of, store=store, writer=self._writers.get(operator.id))
        return RunningOperator(operator, process)

    def _open_store(self, operator: Operator) -> KeyedStateStore:
        assert operator.key is not None
        setup, restore = self._setup, self._setup.restore
        groups = key_group_range(setup.subtask, operator.parallelism or 1, self._plan.max_parallelism)
        owner = StoreOwner(
            uid=self._uid(operator.id),
            subtask=setup.subtask,
            attempt=setup.attempt,
            key_groups=groups,
            max_parallelism=self._plan.max_parallelism,
            key_type=operator.key.type,
        )
        if restore is None:
            return setup.backend.open(owner, (), None, "", claim=True)
        storage = subtree(self._restore_storage or open_storage(restore.storage), restore.directory)
        # Only what the subtask owns: with the same parallelism as before that is one handle, which it may build on.
        handles = [
            handle
            for handle in restore.keyed.get(owner.uid, ())
            if handle.key_groups.first <= groups.last and groups.first <= handle.key_groups.last
        ]
        return setup.backend.open(owner, handles, storage, "", claim=restore.claim)

    def _transactional(self) -> Iterator[tuple[int, SinkWriter]]:
        for op, writer in self._writers.items():
            kind = self._operator(op).kind
            if isinstance(kind, SinkKind) and kind.spec.is_transactional:
                yield op, writer

    def _operator(self, op: int) -> Operator:
        return next(each for each in self._plan.operators if each.id == op)

    def _uid(self, op: int) -> OperatorUid:
        operator = self._operator(op)
        return operator.uid or OperatorUid(f"operator-{op}")

    def _refuse_if_broken(self) -> None:
        reason = self._lost_output or self._broken
        if reason is not None:
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {reason}")

    def fail(self, reason: Any) -> None:
        """Refuse everything from now on."""
        self._broken = str(reason)


def _own_copy(operator: Operator) -> Operator:
    """An operator with a function object of its own: one given to two operators must not share its state."""
    if operator.rich_function is None:
        return operator
    return replace(operator, kind=cloudpickle.loads(cloudpickle.dumps(operator.kind)))


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
