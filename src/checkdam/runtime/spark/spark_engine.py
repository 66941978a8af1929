"""Runs epochs by Structured Streaming: each micro-batch is one Spark job through every level.

Static sources are read before the query, in an epoch of their own, and epochs without records may run between two
micro-batches. So micro-batches are counted separately from epochs.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkdam.connectors.simple_sinks import SparkSink
from checkdam.connectors.sources import SourceSpec, StreamSource
from checkdam.errors import CheckdamError, EngineLostError, JobFailedError, JobGraphError
from checkdam.graph.levels import Edge, JobPlan
from checkdam.graph.operators import Operator, SinkKind, SourceKind
from checkdam.ids import Attempt, Epoch, OperatorUid
from checkdam.runtime.current_operator import working_for
from checkdam.runtime.engine import RunEpoch, Slot
from checkdam.runtime.failures import NO_RECORD, find_error, user_error
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.runtime.slot.messages import OperatorCounts
from checkdam.runtime.slot.slot_client import RemoteSlot
from checkdam.runtime.source_position import (
    NOTHING_READ,
    HeldSource,
    JobSource,
    decode_position,
    encode_position,
    job_sources,
)
from checkdam.runtime.spark.counting import SourceCounting
from checkdam.runtime.spark.jvm import marker_for
from checkdam.runtime.spark.micro_batches import MicroBatches
from checkdam.runtime.spark.offsets import Streams, capture, lay_out
from checkdam.runtime.spark.plan import EPOCH_PROPERTY, SlotsInReach, job_dataframe, spark_sink_rows
from checkdam.runtime.spark.query_settings import moved_to, session_for_sources, settings_for_query
from checkdam.runtime.spark.session import socket_directory
from checkdam.runtime.spark.slot_launcher import SlotOutput, SlotTokens, start_slots
from checkdam.runtime.spark.source_backlog import SourceBacklog
from checkdam.runtime.spark.source_frames import is_bounded, open_source, streams_in
from checkdam.runtime.spark.spark_watch import SparkWatch
from checkdam.types.type_info import TypeInfo

_COMPRESSED = "spark.sql.inMemoryColumnarStorage.compressed"
_PATIENCE_SECONDS = 10.0
_PROGRESS_SECONDS = 1.0


class SparkEngine:
    """Runs one job on Spark. Epoch 0 holds the static sources; the others are micro-batches."""

    def __init__(
        self,
        session: SparkSession,
        plan: JobPlan,
        work: Path,
        heartbeat: Heartbeat,
        watch: SparkWatch,
        logs: LogSettings | None = None,
    ) -> None:
        self._session = session
        self._plan = plan
        self._work = work
        self._heartbeat = heartbeat
        self._watch = watch
        self._output = None if logs is None else SlotOutput(logs, marker_for(session))
        self._properties = session.sparkContext._jsc.sc().getLocalProperties().clone()  # of the executing thread
        self._tokens = SlotTokens.new()
        self._query_directory = work / "query"
        self._stop = threading.Event()
        self._wake = threading.Event()  # the query has ended, or should end
        self._counting = SourceCounting(session.sparkContext)
        self._group: str | None = None  # the Spark job group of an epoch outside the query, while it runs
        self._micro_batches: MicroBatches | None = None  # of the last query
        self._resumed = NOTHING_READ  # the position to resume from
        self._batch: int | None = None  # the last micro-batch of this run
        self._captured: tuple[int, bytes] | None = None  # a micro-batch, and the position after it
        self._extra: DataFrame | None = None
        self._types = {op.id: op.output_type for op in plan.source_side}
        self._specs = {op.id: op.kind.spec for op in plan.source_side if isinstance(op.kind, SourceKind)}
        self._sources = job_sources(plan)
        self._static = [source for source in self._sources if source.is_static]
        self._streams = [source for source in self._sources if not source.is_static]
        self._read: set[OperatorUid] = set()  # the static sources that have been read
        self._streams_read = Streams(())  # by the query of this run
        self._report_pending: Callable[[Mapping[int, int]], object] = lambda pending: None

    def first_epoch(self) -> Epoch:
        return Epoch(0 if self._static else 1)

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[RemoteSlot]:
        self._stop.clear()
        self._tokens = SlotTokens.new()  # what an earlier attempt left cannot talk to this one
        sockets = socket_directory(self._session, self._work)
        with self._meanings(), self._in_thread_of_user(), self._as_group("start slots"):
            addresses = start_slots(self._session, count, attempt, self._tokens, sockets, self._heartbeat, self._output)
        tokens = self._tokens
        return [RemoteSlot(address, tokens.token, self._heartbeat, tokens.queries) for address in addresses]

    def resume(self, last_epoch: Epoch, position: bytes) -> None:
        self._counting.take()  # of an epoch that failed
        self._resumed, self._batch, self._extra = decode_position(position), None, None
        self._captured = None
        self._micro_batches = None  # one that still hangs is of an earlier attempt
        held = {each.uid for each in self._resumed.held}
        self._read = {source.uid for source in self._static if source.uid in held}

    def run_static(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        unread = [source for source in self._static if source.uid not in self._read]
        if not unread:
            return
        with self._meanings(), self._in_thread_of_user(), self._as_group("records that are there from the start"):
            flow = self._flow(self._opened(unread), slots)

            def execute(epoch: Epoch) -> None:
                self._execute(flow, epoch)
                self._read |= {source.uid for source in unread}

            run_epoch(execute).result()

    def run(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        with self._meanings(), self._in_thread_of_user():
            if self._streams and not self._stop.is_set():
                self._run_query(slots, run_epoch)

    def _opened(self, sources: Sequence[JobSource]) -> dict[int, DataFrame]:
        return {each.id: self._open(self._specs[each.id], self._types[each.id]) for each in sources}

    def _open(self, spec: SourceSpec, type: TypeInfo) -> DataFrame:
        try:
            if not isinstance(spec, StreamSource):
                return open_source(self._session, spec, type)
            return moved_to(self._session, open_source(session_for_sources(self._session), spec, type))
        except JobGraphError as failure:
            cause = failure.__cause__
            if isinstance(cause, Exception) and self._watch.is_lost(cause):
                raise cause from None  # the source is not to blame
            raise

    def run_extra(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        with self._meanings(), self._in_thread_of_user():
            if self._extra is None:
                self._extra = self._flow({}, slots)
            # If a DataFrame is executed again, Spark skips all stages but the last, and with them all levels but the
            # last.
            is_one_stage = len(self._plan.levels) == 1 and not self._plan.spark_sinks
            flow = self._extra if is_one_stage else self._extra.select("*")
            with self._as_group("epoch without records"):
                run_epoch(lambda epoch: self._execute(flow, epoch)).result()

    @contextmanager
    def _meanings(self) -> Iterator[None]:
        """Replace an exception of Spark by its cause."""
        try:
            yield
        except (PySparkException, Py4JError, OSError) as failure:
            raise self._meaning_of(failure) from failure

    @contextmanager
    def _in_thread_of_user(self) -> Iterator[None]:
        """Give this thread the local properties of the program's own, such as its scheduler pool."""
        self._session.sparkContext._jsc.sc().setLocalProperties(self._properties.clone())
        yield

    @contextmanager
    def _as_group(self, description: str) -> Iterator[None]:
        """Make the Spark jobs of this thread cancellable."""
        group = self._group = f"checkdam-{secrets.token_hex(4)}"
        self._session.sparkContext.setJobGroup(group, description, interruptOnCancel=True)
        try:
            yield
        finally:
            self._group = None

    def _run_query(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        sources = self._opened(self._streams)
        flow = self._flow(sources, slots)
        self._streams_read = streams_in(flow, list(sources.values()))
        streams = self._streams_read.of_source
        self._lay_out()

        def execute(of_batch: DataFrame, batch: int, epoch: Epoch) -> None:
            self._execute(of_batch, epoch, is_micro_batch=True)
            if micro_batches is self._micro_batches:  # else it is a hanging epoch of an earlier query
                self._batch = batch  # from now on positions are those after it

        micro_batches = self._micro_batches = MicroBatches(run_epoch, execute, self._stop.is_set)
        writer = flow.writeStream.foreachBatch(micro_batches.run)
        writer = writer.option("checkpointLocation", str(self._query_directory))
        if all(is_bounded(self._specs[source.id]) for source in self._streams):
            writer = writer.trigger(availableNow=True)
        with settings_for_query(flow.sparkSession):
            query = writer.start()
        ended = self._wake = threading.Event()  # a new one: the end of an earlier query is not this one's
        if self._stop.is_set():
            ended.set()
        threading.Thread(target=_watch, args=(query, micro_batches, ended), daemon=True, name="query-watch").start()
        backlog = SourceBacklog({each.id: of for each, of in zip(self._streams, streams, strict=True)})
        while not ended.wait(_PROGRESS_SECONDS):
            pending = backlog.read(query)
            if pending is not None:
                self._report_pending(pending)
        if self._stop.is_set():
            self._stop_query(query, micro_batches)
        if micro_batches.failure is not None:
            raise self._meaning_of(micro_batches.failure)
        failure = query.exception()
        if failure is not None and not self._stop.is_set():
            raise self._meaning_of(failure)

    def _stop_query(self, query: StreamingQuery, micro_batches: MicroBatches) -> None:
        """Stop the query between two epochs if possible. An epoch that takes too long is cancelled, then abandoned."""
        micro_batches.join(_PATIENCE_SECONDS)
        try:
            query.stop()
        except (PySparkException, Py4JError) as failure:  # spark.sql.streaming.stopTimeout
            sys.stderr.write(f"warning: Spark did not end the query: {str(failure).splitlines()[0]}\n")

    def interrupt(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._group is not None:
            timer = threading.Timer(_PATIENCE_SECONDS, self._break_off, [self._group])
            timer.daemon = True
            timer.start()

    def _break_off(self, group: str) -> None:
        """Cancel an epoch outside the query that takes too long."""
        if self._group == group:
            with suppress(Py4JError, OSError):  # a JVM that is gone has no job to cancel
                self._session.sparkContext.cancelJobGroup(group)

    def progress(self) -> Hashable:
        return self._watch.progress

    def position(self) -> bytes:
        if self._batch is not None:
            # Captured once: when the next batch is planned, Spark may delete what it has compacted, and an idle job
            # asks again.
            if self._captured is None or self._captured[0] != self._batch:
                self._captured = self._batch, self._position_after(self._batch)
            return self._captured[1]
        # No micro-batch yet: positions of streams are unchanged, and new streams have none.
        uids = {source.uid for source in self._streams}
        held = [*self._held_static(), *(each for each in self._resumed.held if each.uid in uids)]
        return encode_position(
            msgspec.structs.replace(self._resumed, sources=[source.kind for source in self._sources], held=held)
        )

    def _position_after(self, batch: int) -> bytes:
        held, streams = self._held_static(), self._streams_read
        for place, source in enumerate(self._streams):
            held.append(source.held(streams.lines_of(place), streams.of_source[place]))
        return encode_position(capture(self._query_directory, batch, self._sources, held))

    def _held_static(self) -> list[HeldSource]:
        return [source.held() for source in self._static if source.uid in self._read]

    def source_counts(self) -> Mapping[tuple[int, int], OperatorCounts]:
        return self._counting.take()

    def watch_sources(self, report: Callable[[Mapping[int, int]], object]) -> None:
        self._report_pending = report

    def _lay_out(self) -> None:
        """Write the query directory that the query starts with."""
        shutil.rmtree(self._query_directory, ignore_errors=True)
        held = {each.uid: each for each in self._resumed.held}
        wanted = [held.get(source.uid) if self._is_replayable(source) else None for source in self._streams]
        lay_out(self._resumed, self._query_directory, wanted, self._streams_read)

    def _is_replayable(self, source: JobSource) -> bool:
        """Return whether the source can resume from a position; one that cannot starts with new records."""
        spec = self._specs[source.id]
        return not isinstance(spec, StreamSource) or spec.replayable

    def _flow(self, sources: dict[int, DataFrame], slots: Sequence[Slot]) -> DataFrame:
        addresses = tuple(slot.address for slot in slots if isinstance(slot, RemoteSlot))
        reach = SlotsInReach(addresses, self._tokens.token, self._heartbeat, self._output)
        return job_dataframe(self._plan, self._session, sources, reach, self._counting.accumulator)

    def _execute(self, flow: DataFrame, epoch: Epoch, *, is_micro_batch: bool = False) -> None:
        """Move one epoch's records. Output for Spark is kept until every Spark sink has seen it."""
        self._session.sparkContext.setLocalProperty(EPOCH_PROPERTY, str(epoch))
        sinks = self._plan.spark_sinks
        try:
            if not sinks:
                if is_micro_batch:  # Spark has planned it: no second query, and no socket for a result without rows
                    flow._jdf.queryExecution().toRdd().count()
                else:
                    flow.collect()
                return
            try:
                _keep(flow)
                for edge in sinks:
                    self._hand_over(edge, flow, epoch)
            finally:
                flow.unpersist()
        except CheckdamError:
            raise
        except Exception as failure:
            raise self._meaning_of(failure) from failure

    def _hand_over(self, edge: Edge, flow: DataFrame, epoch: Epoch) -> None:
        sink = next(op for op in self._plan.operators if op.id == edge.spark_sink)
        try:
            with working_for(sink):
                _spark_function(sink)(spark_sink_rows(self._plan, flow, edge), int(epoch))
        except Exception as cause:
            raise user_error("sink_to_spark", NO_RECORD, cause, where=f"epoch {epoch}") from cause

    def _meaning_of(self, failure: BaseException) -> BaseException:
        """Find the cause of one of Spark's exceptions: an error that a task signed, else its first line."""
        if isinstance(failure, CheckdamError) or not isinstance(failure, Exception):
            return failure
        if self._watch.is_lost(failure):
            return EngineLostError(self._watch.reason, hint="Start the job again; --resume latest goes on.")
        text = str(failure)
        return find_error(text, self._tokens.token) or JobFailedError(
            f"Spark failed: {text.strip().splitlines()[0] if text.strip() else failure!r}"
        )


def _spark_function(sink: Operator) -> Callable[[DataFrame, int], None]:
    assert isinstance(sink.kind, SinkKind)
    assert isinstance(sink.kind.spec, SparkSink)
    assert sink.kind.spec.function is not None
    return sink.kind.spec.function


def _keep(flow: DataFrame) -> None:
    """Compute a frame and keep its rows, without compressing what is read once or twice."""
    conf = flow.sparkSession.conf
    before = conf.get(_COMPRESSED, "true")
    conf.set(_COMPRESSED, "false")
    try:
        flow.persist()
        flow.count()
    finally:
        conf.set(_COMPRESSED, str(before))


def _watch(query: StreamingQuery, micro_batches: MicroBatches, ended: threading.Event) -> None:
    """Set `ended` when the query and its last epoch have ended."""
    try:
        query.awaitTermination()
    except (StreamingQueryException, Py4JError, OSError):
        pass  # query.exception() reports it to the waiting thread
    finally:
        micro_batches.join()
        ended.set()
