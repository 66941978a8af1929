"""Epochs by Structured Streaming: each micro-batch is one Spark job through every level."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkdam.connectors.simple_sinks import SparkSink
from checkdam.connectors.sources import StreamSource
from checkdam.errors import CheckdamError, JobFailedError, StateNotRestorableError
from checkdam.graph.levels import Edge, JobPlan
from checkdam.graph.operators import SinkKind, SourceKind
from checkdam.ids import Attempt, Epoch
from checkdam.runtime.engine import RunEpoch, Slot
from checkdam.runtime.failures import find_error, user_error
from checkdam.runtime.slot.client import RemoteSlot
from checkdam.runtime.spark.launch import start_slots
from checkdam.runtime.spark.offsets import capture, lay_out, sources_of
from checkdam.runtime.spark.plan import EPOCH_PROPERTY, job_dataframe, spark_sink_rows
from checkdam.runtime.spark.session import is_on_one_machine
from checkdam.runtime.spark.sources import describe, is_bounded, is_static, open_source

_PATIENCE_SECONDS = 10.0
_LONGEST_SOCKET_DIRECTORY = 80  # the path of a Unix socket has to fit into about a hundred bytes


class SparkEngine:
    """Runs one job on Spark. Micro-batch b is epoch b + 1; epoch 0 holds what is there from the start."""

    def __init__(self, session: SparkSession, plan: JobPlan, work: Path) -> None:
        self._session = session
        self._plan = plan
        self._work = work
        self._token = secrets.token_hex(16)
        self._query_directory = work / "query"
        self._stop = threading.Event()
        self._wake = threading.Event()  # the query has ended, or somebody wants it to
        self._static_group: str | None = None  # the Spark job group of epoch 0 while it runs
        self._in_epoch = threading.Lock()
        specs = {op.id: op.kind.spec for op in plan.source_side if isinstance(op.kind, SourceKind)}
        self._types = {op.id: op.output_type for op in plan.source_side}
        self._static = {source: spec for source, spec in specs.items() if is_static(spec)}
        self._streams = {source: spec for source, spec in specs.items() if not is_static(spec)}

    def first_epoch(self) -> Epoch:
        return Epoch(0 if self._static else 1)

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[RemoteSlot]:
        self._stop.clear()
        self._token = secrets.token_hex(16)  # what an earlier attempt left cannot talk to this one
        near = is_on_one_machine(self._session) and len(str(self._work)) <= _LONGEST_SOCKET_DIRECTORY
        sockets = str(self._work) if near else None
        try:
            addresses = start_slots(self._session, count, attempt, self._token, sockets)
        except PySparkException as failure:
            raise meaning_of(failure) from failure
        return [RemoteSlot(address, self._token) for address in addresses]

    def run(self, slots: Sequence[Slot], last_epoch: Epoch, position: bytes, run_epoch: RunEpoch) -> None:
        if position:
            self._check_sources(position)
        if self._static and last_epoch < 0:
            self._run_static(slots, run_epoch)
        if self._streams and not self._stop.is_set():
            self._run_query(slots, position, run_epoch)

    def _run_static(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        sources = {s: open_source(self._session, spec, self._types[s]) for s, spec in self._static.items()}
        flow = self._flow(sources, slots)
        group = self._static_group = f"checkdam-{self._token[:8]}"
        self._session.sparkContext.setJobGroup(group, "epoch 0", interruptOnCancel=True)
        try:
            run_epoch(Epoch(0), lambda: self._execute(flow, Epoch(0)))
        finally:
            self._static_group = None

    def _run_query(self, slots: Sequence[Slot], position: bytes, run_epoch: RunEpoch) -> None:
        self._lay_out(position)
        sources = {s: open_source(self._session, spec, self._types[s]) for s, spec in self._streams.items()}
        failures: list[BaseException] = []

        def on_batch(flow: DataFrame, batch: int) -> None:
            epoch = Epoch(batch + 1)
            with self._in_epoch:
                try:
                    if not self._stop.is_set():
                        run_epoch(epoch, lambda: self._execute(flow, epoch))
                except BaseException as failure:
                    failures.append(failure)
                    raise

        writer = self._flow(sources, slots).writeStream.foreachBatch(on_batch)
        writer = writer.option("checkpointLocation", str(self._query_directory))
        if all(is_bounded(spec) for spec in self._streams.values()):
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        ended = self._wake = threading.Event()  # its own: the end of an earlier query must not be taken for this one's
        if self._stop.is_set():
            ended.set()
        threading.Thread(target=_watch, args=(query, ended), daemon=True, name="query-watch").start()
        ended.wait()
        if self._stop.is_set():
            self._stop_query(query)
        if failures:
            raise meaning_of(failures[0])
        failure = query.exception()
        if failure is not None and not self._stop.is_set():
            raise meaning_of(failure)

    def _stop_query(self, query: StreamingQuery) -> None:
        """Between two epochs if possible; an epoch that takes too long is broken off."""
        if self._in_epoch.acquire(timeout=_PATIENCE_SECONDS):
            self._in_epoch.release()
        query.stop()

    def interrupt(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._static_group is not None:
            threading.Timer(_PATIENCE_SECONDS, self._break_off, [self._static_group]).start()

    def _break_off(self, group: str) -> None:
        """Epoch 0 takes too long to be waited for."""
        if self._static_group == group:
            self._session.sparkContext.cancelJobGroup(group)

    def position(self, epoch: Epoch) -> bytes:
        names = [*(describe(spec) for spec in self._static.values()), *(describe(s) for s in self._streams.values())]
        return capture(self._query_directory, epoch - 1 if self._streams else -1, names)

    def _lay_out(self, position: bytes) -> None:
        shutil.rmtree(self._query_directory, ignore_errors=True)
        if position:
            specs = list(self._streams.values())
            forget = {i for i, spec in enumerate(specs) if isinstance(spec, StreamSource) and not spec.replayable}
            lay_out(position, self._query_directory, forget)

    def _check_sources(self, position: bytes) -> None:
        """Positions belong to sources by their order: others, or another order, cannot be resumed."""
        names = [describe(spec) for spec in (*self._static.values(), *self._streams.values())]
        before = sources_of(position)
        if before != names:
            raise StateNotRestorableError(
                f"the checkpoint was written by a job that reads {_listed(before)}, this one reads {_listed(names)}",
                hint="Keep the kinds of sources and their order as they were.",
            )

    def _flow(self, sources: dict[int, DataFrame], slots: Sequence[Slot]) -> DataFrame:
        addresses = [slot.address for slot in slots if isinstance(slot, RemoteSlot)]
        return job_dataframe(self._plan, sources, addresses, self._token)

    def _execute(self, flow: DataFrame, epoch: Epoch) -> None:
        """Move one epoch's records; what leaves for Spark is kept until every Spark sink has seen it."""
        self._session.sparkContext.setLocalProperty(EPOCH_PROPERTY, str(epoch))
        sinks = self._plan.spark_sinks
        try:
            if not sinks:
                flow.collect()
                return
            flow.persist()
            try:
                flow.count()
                for edge in sinks:
                    self._hand_over(edge, flow, epoch)
            finally:
                flow.unpersist()
        except CheckdamError:
            raise
        except Exception as failure:
            raise meaning_of(failure) from failure

    def _hand_over(self, edge: Edge, flow: DataFrame, epoch: Epoch) -> None:
        try:
            self._spark_function(edge.spark_sink)(spark_sink_rows(self._plan, flow, edge), int(epoch))
        except Exception as cause:
            raise user_error("sink_to_spark", f"(all of epoch {epoch})", cause) from cause

    def _spark_function(self, sink: int | None) -> Callable[[DataFrame, int], None]:
        kind = next(op.kind for op in self._plan.operators if op.id == sink)
        assert isinstance(kind, SinkKind)
        assert isinstance(kind.spec, SparkSink)
        assert kind.spec.function is not None
        return kind.spec.function


def _watch(query: StreamingQuery, ended: threading.Event) -> None:
    try:
        query.awaitTermination()
    except StreamingQueryException:
        pass  # told by query.exception() to the thread that waits
    finally:
        ended.set()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def meaning_of(failure: BaseException) -> BaseException:
    """What lies behind one of Spark's exceptions: Checkdam's own error if there is one, else its first line."""
    if isinstance(failure, CheckdamError) or not isinstance(failure, Exception):
        return failure
    text = str(failure)
    return find_error(text) or JobFailedError(
        f"Spark failed: {text.strip().splitlines()[0] if text.strip() else failure!r}"
    )
