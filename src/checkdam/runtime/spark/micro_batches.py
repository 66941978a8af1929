"""Runs the micro-batches of a query as epochs, and lets Spark plan the next one while an epoch ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from pyspark.sql import DataFrame

from checkdam.ids import Epoch
from checkdam.runtime.engine import RunEpoch


class MicroBatches:
    """The epochs of one query.

    `run` returns when the records of a micro-batch are through all levels. The driver then ends the epoch: it collects
    reports, prints, publishes and sends barriers. The next micro-batch waits for that end; Spark's planning does not.
    """

    def __init__(
        self, run_epoch: RunEpoch, execute: Callable[[DataFrame, int, Epoch], None], is_stopping: Callable[[], bool]
    ) -> None:
        self._run_epoch = run_epoch
        self._execute = execute
        self._is_stopping = is_stopping
        self._running = threading.Lock()
        self._ended: Future[None] = Future()  # of the last epoch
        self._ended.set_result(None)
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """The failure of an epoch, if one has failed."""
        if self._failure is None and self._ended.done():
            return self._ended.exception()
        return self._failure

    def run(self, of_batch: DataFrame, batch: int) -> None:
        """Run one micro-batch, in the thread that Spark calls this in."""
        with self._running:
            try:
                self._ended.result()
                if not self._is_stopping():
                    self._ended = self._run_epoch(partial(self._execute, of_batch, batch))
            except BaseException as failure:
                self._failure = failure
                if not self._is_stopping():  # otherwise the query is being stopped: it need not fail as well
                    raise

    def join(self, timeout: float | None = None) -> None:
        """Wait until no epoch is running and the last one has ended, but not longer than `timeout` seconds."""
        began = time.monotonic()
        if self._running.acquire(timeout=-1 if timeout is None else timeout):
            self._running.release()
            wait([self._ended], None if timeout is None else max(0.0, timeout - (time.monotonic() - began)))
