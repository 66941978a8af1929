"""FunctionHarness: one function in the slots of a job, driven by a test, with the real state, timers and snapshots."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream, Stream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.decisions import AcknowledgedCheckpoint
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.config import Configuration
from checkdam.connectors.contract import FinishOutput, SinkCommitter, WriterContext
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    FilterFunction,
    KeyedBatchFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
    is_coroutine_function,
)
from checkdam.graph.metrics import MeterReading
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, new_attempt
from checkdam.runtime.driver.checkpoint_assembly import completed_checkpoint
from checkdam.runtime.driver.slot_group import LiveSlots
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.state_reader import Savepoint
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_target import LocalTarget
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.mounts import mount
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copy_of
from checkdam.types.type_info import type_info

_PATIENCE_SECONDS = 60.0
_PAGE = 1000
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class HarnessSnapshot:
    """The state of a harness at one moment, as a savepoint in memory."""

    path: str
    _storage: MemoryStorage  # kept alive as long as the snapshot

    def savepoint(self) -> Savepoint:
        """Open the snapshot with the state reader."""
        return Savepoint.load(self.path)


class FunctionHarness:
    """Runs one function without a job: in real slots, one for each subtask, with real state, timers and snapshots.

    Each call that sends records or advances time is one epoch and returns the function's output in it. Time stands
    still in between. An error of the function is raised as UserFunctionError and ends its slots, as in a job.
    """

    def __init__(
        self,
        function: Any,
        record_type: Any = None,
        *,
        key: Any = None,
        key_type: Any = None,
        second_type: Any = None,
        second_key: Any = None,
        broadcast: Sequence[MapStateDescriptor[Any, Any]] = (),
        output_type: Any = None,
        accumulator_type: Any = None,
        async_options: Mapping[str, Any] | None = None,
        side_outputs: Sequence[OutputTag[Any]] = (),
        backend: KeyedStateBackend | str = "hashmap",
        parallelism: int = 1,
        max_parallelism: int | None = None,
        uid: str = "function",
        now: datetime = datetime(2024, 1, 1, tzinfo=UTC),
        restore: HarnessSnapshot | str | None = None,
    ) -> None:
        """Open the function.

        Args:
            function: a function object as `process`, `map`, `flat_map`, `filter`, `reduce`, `aggregate`, `map_async`,
                `add_sink` and `add_source` take it, or a callable, which runs as by `flat_map`; a coroutine function
                runs as by `map_async`.
            record_type: of the records sent; a source function has none.
            key: of a function on a keyed stream, as `key_by` takes it, with `key_type` where it cannot be inferred.
            second_type: of the records of the second input, with `second_key`, or with the descriptors of `broadcast`.
            async_options: further arguments of `map_async`, such as `timeout`. Timeouts and pauses between retries take
                real time, whatever the clock of the harness says.
            side_outputs: the tags that `side_output` can be called with.
            backend: "hashmap", "rocksdb", or a backend.
            restore: a snapshot of another harness, or the path of a savepoint of a job with an operator of this `uid`.
                A snapshot can be restored at any parallelism.
        """
        self._options: dict[str, Any] = {
            "record_type": record_type,
            "key": key,
            "key_type": key_type,
            "second_type": second_type,
            "second_key": second_key,
            "broadcast": broadcast,
            "output_type": output_type,
            "accumulator_type": accumulator_type,
            "async_options": dict(async_options or {}),
            "side_outputs": side_outputs,
            "backend": backend,
            "parallelism": parallelism,
            "max_parallelism": max_parallelism,
            "uid": uid,
            "now": now,
        }
        self._function = function
        self.clock = ManualClock(now)
        self._token = secrets.token_hex(8)
        self._captured = _Captured({"": [], **{tag.name: [] for tag in side_outputs}})
        _captures[self._token] = self._captured
        self._restored_from = restore  # keeps its storage alive
        launch = Launch(
            Configuration.load(None),
            restore_path=restore.path if isinstance(restore, HarnessSnapshot) else restore,
            allow_non_restored_state=isinstance(restore, str),
            target=LocalTarget(),
        )
        environment = StreamExecutionEnvironment(launch).set_parallelism(parallelism).set_state_backend(backend)
        if max_parallelism is not None:
            environment.set_max_parallelism(max_parallelism)
        self._assigners: list[int] = []
        self._build(environment)
        execution = environment._prepare("harness")
        self._job, self._plan = execution.job, execution.job.plan
        self._uid = OperatorUid(uid)
        self._operator = next(op for op in self._plan.operators if op.uid == uid)
        self._checkpoints = itertools.count(1)
        self._dealt = 0
        self._signal = threading.Event()  # set when a source function has new records
        self._engine = LocalEngine(self._plan, clock=self.clock)
        self._attempt = new_attempt()
        self._slots = self._engine.start_slots(self._attempt, self._plan.slots)
        self._event_time: dict[int, int] = {}
        self._watermarks: dict[int, int] = {}
        self._epoch = Epoch(0)
        point = None
        if execution.restored is not None:
            point = execution.restored.point()
            self._epoch = execution.restored.checkpoint.epoch
            self._event_time = execution.restored.event_time(self._plan)
            self._watermarks = execution.restored.watermarks(self._plan)
        for slot in self._slots:
            slot.configure(
                SlotSetup(
                    job_id=self._job.job_id,
                    attempt=self._attempt,
                    subtask=slot.subtask,
                    plan=self._plan.for_slots(),
                    backend=self._job.backend,
                    last_epoch=self._epoch,
                    storage=None,
                    restore=point,
                    event_time=self._event_time,
                    watermarks=self._watermarks,
                )
            )
            slot.on_records = self._signal.set
        self._live = LiveState(lambda: LiveSlots(self._attempt, self._plan, self._slots))
        self._is_finished = False
        self._has_run = False  # whether these slots have run an epoch

    # -- records and time -----------------------------------------------------------------------------------------

    def send(self, *records: Any, timestamp: int | datetime | None = None) -> list[Any]:
        """Send records to the function, to the first input if it has two; return its output."""
        return self._send(0, records, timestamp)

    def send_second(self, *records: Any, timestamp: int | datetime | None = None) -> list[Any]:
        """Send records to the second input: of a co-process function, or the broadcast one. Return the output."""
        return self._send(1, records, timestamp)

    def advance_watermark(self, to: int | datetime) -> list[Any]:
        """Advance event time to this time, in milliseconds since 1970; return the output of the timers that fire."""
        watermark = _milliseconds(to)
        assert watermark is not None
        return self._run_epoch(watermark=watermark)

    def advance_processing_time(self, by: timedelta | float) -> list[Any]:
        """Advance processing time; a number counts seconds. Return the output of the timers that fire."""
        self.clock.advance(by)
        return self._run_epoch()

    def end_of_input(self) -> list[Any]:
        """End the input, and with it event time; return the output of all event-time timers."""
        for slot in self._slots:
            slot.end_of_input()
        return self._run_epoch()

    def read(self, count: int | None = None) -> list[Any]:
        """Return what a source function yields: at least `count` records, or without a count until it ends."""
        given: list[Any] = []
        while not self._is_finished and (count is None or len(given) < count):
            self._signal.clear()
            came = self._run_epoch()
            given += came
            if not came and not self._is_finished and not self._signal.wait(_PATIENCE_SECONDS):
                raise AssertionError(f"the source function yields nothing more; it has given {given!r}")
        return given

    # -- results --------------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Any]:
        """All output of the function so far."""
        return list(self._captured[""])

    def side_output(self, tag: OutputTag[Any]) -> list[Any]:
        """Return all records emitted with this tag, which must be in `side_outputs`."""
        if tag.name not in self._captured:
            raise JobGraphError(
                f'side output "{tag.name}" is not captured', hint="Name its tag in FunctionHarness(side_outputs=[…])."
            )
        return list(self._captured[tag.name])

    @property
    def processing_time(self) -> int:
        """The time that functions see, in milliseconds since 1970."""
        return (self.clock.now() - _BEGINNING) // _MILLISECOND

    def function(self, subtask: int = 0) -> Any:
        """Return the function object of a subtask, a copy of the one given."""
        return self._slots[subtask].function_of(self._operator.id)

    def state(self, name: str, key: Any) -> Any:
        """Return the value of a key in a keyed state: a value, a list or a dict; None if there is none."""
        self._settle_epoch()
        [answer] = self._live.get(self._uid, name, [key])
        return answer.value if answer.found else None

    def states(self, name: str) -> dict[Any, Any]:
        """Return the content of a keyed state by key."""
        self._settle_epoch()
        entries: dict[Any, Any] = {}
        cursor = None
        while True:
            page = self._live.page(self._uid, name, cursor, _PAGE)
            entries.update(page.entries)
            cursor = page.cursor
            if cursor is None:
                return entries

    def operator_state(self, name: str) -> list[Any]:
        """Return the elements of a list or union list state of all subtasks, as a checkpoint would keep them."""
        return [element for _, element in self.snapshot().savepoint().operator_state(self._uid, name)]

    def broadcast_state(self, name: str) -> dict[Any, Any]:
        """Return the entries of a broadcast state."""
        return dict(self.snapshot().savepoint().broadcast_state(self._uid, name))

    def metrics(self, subtask: int = 0) -> dict[str, Any]:
        """Return the metrics that the function has made with `ctx.metrics`, by name (`group.name`), as of now.

        A counter or gauge has its value, a meter the number of its events, a histogram its HistogramStatistics.
        """
        values = self._slots[subtask].metrics_of(self._operator.id)
        return {name: each.count if isinstance(each, MeterReading) else each for name, each in values.items()}

    def timers(self) -> list[tuple[Any, str, int]]:
        """Return the registered timers: key, "event time" or "processing time", and milliseconds."""
        try:
            content = self.snapshot().savepoint().timers(self._uid)
        except StateAccessError:  # no timers
            return []
        return sorted(((key, domain, time) for (key, domain), time in content), key=lambda timer: timer[2])

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self) -> HarnessSnapshot:
        """Take a savepoint of the function's state, in memory; the harness continues."""
        storage = MemoryStorage()
        directory = SavepointDirectory.prepare(mount(storage), self._job.job_id)
        checkpoint_id = CheckpointId(next(self._checkpoints))
        now = self.clock.now()
        for slot in self._slots:
            slot.begin_snapshot(checkpoint_id, self._epoch, savepoint=directory.target(SavepointFormat.CANONICAL))
        snapshots = {slot.subtask: slot.snapshot(checkpoint_id) for slot in self._slots}
        acknowledged = AcknowledgedCheckpoint(checkpoint_id, self._epoch, now, snapshots)
        position = self._engine.position()
        checkpoint = completed_checkpoint(self._job, acknowledged, position, now, self._event_time, self._watermarks)
        path, _ = directory.complete(replace(checkpoint, savepoint_format=SavepointFormat.CANONICAL))
        for slot in self._slots:
            slot.released(checkpoint_id)
        return HarnessSnapshot(path, storage)

    def restored(self, snapshot: HarnessSnapshot, function: Any = None, **changes: Any) -> FunctionHarness:
        """Open a harness like this one from a snapshot; `function` and options such as `parallelism` may differ.

        Its clock continues from this one's.
        """
        options = {**self._options, "now": self.clock.now(), **changes}
        return FunctionHarness(self._function if function is None else function, restore=snapshot, **options)

    def close(self) -> None:
        """Close the function."""
        for slot in self._slots:
            slot.close()

    def __enter__(self) -> FunctionHarness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _build(self, environment: StreamExecutionEnvironment) -> None:
        options, function = self._options, self._function
        if isinstance(function, SourceFunction):
            self._capture(environment.add_source(function, options["output_type"]).uid(options["uid"]))
            return
        first = self._input(environment, "first", options["record_type"])
        if options["key"] is not None:
            keyed: Stream[Any] = first.key_by(options["key"], options["key_type"])
        elif not isinstance(function, BroadcastProcessFunction):
            keyed = first.rebalance()  # moves it into a slot; Spark would otherwise run it itself
        else:
            keyed = first
        if isinstance(function, SinkFunction):
            keyed.add_sink(function).uid(options["uid"])
            return
        self._capture(self._applied(environment, keyed).uid(options["uid"]))

    def _applied(self, environment: StreamExecutionEnvironment, stream: Any) -> Any:
        """Apply the function and return the resulting stream; the options decide which calls `stream` has."""
        options, function = self._options, self._function
        of = options["output_type"]
        if isinstance(function, KeyedBroadcastProcessFunction | BroadcastProcessFunction):
            second = self._input(environment, "second", options["second_type"])
            return stream.connect(second.broadcast(*options["broadcast"])).process(function, of)
        if isinstance(function, KeyedCoProcessFunction):
            second = self._input(environment, "second", options["second_type"])
            return stream.connect(second.key_by(options["second_key"], options["key_type"])).process(function, of)
        if isinstance(function, KeyedBatchFunction):
            return stream.process_batch(function, of)
        if isinstance(function, KeyedProcessFunction | ProcessFunction):
            return stream.process(function, of)
        if isinstance(function, AsyncFunction) or is_coroutine_function(function):
            return stream.map_async(function, output_type=of, **options["async_options"])
        if isinstance(function, MapFunction):
            return stream.map(function, of)
        if isinstance(function, FilterFunction):
            return stream.filter(function)
        if isinstance(function, AggregateFunction | ReduceFunction):
            if options["key"] is None:
                raise JobGraphError(
                    f"{type(function).__name__} needs keys", hint="Name the key in FunctionHarness(key=…)."
                )
            if isinstance(function, ReduceFunction):
                return stream.reduce(function)
            return stream.aggregate(function, options["accumulator_type"], of)
        return stream.flat_map(function, of)

    def _input(self, environment: StreamExecutionEnvironment, name: str, of: Any) -> DataStream[Any]:
        """Return a stream whose records and event time come from the test."""
        if of is None:
            raise JobGraphError(
                f"the type of the {name} input is not known",
                hint="Name it: FunctionHarness(function, record_type=str), and second_type for the second.",
            )
        source = environment._source(name, ScriptedSource(()), type_info(of))
        stamped = source.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda _: 0))
        self._assigners.append(stamped._operator_id)
        return stamped

    def _capture(self, stream: DataStream[Any]) -> None:
        stream._sink("captured", CaptureSink(self._token, ""))
        for tag in self._options["side_outputs"]:
            stream.get_side_output(tag)._sink("captured", CaptureSink(self._token, tag.name))

    def _send(self, side: int, records: Sequence[Any], timestamp: int | datetime | None) -> list[Any]:
        if side >= len(self._assigners):
            raise JobGraphError(f"{type(self._function).__name__} has {'no' if side == 0 else 'no second'} input")
        return self._run_epoch(side, records, _milliseconds(timestamp))

    def _run_epoch(
        self, side: int = 0, records: Sequence[Any] = (), timestamp: int | None = None, *, watermark: int | None = None
    ) -> list[Any]:
        before = len(self._captured[""])
        epoch = Epoch(self._epoch + 1)
        level = self._engine.source_level()
        flow = []
        if records:
            assigner = self._assigners[side]
            of = next(op.output_type for op in self._plan.source_side if op.id == assigner)
            stamps: list[int | None] = [timestamp] * len(records)
            batch = Batch(of, rows=list(map(copy_of, records)), timestamps=stamps)
            flow = [(0, packed) for packed in level.bring(assigner, batch)]
        if watermark is not None and level.event_time is not None:
            for assigner in self._assigners:
                level.event_time.observe(assigner, watermark + 1)
        flow += [(0, packed) for packed in level.flush()]
        self._engine.move(epoch, flow, self._dealt)
        self._dealt += len(records)
        reports = [slot.end_epoch(epoch, commit=False) for slot in self._slots]
        self._epoch, self._has_run = epoch, True
        self._hear(reports)
        return self._captured[""][before:]

    def _settle_epoch(self) -> None:
        """Ensure an epoch has ended: live state can only be queried as of a whole epoch."""
        if not self._has_run:
            self._run_epoch()

    def _hear(self, reports: Sequence[EpochReport]) -> None:
        for known, heard in (
            (self._event_time, [report.event_time for report in reports]),
            (self._watermarks, [report.watermarks for report in reports]),
        ):
            for each in heard:
                known.update({op: max(time, known.get(op, time)) for op, time in each.items()})
        self._is_finished = not any(report.unfinished_sources for report in reports)


def _milliseconds(told: int | datetime | None) -> int | None:
    if isinstance(told, datetime):
        return ((told if told.tzinfo is not None else told.replace(tzinfo=UTC)) - _BEGINNING) // _MILLISECOND
    return told


# -- output -------------------------------------------------------------------------------------------------------


class _Captured(dict[str, list[Any]]):
    """The output of a function by output name."""


_captures: WeakValueDictionary[str, _Captured] = WeakValueDictionary()
"""The outputs of each harness by name: slots have copies of everything else, so they look them up here."""


@dataclass(frozen=True)
class CaptureSink:
    """Writes records to the list in which their harness finds them."""

    token: str
    output: str
    is_transactional = False
    returns_to_spark = False

    def open_writer(self, ctx: WriterContext) -> CaptureWriter:
        return CaptureWriter(_captures[self.token][self.output])

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> SinkCommitter | None:
        return None


class CaptureWriter:
    def __init__(self, captured: list[Any]) -> None:
        self._captured = captured

    def write(self, batch: Batch) -> None:
        self._captured += batch.rows

    def snapshot(self) -> FinishOutput:
        return tuple

    def close(self) -> None:
        """Do nothing: captured records stay."""
