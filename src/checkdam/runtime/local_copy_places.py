"""The local directories in which the slots of a job keep copies of their snapshots."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkdam import config
from checkdam.config import Configuration
from checkdam.ids import SubtaskIndex


@dataclass(frozen=True)
class LocalCopyPlaces:
    """The parent directories that the settings name, by default one; and the job's own directories below them.

    The job's directories outlive its slots, and are removed with the job.
    """

    parents: tuple[Path, ...]
    directories: tuple[Path, ...] = ()

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> LocalCopyPlaces | None:
        """Return the parent directories; None if no copies are wanted."""
        if not configuration.get(config.RESTORE_FROM_LOCAL):
            return None
        named = configuration.get(config.LOCAL_COPIES_DIR) or tempfile.gettempdir()
        return cls(tuple(map(Path, named.split(","))))

    def of_subtask(self, subtask: SubtaskIndex) -> Path | None:
        """Return the directory of one subtask; subtasks take turns among several disks. None before they are made."""
        if not self.directories:
            return None
        return self.directories[subtask % len(self.directories)] / str(subtask)


@contextmanager
def made(places: LocalCopyPlaces, make: Callable[[Path], Path]) -> Iterator[LocalCopyPlaces]:
    """Make the directories of a job with `make(parent)`, and remove them at the end."""
    directories: list[Path] = []
    try:
        directories += map(make, places.parents)
        yield LocalCopyPlaces(places.parents, tuple(directories))
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)  # what a dying slot still writes there goes with the driver
