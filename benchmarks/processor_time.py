"""Processor seconds of a side: of all its processes, wherever they were started from, over time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MARK = "CHECKDAM_BENCHMARK"
"""The environment variable that tells the processes of a side from all others; children inherit it."""

_EVERY_SECONDS = 0.25
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessorTime:
    """Reads, several times a second, what the processes with a mark have used since they started.

    A process that has ended keeps counting with what it was last seen to have used.
    """

    def __init__(self, mark: str) -> None:
        self._needle = f"{MARK}={mark}".encode()
        self._used: dict[tuple[int, str], float] = {}  # by process id and start
        self._moments: list[float] = []
        self._totals: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read_often, name="processor-time", daemon=True)

    def __enter__(self) -> ProcessorTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def at(self, moment: float) -> float:
        """Return the seconds used up to a moment of `time.perf_counter`."""
        return float(np.interp(moment, self._moments, self._totals)) if self._moments else 0.0

    def _read_often(self) -> None:
        while True:
            self._read()
            if self._stopped.wait(_EVERY_SECONDS):
                return

    def _read(self) -> None:
        for pid in self._marked():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            self._used[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        self._moments.append(time.perf_counter())
        self._totals.append(sum(self._used.values()))

    def _marked(self) -> Iterator[int]:
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    environment = Path(f"/proc/{name}/environ").read_bytes()
                except OSError:
                    continue  # it has just ended, or belongs to another user
                if self._needle in environment.split(b"\0"):
                    yield int(name)
