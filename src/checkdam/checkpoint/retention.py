"""Retention: which checkpoints stay, and which state files can be deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import StateFile


class RetainedCheckpoint(Protocol):
    """The part of a completed checkpoint that retention needs."""

    @property
    def checkpoint_id(self) -> CheckpointId: ...

    def files(self) -> frozenset[StateFile]:
        """Return every state file that a restore of it would read."""


C = TypeVar("C", bound=RetainedCheckpoint)


def checkpoints_to_drop(retained: Collection[C], num_retained: int) -> list[C]:
    """Return all but the newest `num_retained`, oldest first."""
    by_age = sorted(retained, key=lambda checkpoint: checkpoint.checkpoint_id)
    return by_age[: max(0, len(by_age) - num_retained)]


class SharedFiles:
    """Reference counts of state files, by path.

    A file is released for deletion once: when it belongs to the job and its last reference goes. Files in `foreign`
    (of another job's checkpoint, or a savepoint, from which this job was restored) are never released.
    """

    def __init__(self, foreign: Iterable[StateFile] = ()) -> None:
        self._foreign = frozenset(file.path for file in foreign)
        self._references: Counter[str] = Counter()
        self._own: dict[str, StateFile] = {}

    def register(self, checkpoint: RetainedCheckpoint) -> None:
        """Register a completed checkpoint of this job; its files become the job's own."""
        files = checkpoint.files()
        self.own(files)
        self.acquire(files)

    def release(self, checkpoint: RetainedCheckpoint) -> frozenset[StateFile]:
        """Unregister a checkpoint; return its files that are unreferenced now."""
        return self.let_go(checkpoint.files())

    def own(self, files: Iterable[StateFile]) -> None:
        """Mark files as written by this job, which makes it responsible for deleting them."""
        self._own.update((file.path, file) for file in files if file.path not in self._foreign)

    def acquire(self, files: Iterable[StateFile]) -> None:
        """Add one reference to each file, whether or not it is known to be the job's own."""
        self._references.update({file.path for file in files})

    def let_go(self, files: Iterable[StateFile]) -> frozenset[StateFile]:
        """Undo one `acquire` of the same files; return the own files that are unreferenced now."""
        paths = {file.path for file in files}
        for path in paths:
            if self._references[path] <= 0:
                raise ValueError(f"{path} is let go more often than it was acquired")
            self._references[path] -= 1
        return self._give_up(paths)

    def give_up_unreferenced(self, files: Iterable[StateFile]) -> frozenset[StateFile]:
        """Return the unreferenced files among these that are the job's own."""
        return self._give_up({file.path for file in files})

    def _give_up(self, paths: Iterable[str]) -> frozenset[StateFile]:
        unreferenced = [path for path in paths if self._references[path] == 0]
        for path in unreferenced:
            del self._references[path]
        return frozenset(self._own.pop(path) for path in unreferenced if path in self._own)
