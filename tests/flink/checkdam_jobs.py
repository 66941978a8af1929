"""Builds the jobs of tests/flink/job_specs.py with Checkdam and runs them, without Spark.

The functions write the same text as those of java/FlinkJobs.java: keep the two alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.flink.job_specs import Spec

from checkdam import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    Context,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DataStream,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    HashMapStateBackend,
    NeverTrigger,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    RocksDBStateBackend,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    StreamExecutionEnvironment,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
    WindowAssigner,
    WindowFunction,
)
from checkdam.runtime.engine import RunEpoch
from checkdam.testing import LocalJob, ManualClock, MemoryStorage, Step, Trouble, kill_slot
from checkdam.testing.local_engine import LocalEngine

Event = tuple[str, int, int, int]
"""Key, value, timestamp, and the side of a join that the record belongs to."""

Totals = tuple[str, int, int]

LATE = OutputTag("late", Event)
LATE_RIGHT = OutputTag("late right", Event)
FIRED = ValueStateDescriptor("fired", int)


def run_on_checkdam(spec: Spec) -> tuple[list[Any], list[Any]]:
    """Return the results and the late records, each with its timestamp."""
    results, late = EpochOutput(), EpochOutput()

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        is_rocksdb = spec["checkdam"]["backend"] == "rocksdb"
        env.set_state_backend(RocksDBStateBackend() if is_rocksdb else HashMapStateBackend())
        _build(stream, spec, results, late)

    epochs = [[tuple(record) for record in epoch] for epoch in spec["epochs"]]
    crash = spec["checkdam"]["crash_in_epoch"]
    troubles = [] if crash is None else [Trouble(Step.EPOCH_DONE, kill_slot(0), number=crash)]
    job = LocalJob(
        build,
        epochs,
        MemoryStorage(),
        parallelism=spec["checkdam"]["parallelism"],
        joins_batches=spec["checkdam"]["joins_batches"],
        troubles=troubles,
        record_type=Event,
        **_clocked(spec),
    )
    heard = job.run()
    assert len(heard.restarts) == len(troubles), heard.restarts
    return results.all(), late.all()


def _clocked(spec: Spec) -> dict[str, Any]:
    """Return the options of a job with a clock that moves to the time of each epoch before its records come."""
    if "clock" not in spec:
        return {}
    times: list[int] = spec["clock"]
    clock = ManualClock(datetime.fromtimestamp(0, UTC) + _millis(times[0]))

    class ClockedEngine(LocalEngine):
        def run_next(self, run_epoch: RunEpoch) -> bool:
            epoch = next(iter(self._next.values()), 0)
            if epoch < len(times):
                moment = datetime.fromtimestamp(0, UTC) + _millis(times[epoch])
                clock.advance(max(timedelta(0), moment - clock.now()))  # after a crash an epoch may come again
            return super().run_next(run_epoch)

    return {"clock": clock, "engines": ClockedEngine}


class EpochOutput:
    """Collects output by epoch: an epoch that runs again after a crash replaces its output and all that followed."""

    def __init__(self) -> None:
        self._epochs: dict[int, list[str]] = {}

    def take(self, rows: Iterable[str], epoch: int) -> None:
        self._epochs = {each: kept for each, kept in self._epochs.items() if each < epoch}
        self._epochs[epoch] = list(rows)

    def all(self) -> list[Any]:
        return [json.loads(row) for rows in self._epochs.values() for row in rows]


# -- the job ---------------------------------------------------------------------------------------------------------


def _build(stream: DataStream[Event], spec: Spec, results: EpochOutput, late: EpochOutput) -> None:
    allowed = _millis(spec["out_of_orderness"])
    events = stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(allowed, lambda event: event[2])
    )
    builders: dict[str, Callable[[DataStream[Event], Spec], Any]] = {
        "window": _windowed,
        "window_all": _windowed,
        "join": _joined,
        "co_group": _joined,
        "interval_join": _interval_joined,
    }
    output = builders[spec["kind"]](events, spec).uid("windows")
    then = spec.get("then")
    last = output if then is None else _then(output, then)
    last.process(AsText(spec["columns"]), output_type=str).uid("text").sink_to_spark(results.take)
    if spec["late"]:
        tags = [LATE, LATE_RIGHT] if spec["kind"] == "interval_join" else [LATE]
        first, *others = [output.get_side_output(tag) for tag in tags]
        side = first.union(*others) if others else first
        side.process(AsText([0, 1, 2]), output_type=str).uid("late text").sink_to_spark(late.take)


def _windowed(events: DataStream[Event], spec: Spec) -> Any:
    is_keyed = spec["kind"] == "window"
    windows = _with_options(_windows(events, spec, is_keyed=is_keyed), spec)
    if spec["late"]:
        windows = windows.side_output_late_data(LATE)
    function, ordered, columns = spec["function"], spec["ordered"], spec["columns"]
    if function in ("sum", "min", "max"):
        return getattr(windows, function)(1)
    combine = _combine_ordered if ordered else _combine
    if function == "reduce":
        return windows.reduce(combine)
    if function == "reduce_process":
        tell = Tell("reduced", columns) if is_keyed else TellAll("reduced", columns)
        return windows.reduce(combine, tell, output_type=str)
    if function == "aggregate":
        return windows.aggregate(AddUp())
    if function == "aggregate_process":
        tell = Tell("aggregated", columns) if is_keyed else TellAll("aggregated", columns)
        return windows.aggregate(AddUp(), tell, output_type=str)
    if function == "apply":
        return windows.apply(Apply(ordered) if is_keyed else ApplyAll(ordered), output_type=str)
    process = Process(ordered, function) if is_keyed else ProcessAll(ordered, function)
    return windows.process(process, output_type=str)


def _windows(events: DataStream[Event], spec: Spec, *, is_keyed: bool) -> Any:
    assigner = spec["assigner"]
    if assigner["kind"] == "count":
        size, slide = assigner["size"], assigner["slide"]
        return events.key_by(0).count_window(size, slide) if is_keyed else events.count_window_all(size, slide)
    return events.key_by(0).window(_assigner(assigner)) if is_keyed else events.window_all(_assigner(assigner))


def _with_options(windows: Any, spec: Spec) -> Any:
    if spec["trigger"] is not None:
        windows = windows.trigger(_trigger(spec["trigger"]))
    if spec["evictor"] is not None:
        windows = windows.evictor(_evictor(spec["evictor"]))
    if spec["lateness"]:
        windows = windows.allowed_lateness(_millis(spec["lateness"]))
    return windows


def _joined(events: DataStream[Event], spec: Spec) -> Any:
    left, right = events.filter(lambda event: event[3] == 0), events.filter(lambda event: event[3] == 1)
    is_join = spec["kind"] == "join"
    both: Any = left.join(right) if is_join else left.co_group(right)
    windows = _with_options(both.where(0).equal_to(0).window(_assigner(spec["assigner"])), spec)
    return windows.apply(_pair if is_join else BothSides(), output_type=str)


def _interval_joined(events: DataStream[Event], spec: Spec) -> DataStream[str]:
    left, right = events.filter(lambda event: event[3] == 0), events.filter(lambda event: event[3] == 1)
    join = (
        left.key_by(0)
        .interval_join(right.key_by(0))
        .between(
            _millis(spec["lower"]),
            _millis(spec["upper"]),
            lower_exclusive=spec["lower_exclusive"],
            upper_exclusive=spec["upper_exclusive"],
        )
    )
    if spec["late"]:
        join = join.side_output_left_late_data(LATE).side_output_right_late_data(LATE_RIGHT)
    return join.process(WithinInterval(), output_type=str)


def _then(results: DataStream[Event], then: Spec) -> DataStream[Event]:
    windows = results.key_by(0).window(TumblingEventTimeWindows(_millis(then["size"])))
    return windows.aggregate(AddUp()).uid("more windows")


def _millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _assigner(spec: Spec) -> WindowAssigner[Any, Any]:
    return _processing_time_assigner(spec) if spec.get("time") == "processing" else _event_time_assigner(spec)


def _processing_time_assigner(spec: Spec) -> WindowAssigner[Any, Any]:
    match spec["kind"]:
        case "tumbling":
            return TumblingProcessingTimeWindows(_millis(spec["size"]), offset=_millis(spec["offset"]))
        case "sliding":
            size, slide, offset = map(_millis, (spec["size"], spec["slide"], spec["offset"]))
            return SlidingProcessingTimeWindows(size, slide, offset=offset)
        case "session":
            return ProcessingTimeSessionWindows(_millis(spec["gap"]))
    return ProcessingTimeSessionWindows(_gap_of(spec["gaps"]))


def _event_time_assigner(spec: Spec) -> WindowAssigner[Any, Any]:
    match spec["kind"]:
        case "tumbling":
            return TumblingEventTimeWindows(_millis(spec["size"]), offset=_millis(spec["offset"]))
        case "sliding":
            size, slide, offset = map(_millis, (spec["size"], spec["slide"], spec["offset"]))
            return SlidingEventTimeWindows(size, slide, offset=offset)
        case "session":
            return EventTimeSessionWindows(_millis(spec["gap"]))
        case "session_by_record":
            return EventTimeSessionWindows(_gap_of(spec["gaps"]))
    return GlobalWindows()


def _gap_of(gaps: list[int]) -> Callable[[Event], timedelta]:
    return lambda event: _millis(gaps[event[1] % len(gaps)])


def _trigger(spec: Spec) -> Trigger[Any, Any]:
    match spec["kind"]:
        case "event_time":
            return EventTimeTrigger()
        case "continuous":
            return ContinuousEventTimeTrigger(_millis(spec["interval"]))
        case "processing_time":
            return ProcessingTimeTrigger()
        case "continuous_processing_time":
            return ContinuousProcessingTimeTrigger(_millis(spec["interval"]))
        case "timeout":
            flags = {name: spec[name] for name in ("reset_on_record", "clear_on_timeout")}
            return ProcessingTimeoutTrigger(_trigger(spec["of"]), _millis(spec["timeout"]), **flags)
        case "count":
            return CountTrigger(spec["size"])
        case "delta":
            return DeltaTrigger(spec["threshold"], _growth, Event)
        case "total":
            return TotalTrigger(spec["limit"])
        case "purging":
            return PurgingTrigger(_trigger(spec["of"]))
    return NeverTrigger()


def _evictor(spec: Spec) -> Evictor[Any, Any]:
    match spec["kind"]:
        case "count":
            return CountEvictor(spec["size"], after=spec["after"])
        case "time":
            return TimeEvictor(_millis(spec["size"]), after=spec["after"])
    return DeltaEvictor(spec["threshold"], _growth, after=spec["after"])


# -- functions -------------------------------------------------------------------------------------------------------


def _growth(older: Event, newer: Event) -> float:
    return newer[1] - older[1]


def _combine(one: Event, other: Event) -> Event:
    return one[0], one[1] + other[1], max(one[2], other[2]), one[3]


def _combine_ordered(one: Event, other: Event) -> Event:
    """Combine two records in a way that depends on their order."""
    return one[0], (one[1] * 7 + other[1]) % 1_000_003, max(one[2], other[2]), one[3]


def _pair(left: Event, right: Event) -> str:
    return json.dumps(["joined", left[0], left[1], right[1]])


def _bounds(window: Any) -> list[int | None]:
    return [window.start, window.end] if isinstance(window, TimeWindow) else [None, None]


def _values(events: Iterable[Event], *, ordered: bool) -> list[int]:
    values = [event[1] for event in events]
    return values if ordered else sorted(values)


def _counted(states: Any) -> int:
    state = states.get_state(FIRED)
    fired: int = (state.value() or 0) + 1
    state.update(fired)
    return fired


class AsText(ProcessFunction):
    """Writes a result and its timestamp as JSON. Of a record only some columns.

    How often a key has fired stands without the timestamp: Flink does not define in which order the windows of a key
    fire at the same time.
    """

    def __init__(self, columns: list[int]) -> None:
        self._columns = columns

    def process_element(self, value: Any, ctx: Context) -> Iterator[str]:
        result = json.loads(value) if isinstance(value, str) else [value[column] for column in self._columns]
        yield json.dumps([result, None if result[0] == "fired" else ctx.timestamp])


class AddUp(AggregateFunction[Event, Totals, Event]):
    """Key of the last record, sum and count. Merging is as adding, which sliding windows here rely on."""

    def create_accumulator(self) -> Totals:
        return "", 0, 0

    def add(self, value: Event, accumulator: Totals) -> Totals:
        return value[0], accumulator[1] + value[1], accumulator[2] + 1

    def get_result(self, accumulator: Totals) -> Event:
        return (*accumulator, 0)

    def merge(self, one: Totals, other: Totals) -> Totals:
        return other[0], one[1] + other[1], one[2] + other[2]


class Tell(ProcessWindowFunction[str, Event, str, Any]):
    def __init__(self, word: str, columns: list[int]) -> None:
        self._word, self._columns = word, columns

    def process(self, key: str, ctx: Any, elements: Sequence[Event]) -> Iterator[str]:
        for element in elements:
            result = [element[column] for column in self._columns]
            yield json.dumps([self._word, key, *_bounds(ctx.window), result, ctx.current_watermark])


class TellAll(ProcessAllWindowFunction[Event, str, Any]):
    def __init__(self, word: str, columns: list[int]) -> None:
        self._word, self._columns = word, columns

    def process(self, ctx: Any, elements: Sequence[Event]) -> Iterator[str]:
        for element in elements:
            yield json.dumps([self._word, *_bounds(ctx.window), [element[column] for column in self._columns]])


class Apply(WindowFunction[str, Event, str, Any]):
    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered

    def apply(self, key: str, window: Any, elements: Sequence[Event]) -> Iterator[str]:
        yield json.dumps(["applied", key, *_bounds(window), _values(elements, ordered=self._ordered)])


class ApplyAll(AllWindowFunction[Event, str, Any]):
    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered

    def apply(self, window: Any, elements: Sequence[Event]) -> Iterator[str]:
        yield json.dumps(["applied", *_bounds(window), _values(elements, ordered=self._ordered)])


class Process(ProcessWindowFunction[str, Event, str, Any]):
    """Tells the values of a window and, by its state, how often the window or the key has fired."""

    def __init__(self, ordered: bool, function: str) -> None:
        self._ordered, self._function = ordered, function

    def process(self, key: str, ctx: Any, elements: Sequence[Event]) -> Iterator[str]:
        fired = _counted(ctx.window_state()) if self._function == "process_window_state" else None
        values = _values(elements, ordered=self._ordered)
        yield json.dumps(["processed", key, *_bounds(ctx.window), values, ctx.current_watermark, fired])
        if self._function == "process_global_state":
            yield json.dumps(["fired", key, _counted(ctx.global_state())])

    def clear(self, ctx: Any) -> None:
        if self._function == "process_window_state":
            ctx.window_state().get_state(FIRED).clear()


class ProcessAll(ProcessAllWindowFunction[Event, str, Any]):
    def __init__(self, ordered: bool, function: str) -> None:
        self._ordered, self._function = ordered, function

    def process(self, ctx: Any, elements: Sequence[Event]) -> Iterator[str]:
        fired = _counted(ctx.window_state()) if self._function == "process_window_state" else None
        yield json.dumps(["processed", *_bounds(ctx.window), _values(elements, ordered=self._ordered), fired])
        if self._function == "process_global_state":
            yield json.dumps(["fired", _counted(ctx.global_state())])

    def clear(self, ctx: Any) -> None:
        if self._function == "process_window_state":
            ctx.window_state().get_state(FIRED).clear()


class BothSides(CoGroupFunction[Event, Event, str]):
    def co_group(self, first: Sequence[Event], second: Sequence[Event]) -> Iterator[str]:
        key = [*first, *second][0][0]
        yield json.dumps(["grouped", key, _values(first, ordered=False), _values(second, ordered=False)])


class WithinInterval(ProcessJoinFunction[Event, Event, str]):
    def process_element(self, left: Event, right: Event, ctx: Any) -> Iterator[str]:
        yield json.dumps(["within", left[0], left[1], right[1], ctx.left_timestamp, ctx.right_timestamp])


def _add(one: int, other: int) -> int:
    return one + other


TOTAL = ReducingStateDescriptor("total", int, _add)


class TotalTrigger(Trigger[Event, Any]):
    """Fires at the end of the window, and whenever the values since the last time add up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def on_element(self, value: Event, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        if window.max_timestamp > ctx.current_watermark:
            ctx.register_event_time_timer(window.max_timestamp)
        total = ctx.get_partitioned_state(TOTAL)
        total.add(value[1])
        if total.get() < self._limit:
            return TriggerResult.CONTINUE
        total.clear()
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(TOTAL)
        if window.max_timestamp > ctx.current_watermark:
            ctx.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.delete_event_time_timer(window.max_timestamp)
        ctx.get_partitioned_state(TOTAL).clear()
