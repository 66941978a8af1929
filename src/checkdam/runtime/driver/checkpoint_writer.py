"""Makes checkpoints and savepoints durable, publishes their output and deletes what is no longer needed.

Everything here runs on lanes, never in the loop of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.errors import CheckdamError, OutputLostError, StorageError, StorageUncertainError
from checkdam.ids import CheckpointId
from checkdam.runtime.driver.event_loop import EventLoop
from checkdam.runtime.driver.outputs import Outputs
from checkdam.state.snapshot_handles import SlotSnapshot, StateFile

T = TypeVar("T")


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint whose metadata is durable."""

    checkpoint: CompletedCheckpoint
    path: str
    metadata_bytes: int


@dataclass(frozen=True)
class IncompleteCheckpoint:
    """A checkpoint that refers to files that are gone."""

    reason: str


class CheckpointWriter:
    """Changes the job's checkpoints at its storage, and savepoints at the user's directories."""

    def __init__(self, store: CheckpointStore | None, outputs: Outputs, timeout: timedelta, loop: EventLoop) -> None:
        self._maybe_store = store
        self._outputs = outputs
        self._timeout = timeout.total_seconds()
        self._loop = loop
        self._has_undiscarded = False  # metadata of a dropped checkpoint may still exist

    @property
    def _store(self) -> CheckpointStore:
        assert self._maybe_store is not None
        return self._maybe_store

    # -- checkpoints --------------------------------------------------------------------------------------------

    def write(self, checkpoint: CompletedCheckpoint) -> WrittenCheckpoint | IncompleteCheckpoint | CheckdamError:
        """Write a checkpoint's metadata. A raised error ends the attempt; a returned one fails only this checkpoint."""
        store = self._store
        try:
            missing = store.missing(checkpoint.files())
            if missing is not None:
                return IncompleteCheckpoint(f"its {missing}")
            self._outputs.verify((entry.uid, entry.committables) for entry in checkpoint.operators)
            path = store.write(checkpoint)
        except (OutputLostError, StorageError) as error:
            return error
        metadata_bytes = store.metadata_bytes
        store.check()  # before publishing: a driver that takes over from now on has seen the checkpoint
        return WrittenCheckpoint(checkpoint, path, metadata_bytes)

    def publish(self, checkpoint: CompletedCheckpoint, oldest: CheckpointId | None) -> None:
        """Publish the output that the checkpoint covers."""
        try:
            self._outputs.publish(checkpoint, oldest)
        except OutputLostError:
            self._store.check()
            raise

    def publish_without_checkpoint(self, snapshots: Iterable[SlotSnapshot]) -> None:
        """Publish the output of a bounded job at its end, if checkpoints are off."""
        found = [(operator.uid, operator.committables) for each in snapshots for operator in each.operators]
        self._outputs.verify(found)
        for uid, committables in found:
            self._outputs.commit(uid, committables)

    def discard(self, checkpoint_ids: Sequence[CheckpointId], files: Sequence[StateFile]) -> None:
        """Remove older checkpoints, and files that no checkpoint needs without them."""
        self._store.check()
        had_undiscarded, self._has_undiscarded = self._has_undiscarded, True
        for checkpoint_id in checkpoint_ids:
            self._store.discard(checkpoint_id)
        self._has_undiscarded = had_undiscarded  # an earlier one that failed may need some of the files
        if not had_undiscarded:
            self._store.delete_files(files)

    def remove(self, checkpoint_id: CheckpointId) -> None:
        """Remove the metadata of a withdrawn checkpoint."""
        self._store.check()  # else another driver may have gone on from it
        self._store.discard(checkpoint_id)

    def delete(self, files: Sequence[StateFile]) -> None:
        if self._has_undiscarded:
            return  # a checkpoint that could not be discarded may need them: the next attempt sweeps by what is there
        self._store.check()
        self._store.delete_files(files)

    # -- looks at the storage -----------------------------------------------------------------------------------

    def missing(self, files: frozenset[StateFile]) -> str | None:
        """Describe the files that are gone; None if there are none, or storage does not answer."""
        if self._maybe_store is None or not files:
            return None
        try:
            return self._maybe_store.missing(files)
        except StorageError:
            return None  # then writing fails too, and reports the failure

    def is_gone(self, checkpoint_id: CheckpointId, files: frozenset[StateFile]) -> bool:
        """Return whether a completed checkpoint, or a file of it, is gone; False if storage does not answer."""
        store = self._store

        def look() -> bool:
            return not store.has(checkpoint_id) or store.missing(files) is not None

        try:
            return self._loop.within(self._timeout, f"looking at checkpoint {checkpoint_id}", look)
        except (StorageError, TimeoutError):
            return False

    # -- savepoints ---------------------------------------------------------------------------------------------

    def write_savepoint(
        self, checkpoint: CompletedCheckpoint, directory: SavepointDirectory
    ) -> WrittenCheckpoint | CheckdamError:
        """Write the metadata of a savepoint. Its output is not published: the job's own checkpoints do that."""
        outputs = self._outputs
        job_uri = self._maybe_store.uri if self._maybe_store is not None else "the storage"
        try:
            self._in_time(job_uri, lambda: outputs.note(checkpoint))
            self._in_time(job_uri, lambda: outputs.verify_savepoint(checkpoint))
            path, metadata_bytes = self._in_time(directory.uri, lambda: directory.complete(checkpoint))
            self._in_time(job_uri, lambda: outputs.verify_savepoint(checkpoint))  # writing may have taken long
            self._in_time(job_uri, outputs.check_term)  # a driver that has taken over might not keep the output
        except CheckdamError as error:
            return error
        finally:
            outputs.savepoint_ended(checkpoint.checkpoint_id)
        outputs.promise(checkpoint)
        return WrittenCheckpoint(checkpoint, path, metadata_bytes)

    def abandon_savepoint(self, directory: SavepointDirectory) -> str | None:
        """Remove a savepoint that failed. Return what could not be removed, if anything."""
        try:
            self._in_time(directory.uri, directory.abandon)
        except CheckdamError as error:  # the directory is the user's: trouble there must not affect the job
            return f"and something of it is still at {directory.uri}: {error}"
        return None

    def _in_time(self, uri: str, work: Callable[[], T]) -> T:
        """Do work that must not take longer than the checkpoint timeout.

        Raises:
            StorageUncertainError: the storage does not answer.
        """
        try:
            return self._loop.within(self._timeout, "writing a savepoint", work)
        except TimeoutError as error:
            raise StorageUncertainError(f"{uri} does not answer: {error}") from error
