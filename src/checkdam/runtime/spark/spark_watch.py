"""Watches the JVM, which may hang: polls it regularly, and kills it when it does not answer."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from checkdam.clock import Clock, SystemClock
from checkdam.processes import is_alive
from checkdam.runtime.heartbeat import Heartbeat, Silence
from checkdam.runtime.stalls import cpu_seconds

_log = logging.getLogger(__name__)

_COMPUTING = 0.2
"""A JVM that uses more than this share of a core computes; less is its own overhead."""


class SparkWatch:
    """Asks Spark for the progress of its tasks, every heartbeat. `progress` changes when a task makes progress.

    A task that only computes may leave Spark's counts unchanged for long, so processor time of the JVM is progress,
    too.

    A call into a JVM that is stopped, or busy collecting garbage, returns when the JVM continues, or never. Killing it
    makes every call return, with an error.
    """

    def __init__(self, session: SparkSession, heartbeat: Heartbeat, clock: Clock | None = None) -> None:
        self._session = session
        self._heartbeat = heartbeat
        self._clock = clock or SystemClock()
        self._pid = int(session._jvm.java.lang.ProcessHandle.current().pid())
        self._stages = session.sparkContext._jsc.sc().statusStore()
        self._silence = Silence(heartbeat.timeout)
        self._computed = 0  # number of looks that found the JVM computing
        self._cpu = self._cpu_seconds(), self._clock.monotonic()
        self._stopped = threading.Event()
        self.progress: Hashable = None
        self._lost: str | None = None  # why the JVM is unusable
        for work, name in ((self._ask, "spark-progress"), (self._wait, "spark-watch")):
            threading.Thread(target=work, daemon=True, name=name).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def is_lost(self, failure: Exception) -> bool:
        """Return whether this is the error of a call to a JVM that is gone."""
        return self._lost is not None or isinstance(failure, Py4JNetworkError | ConnectionError)

    @property
    def reason(self) -> str:
        return self._lost or f"the JVM of Spark (process {self._pid}) is gone"

    def _ask(self) -> None:
        while not self._stopped.wait(self._heartbeat.interval_seconds):
            try:
                self.progress = self._look()
            except Py4JJavaError:
                pass  # an answer as well: a stage that has just ended, or a stopped session
            except (Py4JNetworkError, OSError):
                if not is_alive(self._pid):
                    self._stopped.set()  # its callers get an error of their own
                    return
                continue  # no answer this time
            except Exception:  # noqa: BLE001  a fault of this watch does not mean a silent JVM
                _log.warning("the tasks of Spark cannot be watched", exc_info=True)
            self._silence.heard()

    def _look(self) -> Hashable:
        return self._has_computed(), self._counts()

    def _has_computed(self) -> int:
        (used, at), self._cpu = self._cpu, (self._cpu_seconds(), self._clock.monotonic())
        self._computed += self._cpu[0] - used > _COMPUTING * (self._cpu[1] - at)
        return self._computed

    def _cpu_seconds(self) -> float:
        return cpu_seconds(Path(f"/proc/{self._pid}/stat"))

    def _counts(self) -> Hashable:
        stages = self._stages.activeStages()
        return tuple(
            (
                stage.stageId(),
                stage.numActiveTasks(),
                stage.numCompleteTasks(),
                stage.numFailedTasks(),
                stage.inputRecords(),
                stage.outputRecords(),
                stage.shuffleReadRecords(),
                stage.shuffleWriteRecords(),
                stage.memoryBytesSpilled(),
            )
            for stage in (stages.apply(index) for index in range(stages.size()))
        )

    def _wait(self) -> None:
        if self._silence.wait(self._stopped):
            silent = self._heartbeat.timeout_seconds
            self._lost = f"the JVM of Spark (process {self._pid}) has not answered for {silent:g} s and was killed"
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
