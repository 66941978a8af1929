"""The directory of one round: the job's input, output and checkpoints, and how to read them back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BATCHES = 8
FILES_PER_BATCH = 2
"""An epoch reads one batch of this many input files, so the number of batches is that of epochs with records."""

_FIRST_MODIFIED = 1_700_000_000


@dataclass(frozen=True)
class Place:
    """A job's directories below one root. The temporary directory may be shared with another job."""

    root: Path
    temporary: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def output(self) -> Path:
        """Holds one directory for each sink."""
        return self.root / "output"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def savepoints(self) -> Path:
        return self.root / "savepoints"

    def make(self) -> None:
        for directory in (self.input, self.output, self.checkpoints, self.savepoints, self.temporary):
            directory.mkdir(parents=True, exist_ok=True)

    def write_input(self, lines_of: Callable[[int, int], Sequence[str]]) -> None:
        """Write `lines_of(batch, number)` to each file. Modification times order the files, and so the batches."""
        for batch in range(BATCHES):
            for number in range(FILES_PER_BATCH):
                path = self.input / f"{batch:03d}-{number}.txt"
                path.write_text("".join(f"{line}\n" for line in lines_of(batch, number)))
                modified = _FIRST_MODIFIED + batch * FILES_PER_BATCH + number
                os.utime(path, (modified, modified))

    def read_input(self) -> list[list[str]]:
        """Return the lines of each batch."""
        paths = sorted(self.input.iterdir())
        batches = [paths[at : at + FILES_PER_BATCH] for at in range(0, len(paths), FILES_PER_BATCH)]
        return [[line for path in batch for line in path.read_text().splitlines()] for batch in batches]

    def published(self, sink: str) -> Iterator[Any]:
        """Yield the records that a reader of a sink's directory sees."""
        for part in (self.output / sink).glob("part-*"):
            for line in part.read_text().splitlines():
                yield json.loads(line)

    def job_directories(self) -> list[Path]:
        """Return the checkpoint directory of each job."""
        return sorted(path for path in self.checkpoints.iterdir() if not path.name.startswith("_"))
