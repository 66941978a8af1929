"""Runs the micro-batches of a query as epochs, and lets Spark plan the next one while an epoch ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait

from pyspark.sql import DataFrame

from checkdam.ids import Epoch
from checkdam.runtime.engine import RunEpoch
from checkdam.runtime.workers import Workers, settle


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
        self._thread = Workers("epoch")

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
                    self._run(of_batch, batch)
            except BaseException as failure:
                self._failure = failure
                if not self._is_stopping():  # otherwise the query is being stopped: it need not fail as well
                    raise

    def _run(self, of_batch: DataFrame, batch: int) -> None:
        begun: Future[Epoch] = Future()
        executed: Future[None] = Future()

        def wait_for_records(epoch: Epoch) -> None:
            begun.set_result(epoch)
            executed.result()

        self._ended = self._thread.submit(self._run_epoch, wait_for_records)
        self._ended.add_done_callback(lambda ended: begun.cancel())  # it was skipped or refused
        try:
            epoch = begun.result()
        except CancelledError:
            self._ended.result()
            return
        settle(executed, lambda: self._execute(of_batch, batch, epoch))
        if executed.exception() is not None:
            self._ended.result()

    def join(self, timeout: float | None = None) -> None:
        """Wait until no epoch is running, and then until the last one has ended; at most `timeout` seconds for each."""
        if self._running.acquire(timeout=-1 if timeout is None else timeout):
            self._running.release()
        wait([self._ended], timeout)

    def close(self) -> None:
        """Run no more micro-batches."""
        self._thread.shut_down()
