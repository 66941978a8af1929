"""Which checkpoints stay, and which state files nobody needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import StateFile


class RetainedCheckpoint(Protocol):
    """A completed checkpoint, as far as retention looks at it."""

    @property
    def checkpoint_id(self) -> CheckpointId: ...

    def files(self) -> frozenset[StateFile]:
        """Every state file that restoring it would read."""


C = TypeVar("C", bound=RetainedCheckpoint)


def checkpoints_to_drop(retained: Collection[C], num_retained: int) -> list[C]:
    """All but the newest `num_retained`, oldest first."""
    by_age = sorted(retained, key=lambda checkpoint: checkpoint.checkpoint_id)
    return by_age[: max(0, len(by_age) - num_retained)]


class SharedFiles:
    """Counts who refers to each state file, by its path.

    A file is given up for deletion once: when it is the job's own and the last reference to it goes. Files in `foreign`
    (of a checkpoint of another job, or a savepoint, that this job was restored from) are never given up.
    """

    def __init__(self, foreign: Iterable[StateFile] = ()) -> None:
        self._foreign = frozenset(file.path for file in foreign)
        self._references: Counter[str] = Counter()
        self._own: dict[str, StateFile] = {}

    def register(self, checkpoint: RetainedCheckpoint) -> None:
        """Take a completed checkpoint of this job into account; its files are the job's own."""
        files = checkpoint.files()
        self.own(files)
        self.acquire(files)

    def release(self, checkpoint: RetainedCheckpoint) -> frozenset[StateFile]:
        """Forget a registered checkpoint; returns the files that nobody refers to now."""
        return self.let_go(checkpoint.files())

    def own(self, files: Iterable[StateFile]) -> None:
        """Say that this job has written the files, so that it is the one to delete them."""
        self._own.update((file.path, file) for file in files if file.path not in self._foreign)

    def acquire(self, files: Iterable[StateFile]) -> None:
        """Add one reference to each file, also to one that is not known to be the job's own."""
        self._references.update({file.path for file in files})

    def let_go(self, files: Iterable[StateFile]) -> frozenset[StateFile]:
        """Take back one `acquire` of the same files; returns the own files that nobody refers to now."""
        paths = {file.path for file in files}
        for path in paths:
            if self._references[path] <= 0:
                raise ValueError(f"{path} is let go more often than it was acquired")
            self._references[path] -= 1
        return self._give_up(paths)

    def give_up_unreferenced(self, files: Iterable[StateFile]) -> frozenset[StateFile]:
        """Those of the job's own files among these that nobody refers to."""
        return self._give_up({file.path for file in files})

    def _give_up(self, paths: Iterable[str]) -> frozenset[StateFile]:
        unreferenced = [path for path in paths if self._references[path] == 0]
        for path in unreferenced:
            del self._references[path]
        return frozenset(self._own.pop(path) for path in unreferenced if path in self._own)
