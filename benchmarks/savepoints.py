"""The cost of a savepoint compared with reading it, and the speed of the state reader without a running job."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes

_FORMATS = (("hashmap", "CANONICAL"), ("rocksdb", "CANONICAL"), ("rocksdb", "NATIVE"))
_JUDGED = ("hashmap", "CANONICAL")
_READER_ENTRIES = 1_000_000  # per second, as Arrow


class Savepoints:
    def __init__(self, sides: Sides, sizes: Sizes, inputs: Path) -> None:
        self._sides = sides
        self._sizes = sizes
        self._directory = inputs

    def savepoint(self) -> list[Figure]:
        """Measure savepoints. Bars are for the default backend; the figures of RocksDB are for comparison.

        A savepoint is taken, restored and read one subtask after the other in one process, so that each figure is of
        one core.
        """
        figures = []
        for backend, format in _FORMATS:
            figures += self._of(backend, format)
        return sorted(figures, key=lambda figure: figure.bar is None)

    def _of(self, backend: str, format: str) -> list[Figure]:
        keys, rounds = self._sizes.kept_keys, self._sizes.restores
        what = f"{format.lower()} savepoint of {keys:_} keys, {backend}".replace("_", " ")
        taken, restored, read, pairs = [], [], [], []
        for turn in range(rounds):
            result = self._take(backend, format, turn, what)
            arguments = {"path": result["path"], "keys": keys}
            taken.append(result["seconds"])
            restored.append(
                self._sides.run(
                    "restore_savepoint",
                    f"restore the {what}",
                    backend=backend,
                    parallelism=self._sizes.parallelism,
                    **arguments,
                )["seconds"]
            )
            reading = self._sides.run("read_savepoint", f"read the {what}", **arguments)
            read.append(reading["seconds"])
            pairs.append(reading["pairs_seconds"])
        is_judged = (backend, format) == _JUDGED
        seconds = statistics.median(taken)
        return [
            Figure(
                f"{what}: taking it against restoring it, times as fast",
                statistics.median(restored) / seconds,
                at_least=1 if is_judged else None,
            ),
            Figure(
                f"{what}: taking it against reading it as Arrow, times as fast",
                statistics.median(read) / seconds,
                at_least=1 if is_judged else None,
            ),
            Figure(
                f"state reader, value state of ints as Arrow, {what}",
                keys / statistics.median(read),
                "entries/s",
                at_least=_READER_ENTRIES if is_judged else None,
            ),
            Figure(f"state reader, the same as Python pairs, {what}", keys / statistics.median(pairs), "entries/s"),
            Figure(f"{what}: taken in", seconds, "s"),
            Figure(f"{what}: taken in, with no checkpoint before it", self._anew(backend, format, what), "s"),
        ]

    def _take(self, backend: str, format: str, turn: int, what: str, *, has_checkpoint: bool = True) -> Any:
        return self._sides.run(
            "take_savepoint",
            what if has_checkpoint else f"{what}, with no checkpoint before it",
            directory=str(self._directory / f"savepoint-{backend}-{format}-{turn}"),
            backend=backend,
            format=format,
            keys=self._sizes.kept_keys,
            parallelism=self._sizes.parallelism,
            has_checkpoint=has_checkpoint,
        )

    def _anew(self, backend: str, format: str, what: str) -> float:
        """Measure a job without checkpoints, which has no files to copy: all state is written out."""
        return float(self._take(backend, format, self._sizes.restores, what, has_checkpoint=False)["seconds"])
