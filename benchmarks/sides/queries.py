"""A job that counts words at full load while another process queries its state."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.sides.jobs import SETTINGS, Count, Watch
from checkdam import StreamExecutionEnvironment
from checkdam.api.launch import Launch, set_launch
from checkdam.config import Configuration
from checkdam.ids import JobId
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.server.app.rest_server import RestServer

_TICKS = os.sysconf("SC_CLK_TCK")


class AskedWatch(Watch):
    """Starts the queries after the first epochs, and records the processor time that each process has used by then.

    The queries end with the last epoch: the end of the job would be counted as a failure to answer.
    """

    def __init__(
        self, url: str, *, keys: int, rate: float, batch: int, asks_slots: bool, first: int, last: int
    ) -> None:
        super().__init__()
        self._url = url
        self._arguments = [str(keys), str(rate), str(batch), str(int(asks_slots))]
        self._is_asked = rate > 0
        self._first = first
        self._last = last
        self._job: JobId | None = None
        self._slots: list[int] = []
        self._before: dict[str, float] = {}
        self._asker: subprocess.Popen[str] | None = None

    def job_started(self, job_id: JobId, name: str, parallelism: int) -> None:
        self._job = job_id

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        self._slots = [slot.pid for slot in slots]

    def epoch_ended(self, stats: EpochStats) -> None:
        super().epoch_ended(stats)
        if len(self.epochs) == self._first - 1:
            self._before = self._used()
            if self._is_asked:
                self._asker = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.sides.asking", self._url, str(self._job), *self._arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
        if len(self.epochs) == self._last and self._asker is not None:
            assert self._asker.stdin is not None
            self._asker.stdin.close()
        self.used = {where: seconds - self._before.get(where, 0.0) for where, seconds in self._used().items()}

    def asked(self) -> dict[str, Any]:
        if self._asker is None:
            return {}
        assert self._asker.stdout is not None
        told = self._asker.stdout.read()
        self._asker.wait()
        answer: dict[str, Any] = json.loads(told)
        return answer

    def _used(self) -> dict[str, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return {"driver": own.ru_utime + own.ru_stime, "slots": sum(map(_cpu_seconds, self._slots))}


def run(
    *,
    path: str,
    files_per_epoch: int,
    keys: int,
    rate: float,
    batch: int,
    asks_slots: bool,
    first: int,
    last: int,
    backend: str,
) -> Any:
    """Count the words in `path`; after the first epochs, with `rate` queries per second of `batch` keys each."""
    configuration = Configuration.load(None, {"rest.port": "0"})
    with RestServer(configuration) as server:
        watch = AskedWatch(server.url, keys=keys, rate=rate, batch=batch, asks_slots=asks_slots, first=first, last=last)
        launch = Launch(configuration, listener=watch)
        launch.host = server
        set_launch(launch)
        env = StreamExecutionEnvironment.get_execution_environment({**SETTINGS, "state.backend.type": backend})
        words = env.read_text(path, max_files_per_epoch=files_per_epoch)
        counts = words.key_by(lambda word: word).process(Count(), output_type=tuple[str, int]).uid("count")
        counts.sink_to_files(os.path.abspath("output"), format="parquet").uid("output")
        env.execute("benchmark")
        return {"epochs": watch.epochs, "used": watch.used, "asked": watch.asked()}


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
