"""The snapshots of one slot: taken in the processing thread, written in another, forgotten when complete or aborted."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import xxhash

from checkdam.backends.contract import KeyedStateStore, PendingSnapshot
from checkdam.checkpoint.operator_state_file import keep_packed, pack
from checkdam.connectors.contract import FinishOutput, SinkWriter
from checkdam.errors import CheckpointDeclinedError, SlotLostError, StorageError
from checkdam.graph.operators import SinkKind
from checkdam.ids import CheckpointId
from checkdam.runtime.slot.context import SnapshotContext
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.operator_setup import OpenOperator
from checkdam.runtime.slot.slot_files import SHARED
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStatePart,
    SavepointFormat,
    SavepointTarget,
    SlotSnapshot,
    StateFile,
)
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.local_copies import LocalCopies
from checkdam.storage.memory_storage import ADVICE, FileTooLargeError

Operators = Mapping[int, OpenOperator]

_OperatorFiles = dict[int, tuple[bytes, OperatorStateHandle]]
"""By operator, the digest of its operator state and the file that holds it."""


def stores(operators: Operators) -> Iterator[tuple[int, KeyedStateStore]]:
    for op, opened in operators.items():
        if opened.store is not None:
            yield op, opened.store


def transactional(operators: Operators) -> Iterator[tuple[int, SinkWriter]]:
    for op, opened in operators.items():
        kind = opened.operator.kind
        if opened.writer is not None and isinstance(kind, SinkKind) and kind.spec.is_transactional:
            yield op, opened.writer


def one_thread(name: str) -> Executor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


class _Seconds:
    """The seconds that each operator took for its part."""

    def __init__(self) -> None:
        self.of: defaultdict[int, float] = defaultdict(float)

    @contextmanager
    def measured(self, op: int) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.of[op] += time.perf_counter() - started


@dataclass(frozen=True)
class _Savepoint:
    """An open directory of a savepoint."""

    files: Storage
    is_canonical: bool


@dataclass(frozen=True)
class _SyncPart:
    """The result of the synchronous part of a snapshot, input of the asynchronous one."""

    checkpoint_id: CheckpointId
    savepoint: _Savepoint | None
    full: bool  # refers to no file of another checkpoint
    parts: dict[int, tuple[OperatorStatePart, ...]]
    finished: frozenset[int]
    keyed_snapshots: dict[int, PendingSnapshot]
    prepared: dict[int, FinishOutput]
    sync: _Seconds
    sync_seconds: float


@dataclass(frozen=True)
class _Written:
    """A snapshot that is durable or being written; `savepoint` is its directory, None: the job's own."""

    snapshot: Future[SlotSnapshot]
    savepoint: _Savepoint | None
    is_aborted: threading.Event = field(default_factory=threading.Event)
    is_settled: threading.Event = field(default_factory=threading.Event)  # written, failed or aborted

    def __post_init__(self) -> None:
        self.snapshot.add_done_callback(lambda _: self.is_settled.set())

    def abort(self) -> None:
        self.is_aborted.set()
        self.is_settled.set()


class SnapshotWriter:
    """Takes the snapshots of a slot's operators. `snapshot` may be awaited while epochs continue.

    Checkpoints are written one after another. A savepoint may take long, and its storage may be slow: it is written by
    a thread of its own, so that checkpoints continue meanwhile.
    """

    def __init__(
        self,
        setup: SlotSetup,
        storage: Storage | None,
        operators: Operators,
        executors: Callable[[str], Executor] = one_thread,
        copies: LocalCopies | None = None,
    ) -> None:
        self._setup = setup
        self._storage = storage  # the job's own directory; None: no checkpoints, only savepoints
        self._operators = operators
        self._written: dict[CheckpointId, _Written] = {}
        self._unpublished: dict[int, dict[CheckpointId, tuple[bytes, ...]]] = {}
        self._operator_files: dict[CheckpointId, _OperatorFiles] = {}  # of checkpoints in progress
        self._completed_files: _OperatorFiles = {}  # of the last completed one
        self._copies = copies
        self._files: dict[CheckpointId, frozenset[str]] = {}  # the paths that a checkpoint in progress refers to
        self._completed_paths = frozenset[str]() if copies is None else copies.paths  # those of the last completed one
        self._writing = executors("snapshot")
        self._saving = executors("savepoint")
        self.lost_output: str | None = None  # set by the writing thread; no later checkpoint could cover it

    def begin(self, context: SnapshotContext, savepoint: SavepointTarget | None, *, full: bool) -> float:
        """Take the synchronous part of a snapshot, as of now. Return the seconds it took.

        A function that fails in snapshot_state, or has state that cannot be stored, fails this checkpoint only: the
        output of sinks is set aside last, when nothing can fail any more.
        """
        started = time.perf_counter()
        checkpoint_id = CheckpointId(context.checkpoint_id)
        place = None if savepoint is None else _opened(savepoint)
        sync = _Seconds()
        parts: dict[int, tuple[OperatorStatePart, ...]] = {}
        keyed_snapshots: dict[int, PendingSnapshot] = {}
        prepared: dict[int, FinishOutput] = {}
        if self._storage is not None or place is not None:
            for op, opened in self._operators.items():
                with sync.measured(op):
                    parts[op] = opened.snapshot_state(context)
            for op, store in stores(self._operators):
                with sync.measured(op):
                    keyed_snapshots[op] = store.snapshot(checkpoint_id, full=full)
        finished = frozenset(op for op, opened in self._operators.items() if opened.is_finished)
        for op, writer in transactional(self._operators):
            with sync.measured(op):
                prepared[op] = writer.snapshot()
        elapsed = time.perf_counter() - started
        taken = _SyncPart(checkpoint_id, place, full, parts, finished, keyed_snapshots, prepared, sync, elapsed)
        # Output is staged in the order of checkpoints and savepoints: the next one publishes what this one set aside.
        output = self._writing.submit(self._prepare, taken)
        writer_thread = self._writing if place is None else self._saving
        self._written[checkpoint_id] = _Written(writer_thread.submit(self._write, taken, output), place)
        return elapsed

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        """Wait for the asynchronous part of a checkpoint, or for its abort: its storage may hang."""
        written = self._written[checkpoint_id]
        try:
            written.is_settled.wait()
            if written.is_aborted.is_set():
                raise CheckpointDeclinedError(f"checkpoint {checkpoint_id} was aborted")
            return written.snapshot.result()
        finally:
            self._written.pop(checkpoint_id, None)

    def completed(self, checkpoint_id: CheckpointId) -> None:
        for waiting in self._unpublished.values():
            for covered in [earlier for earlier in list(waiting) if earlier <= checkpoint_id]:
                del waiting[covered]
        self._completed_files = self._operator_files.get(checkpoint_id, {})
        for settled in [each for each in list(self._operator_files) if each <= checkpoint_id]:
            self._operator_files.pop(settled, None)
        for _, store in stores(self._operators):
            store.completed(checkpoint_id)
        self._remove_copies(checkpoint_id)

    def _remove_copies(self, completed: CheckpointId) -> None:
        """Remove the local copies that neither a completed checkpoint nor a later one refers to."""
        referred = self._files.get(completed)
        if self._copies is None or referred is None:
            return
        settled = [each for each in list(self._files) if each <= completed]
        earlier = self._completed_paths.union(*(self._files.pop(each) for each in settled))
        self._completed_paths = referred
        self._copies.remove(earlier.difference(referred, *list(self._files.values())))

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget a checkpoint; its files are removed when the writer is done with it."""
        self._operator_files.pop(checkpoint_id, None)
        self._files.pop(checkpoint_id, None)
        for _, store in stores(self._operators):
            store.aborted(checkpoint_id)
        written = self._written.pop(checkpoint_id, None)
        if written is not None:
            written.abort()
            (self._writing if written.savepoint is None else self._saving).submit(self._undo, written)

    def released(self, checkpoint_id: CheckpointId) -> None:
        """Release a completed savepoint: no snapshot builds on its files, and none removes them.

        Its output keeps waiting for the next checkpoint to publish it.
        """
        for _, store in stores(self._operators):
            store.aborted(checkpoint_id)  # the next snapshot includes its changes again
        self._written.pop(checkpoint_id, None)

    def close(self) -> None:
        """Wait for writes in progress."""
        self._writing.shutdown(wait=True)
        self._saving.shutdown(wait=True)

    # ---- in the writing threads

    def _prepare(self, taken: _SyncPart) -> tuple[dict[int, tuple[bytes, ...]], _Seconds]:
        """Stage the output first: if the state cannot be written, the next checkpoint still publishes the output."""
        seconds = _Seconds()
        committables: dict[int, tuple[bytes, ...]] = {}
        for op, prepare in taken.prepared.items():
            with seconds.measured(op):
                committables[op] = self._prepared(op, taken.checkpoint_id, prepare)
        return committables, seconds

    def _prepared(self, op: int, checkpoint_id: CheckpointId, prepare: FinishOutput) -> tuple[bytes, ...]:
        """Return the output to publish with this checkpoint, including earlier staged output never published."""
        waiting = self._unpublished.setdefault(op, {})
        try:
            waiting[checkpoint_id] = waiting.get(checkpoint_id, ()) + prepare()
        except Exception as error:
            self.lost_output = f"output of {self._operators[op].operator.title} was not written: {error}"
            raise SlotLostError(f"slot {self._setup.subtask} gave up: {self.lost_output}") from error
        earlier = waiting.copy()  # `completed` may remove from it meanwhile
        return tuple(each for number in sorted(earlier) for each in earlier[number])

    def _write(self, taken: _SyncPart, output: Future[tuple[dict[int, tuple[bytes, ...]], _Seconds]]) -> SlotSnapshot:
        committables, seconds = output.result()
        started = time.perf_counter() - sum(seconds.of.values())
        keyed: dict[int, KeyedStateHandle] = {}
        operator: dict[int, OperatorStateHandle] = {}
        new_files: dict[int, list[StateFile]] = defaultdict(list)
        try:
            for op, parts in taken.parts.items():
                if parts:
                    with seconds.measured(op), self._bounded(op):
                        operator[op] = self._write_operator_state(op, taken, parts, new_files[op])
            for op, snapshot in taken.keyed_snapshots.items():
                with seconds.measured(op), self._bounded(op):
                    keyed[op] = self._write_keyed_state(taken, snapshot)
                    new_files[op].extend(snapshot.new_files)
                    self._check_size(taken, keyed[op])
        except BaseException:
            self._remove(taken.savepoint, [file for files in new_files.values() for file in files])
            raise
        if self._copies is not None and taken.savepoint is None:
            self._files[taken.checkpoint_id] = _paths(keyed, operator)
        operators = tuple(
            OperatorSnapshot(
                uid=self._operators[op].uid,
                name=self._operators[op].operator.name,
                keyed=keyed.get(op),
                committables=committables.get(op, ()),
                operator_state=operator.get(op),
                is_finished=op in taken.finished,
                sync_seconds=taken.sync.of[op],
                async_seconds=seconds.of[op],
                new_bytes=sum(file.size for file in new_files[op])
                + (0 if (inline := operator.get(op)) is None else inline.inline_bytes),
                state_bytes=_state_bytes(keyed.get(op), operator.get(op)),
            )
            for op in sorted(keyed.keys() | operator.keys() | committables.keys() | taken.finished)
        )
        return SlotSnapshot(
            checkpoint_id=taken.checkpoint_id,
            subtask=self._setup.subtask,
            operators=operators,
            new_files=tuple(file for files in new_files.values() for file in files),
            sync_seconds=taken.sync_seconds,
            async_seconds=time.perf_counter() - started,
            state_bytes=sum(each.state_bytes for each in operators),
        )

    @contextmanager
    def _bounded(self, op: int) -> Iterator[None]:
        """Name the operator whose state is too large for its storage."""
        try:
            yield
        except FileTooLargeError as error:
            opened = self._operators[op]
            raise CheckpointDeclinedError(
                f'the state of operator "{opened.operator.name}" (uid "{opened.uid}") in subtask {self._setup.subtask} '
                f"has {error.size:,} bytes or more, and checkpoints in memory take at most {error.limit:,} a state",
                hint=ADVICE,
            ) from error

    def _check_size(self, taken: _SyncPart, keyed: KeyedStateHandle) -> None:
        """Refuse a state whose files together are too large; the storage sees only single files."""
        memory = self._setup.driver_memory
        if taken.savepoint is None and memory is not None and memory.max_state_size is not None:
            size = _state_bytes(keyed, None)
            if size > memory.max_state_size:
                raise FileTooLargeError(memory.uri, size, memory.max_state_size)

    def _write_keyed_state(self, taken: _SyncPart, snapshot: PendingSnapshot) -> KeyedStateHandle:
        if taken.savepoint is not None:
            return snapshot.write_whole(taken.savepoint.files, self._storage, canonical=taken.savepoint.is_canonical)
        assert self._storage is not None
        return snapshot.write(self._storage, SHARED)

    def _write_operator_state(
        self, op: int, taken: _SyncPart, parts: tuple[OperatorStatePart, ...], new_files: list[StateFile]
    ) -> OperatorStateHandle:
        owner = f"{xxhash.xxh3_128_hexdigest(self._operators[op].uid.encode())}-{self._setup.subtask}"
        path = f"{owner}-{taken.checkpoint_id}-{self._setup.attempt}.operator"
        files = self._storage
        if taken.savepoint is not None:
            files = taken.savepoint.files
        else:
            path = f"{SHARED}/{path}"
        assert files is not None
        content, offsets = pack(parts)
        digest = xxhash.xxh3_128_digest(content)
        known = self._completed_files.get(op)
        if known is not None and known[0] == digest and taken.savepoint is None and not taken.full:
            handle = known[1]  # unchanged: the existing file is reused
        else:
            new_files.append(StateFile(path, 0))  # so that a partly written file is removed
            handle = keep_packed(content, offsets, files, path)
            new_files[-1:] = [handle.content] if isinstance(handle.content, StateFile) else []
        if taken.savepoint is None and isinstance(handle.content, StateFile):
            self._operator_files.setdefault(taken.checkpoint_id, {})[op] = digest, handle
        return handle

    def _undo(self, written: _Written) -> None:
        """Remove what was written for a checkpoint, or all of a savepoint that the driver has given up."""
        if written.savepoint is not None:
            with suppress(StorageError):  # the driver removes the directory, too
                written.savepoint.files.delete_directory("")
        elif written.snapshot.exception() is None:
            self._remove(None, written.snapshot.result().new_files)

    def _remove(self, savepoint: _Savepoint | None, files: Sequence[StateFile]) -> None:
        """Remove files that no checkpoint will need; the next start sweeps what cannot be removed."""
        storage = self._storage if savepoint is None else savepoint.files
        for file in files:
            assert storage is not None
            with suppress(StorageError):
                storage.delete(file.path)


def _opened(target: SavepointTarget) -> _Savepoint:
    return _Savepoint(open_storage(target.directory), target.format is SavepointFormat.CANONICAL)


def _state_bytes(keyed: KeyedStateHandle | None, operator: OperatorStateHandle | None) -> int:
    in_files = 0 if keyed is None else sum(file.size for file in keyed.files)
    if operator is None:
        return in_files
    content = operator.content
    return in_files + (len(content) if isinstance(content, bytes) else content.size)


def _paths(keyed: Mapping[int, KeyedStateHandle], operator: Mapping[int, OperatorStateHandle]) -> frozenset[str]:
    """Return the paths of all files that a snapshot refers to."""
    files = [file for handle in keyed.values() for file in handle.files]
    files += [handle.content for handle in operator.values() if isinstance(handle.content, StateFile)]
    return frozenset(file.path for file in files)
