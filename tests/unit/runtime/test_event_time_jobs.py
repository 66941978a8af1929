"""Event time, timers and epochs without records in whole jobs: the real runtime in one process, with a manual clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import CheckdamError
from checkdam.graph.contexts import OnTimerContext, ProcessContext, RuntimeContext
from checkdam.graph.functions import KeyedProcessFunction, SourceFunction
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy
from checkdam.ids import Attempt, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.epoch_input import EXTRA
from checkdam.runtime.slot.messages import RestorePoint, SlotSetup
from checkdam.runtime.slot.task import SlotTask
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.ttl import StateTtlConfig, TtlTime
from checkdam.testing import ManualClock, MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import Heard, LocalJob
from checkdam.testing.mounts import mount
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, kill_driver, kill_slot
from checkdam.types.type_info import type_info

Event = tuple[str, int]  # key, timestamp

BY_TIME = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1])


class Watermarks(KeyedProcessFunction):
    """Says with each record what its timestamp is and where the watermark stands."""

    def process_element(self, value: Event, ctx: ProcessContext) -> Iterator[tuple[str, int | None, int]]:
        yield value[0], ctx.timestamp, ctx.timer_service.current_watermark


class Alarm(KeyedProcessFunction):
    """Rings, per key, when event time has come as far as the record says."""

    def process_element(self, value: Event, ctx: ProcessContext) -> None:
        ctx.timer_service.register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[tuple[str, int]]:
        yield ctx.current_key, timestamp


class Remembering(KeyedProcessFunction):
    """Says with each record what the one before was, if that is not a second of event time ago, and the watermark."""

    def open(self, context: RuntimeContext) -> None:
        ttl = StateTtlConfig(timedelta(seconds=1), time=TtlTime.EVENT_TIME, cleanup=None)
        self.last = context.get_state(ValueStateDescriptor("last", int, ttl=ttl))

    def process_element(self, value: Event, ctx: ProcessContext) -> Iterator[tuple[str, int, int]]:
        last = self.last.value()
        yield value[0], -1 if last is None else last, ctx.timer_service.current_watermark
        self.last.update(value[1])


class After(KeyedProcessFunction):
    """Rings, per key, a minute of the clock after the record."""

    def process_element(self, value: Event, ctx: ProcessContext) -> None:
        time = ctx.timer_service
        time.register_processing_time_timer(time.current_processing_time + 60_000)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        yield ctx.current_key


def keyed(stream: DataStream[Any]) -> Any:
    return stream.key_by(lambda event: event[0], key_type=str)


def script(environment: StreamExecutionEnvironment, *epochs: list[Event]) -> DataStream[Any]:
    """Another source that goes epoch by epoch, beside the job's own."""
    spec = ScriptedSource(tuple(tuple(epoch) for epoch in epochs))
    return environment._source("other", spec, type_info(tuple[str, int]))


def job(
    build: Callable[[StreamExecutionEnvironment, DataStream[Any]], Any], *epochs: list[Event], **options: Any
) -> LocalJob:
    storage = options.pop("storage", None) or MemoryStorage()
    return LocalJob(build, epochs, storage, record_type=tuple[str, int], **options)


def shown(heard: Heard) -> list[str]:
    return sorted(line.rpartition("> ")[2] for line in heard.printed_lines)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_the_watermark_is_behind_the_largest_timestamp_of_the_epochs_before_on_every_subtask(parallelism: int) -> None:
    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        marks = keyed(stream.assign_timestamps_and_watermarks(BY_TIME)).process(
            Watermarks(), output_type=tuple[str, int, int]
        )
        marks.uid("marks").print()

    heard = job(
        build, [("a", 5), ("b", 9), ("c", 7)], [], [("a", 3), ("d", 1), ("e", 2)], parallelism=parallelism
    ).run()

    first = [("a", 5, MIN_WATERMARK), ("b", 9, MIN_WATERMARK), ("c", 7, MIN_WATERMARK)]
    assert shown(heard) == sorted(map(str, [*first, ("a", 3, 8), ("d", 1, 8), ("e", 2, 8)]))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_fire_in_the_epoch_whose_records_bring_event_time_there_and_the_rest_at_the_end(
    parallelism: int,
) -> None:
    rings: list[list[str]] = []

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        alarms = keyed(stream.assign_timestamps_and_watermarks(BY_TIME)).process(Alarm(), output_type=tuple[str, int])
        alarms.uid("alarm").sink_to_spark(lambda rows, epoch: rings.append(sorted(map(str, rows))))

    job(build, [("a", 10)], [("b", 11)], [("c", 30)], parallelism=parallelism).run()

    assert rings == [[], ["('a', 10)"], ["('b', 11)"], ["('c', 30)"]]  # the last: the extra epoch


def test_the_slowest_of_two_streams_tells_the_watermark() -> None:
    rings: list[list[str]] = []

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        one = stream.assign_timestamps_and_watermarks(BY_TIME)
        late = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=5), lambda event: event[1])
        other = script(environment, [("x", 100)], [("x", 12)], [("x", 18)]).assign_timestamps_and_watermarks(late)
        alarms = keyed(one.union(other)).process(Alarm(), output_type=tuple[str, int])
        alarms.uid("alarm").sink_to_spark(lambda rows, epoch: rings.append(sorted(str(ts) for _, ts in rows)))

    job(build, [("a", 10), ("b", 20)], [("c", 50)], [("d", 94), ("e", 200)]).run()

    # The watermarks: 19 and 94, then 49 and 94, then 199 and 94.
    assert rings == [["10"], ["12", "20"], ["18", "50", "94"], ["100", "200"]]


def test_a_stream_that_brings_nothing_for_long_enough_holds_nobody_back_and_a_tick_notices() -> None:
    clock = ManualClock()
    idle = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1], idleness=timedelta(seconds=30))
    rang = threading.Event()
    rings: list[tuple[int, str]] = []

    def ring(rows: list[Any], epoch: int) -> None:
        rings.extend((epoch, str(row)) for row in rows)
        if rows:
            rang.set()

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        other = script(environment, []).assign_timestamps_and_watermarks(idle)
        both = stream.assign_timestamps_and_watermarks(BY_TIME).union(other)
        keyed(both).process(Alarm(), output_type=tuple[str, int]).uid("alarm").sink_to_spark(ring)

    def pass_time(engine: LocalEngine, moment: Moment) -> None:
        clock.advance(29)
        assert not rings
        clock.advance(1)
        assert rang.wait(20)

    stop = Trouble(Step.BEFORE_EPOCH, pass_time, number=2)
    heard = job(build, [("a", 10), ("b", 20)], [], clock=clock, troubles=[stop]).run()

    assert rings == [(2, "('a', 10)"), (4, "('b', 20)")]
    assert [stats.epoch for stats in heard.epochs] == [1, 2, 3, 4]


def test_what_is_there_from_the_start_holds_nobody_back_once_epoch_0_is_over() -> None:
    rings: list[tuple[int, int]] = []

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        held = environment.from_collection([("x", 1)]).assign_timestamps_and_watermarks(BY_TIME)
        both = stream.assign_timestamps_and_watermarks(BY_TIME).union(held)
        alarms = keyed(both).process(Alarm(), output_type=tuple[str, int])
        alarms.uid("alarm").sink_to_spark(lambda rows, epoch: rings.extend((epoch, ts) for _, ts in rows))

    job(build, [("a", 10), ("b", 20)], [("c", 30)]).run()

    at = [[timestamp for epoch, timestamp in sorted(rings) if epoch == each] for each in sorted(dict(rings))]
    assert at == [[1, 10], [20], [30]]  # whether or not epoch 0 is followed by one without records


def test_an_assigner_between_two_keyed_operators_tells_the_second_what_all_subtasks_have_seen() -> None:
    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        moved = keyed(stream).sum(1).uid("sum").assign_timestamps_and_watermarks(BY_TIME)
        marks = keyed(moved).process(Watermarks(), output_type=tuple[str, int, int])
        marks.uid("marks").print()

    heard = job(build, [("a", 5), ("b", 9), ("c", 7)], [("a", 1), ("d", 1), ("e", 2)], parallelism=4).run()

    first = [("a", 5, MIN_WATERMARK), ("b", 9, MIN_WATERMARK), ("c", 7, MIN_WATERMARK)]
    assert shown(heard) == sorted(map(str, [*first, ("a", 6, 8), ("d", 1, 8), ("e", 2, 8)]))


@pytest.mark.parametrize("wrong", ["soon", None, 1.5, True, 2**63])
def test_a_timestamp_that_is_none_is_the_users_error(wrong: Any) -> None:
    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda event: wrong)
        keyed(stream.assign_timestamps_and_watermarks(strategy)).sum(1).uid("sum").print()

    with pytest.raises(CheckdamError, match=r"timestamp.*\('a', 1\)|\('a', 1\).*timestamp"):
        job(build, [("a", 1)]).run()


def test_event_time_goes_on_from_where_it_was_and_never_from_the_end_of_time() -> None:
    storage = MemoryStorage()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        marks = keyed(stream.assign_timestamps_and_watermarks(BY_TIME)).process(
            Watermarks(), output_type=tuple[str, int, int]
        )
        marks.uid("marks").print()

    job(build, [("a", 50)], storage=storage).run()
    heard = job(build, [("a", 50)], [("b", 20)], storage=storage, parallelism=3).run()

    assert shown(heard) == ["('b', 20, 49)"]
    assert MAX_WATERMARK not in job(build, storage=storage).checkpoint().event_time.values()


def test_what_had_expired_while_a_stream_was_idle_is_not_back_after_a_restart() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    idle = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1], idleness=timedelta(seconds=30))

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        other = script(environment, []).assign_timestamps_and_watermarks(idle)
        both = stream.assign_timestamps_and_watermarks(BY_TIME).union(other)
        keyed(both).process(Remembering(), output_type=tuple[str, int, int]).uid("last").print()

    epochs: list[list[Event]] = [[("a", 10)], [("b", 5000)]]
    sleep = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: clock.advance(30), number=2)
    job(build, *epochs, storage=storage, clock=clock, troubles=[sleep]).run()
    heard = job(build, *epochs, [("a", 5001), ("b", 5001)], storage=storage, clock=clock, parallelism=3).run()

    assert shown(heard) == ["('a', -1, 4999)", "('b', 5000, 4999)"]


# -- the clock -------------------------------------------------------------------------------------------------------


def at_idle(clock: ManualClock, seconds: float, until: threading.Event) -> Callable[[LocalEngine, Moment], None]:
    def pass_time(engine: LocalEngine, moment: Moment) -> None:
        clock.advance(seconds)
        for _ in range(2000):
            if until.wait(0.01) or engine.is_stopped:  # stopped: the attempt has failed meanwhile
                return
        raise AssertionError("no tick came")

    return pass_time


def test_a_processing_time_timer_fires_though_no_records_come() -> None:
    clock, rang = ManualClock(), threading.Event()
    rings: list[tuple[int, str]] = []

    def ring(rows: list[str], epoch: int) -> None:
        rings.extend((epoch, key) for key in rows)
        if rows:
            rang.set()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        keyed(stream).process(After(), output_type=str).uid("after").sink_to_spark(ring)

    idle = Trouble(Step.BEFORE_EPOCH, at_idle(clock, 60, rang), number=2)
    heard = job(build, [("a", 1)], [("b", 1)], clock=clock, troubles=[idle]).run()

    assert rings == [(2, "a")]
    assert [stats.epoch for stats in heard.epochs] == [1, 2, 3]


@pytest.mark.parametrize("step", [Step.BEFORE_LEVEL, Step.AFTER_LEVEL, Step.EPOCH_DONE, Step.BEFORE_SNAPSHOT])
def test_a_slot_lost_in_an_epoch_without_records_loses_no_timer(step: Step) -> None:
    clock, rang = ManualClock(), threading.Event()
    rings: list[str] = []

    def ring(rows: list[str], epoch: int) -> None:
        rings.extend(rows)
        if rows:
            rang.set()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        keyed(stream).process(After(), output_type=str).uid("after").sink_to_spark(ring)

    idle = Trouble(Step.BEFORE_EPOCH, at_idle(clock, 60, rang), number=2)
    kill = Trouble(step, kill_slot(0), number=2)
    heard = job(build, [("a", 1)], [("b", 1)], clock=clock, troubles=[idle, kill]).run()

    assert kill.happened.is_set()
    assert len(heard.restarts) == 1
    assert set(rings) == {"a"}


def test_a_job_killed_after_an_epoch_without_records_goes_on_with_the_next_records() -> None:
    clock, rang, storage = ManualClock(), threading.Event(), MemoryStorage()

    def ring(rows: list[str], epoch: int) -> None:
        if rows:
            rang.set()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        keyed(stream).process(After(), output_type=str).uid("after").sink_to_spark(ring)
        keyed(stream).sum(1).uid("sum").print()

    epochs: list[list[Event]] = [[("a", 1)], [("a", 1)], [("a", 1)]]
    troubles = [
        Trouble(Step.BEFORE_EPOCH, at_idle(clock, 60, rang), number=2),
        Trouble(Step.BEFORE_LEVEL, kill_driver, number=4),
    ]
    with pytest.raises(DriverKilled):
        job(build, *epochs, clock=clock, troubles=troubles, storage=storage).run()

    again = job(build, *epochs, clock=clock, storage=storage)
    again.run()

    assert again.heard.restored_from[0][1] == 3
    assert again.state("sum") == {"a": ("a", 3)}
    assert len([stats.epoch for stats in again.heard.epochs if stats.records]) == 1


class Endless(SourceFunction):
    def run(self, ctx: Any) -> Iterator[int]:
        while True:
            yield 1


def test_epochs_with_records_come_before_ticks_however_much_is_due() -> None:
    seen: list[Event] = []

    def stop_at_last(rows: list[Event], epoch: int) -> None:
        seen.extend(rows)
        if len(seen) == 5:
            threading.Thread(target=running.cancel).start()

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        environment.add_source(Endless(), output_type=int).uid("endless").filter(lambda _: False).print()
        keyed(stream).sum(1).uid("sum").sink_to_spark(stop_at_last)

    running = job(build, *[[("a", 1)]] * 5, parallelism=1)
    running.run()

    assert seen == [("a", n + 1) for n in range(5)]


def test_epoch_stats_count_epochs_without_records_too() -> None:
    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        keyed(stream.assign_timestamps_and_watermarks(BY_TIME)).sum(1).uid("sum").print()

    heard = job(build, [("a", 1)]).run()

    assert [(stats.epoch, stats.records) for stats in heard.epochs] == [(1, 1), (2, 0)]


def test_no_tick_takes_the_place_of_what_is_there_from_the_start() -> None:
    due: list[float | None] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        attempt = running._master._running if running._master is not None else None
        assert attempt is not None
        due.append(attempt.epochs.seconds_until_extra())

    def build(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
        environment.add_source(Endless(), output_type=int).uid("endless").filter(lambda _: False).print()
        environment.from_collection(["a"], type=str).sink_to_spark(lambda rows, epoch: arrived.append((epoch, rows)))

    arrived: list[tuple[int, list[str]]] = []
    stop = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: running.cancel(), number=1)
    running = job(build, [], troubles=[Trouble(Step.BEFORE_EPOCH, look, number=0), stop])
    running.run()

    assert due == [None]
    assert arrived[0] == (0, ["a"])


def test_timers_behind_what_was_there_from_the_start_fire_while_no_records_come() -> None:
    rang = threading.Event()
    in_time: list[bool] = []

    def keep_quiet(engine: LocalEngine, moment: Moment) -> None:
        if moment.number > 0 and not threading.current_thread().name.startswith(EXTRA.name):
            in_time.append(rang.wait(10))

    def ring(rows: list[Event], epoch: int) -> None:
        if rows:
            rang.set()

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        there = environment.from_collection([("a", 5)]).assign_timestamps_and_watermarks(BY_TIME)
        keyed(there).process(Alarm(), output_type=tuple[str, int]).uid("alarm").sink_to_spark(ring)
        stream.print()

    quiet = [Trouble(Step.BEFORE_EPOCH, keep_quiet) for _ in range(3)]  # epoch 0, the tick, and the records
    job(build, [("b", 1)], troubles=quiet, parallelism=1).run()

    assert in_time == [True]


class _Numbers(SourceFunction):
    """Keeps the job ticking while it has records."""

    def run(self, ctx: Any) -> Iterator[Event]:
        for number in range(3):
            yield "number", number


def test_records_of_a_collection_come_before_its_event_time_ends_also_if_it_is_added_later() -> None:
    def marks(environment: StreamExecutionEnvironment, uid: str) -> None:
        events = environment.from_collection([(uid, 5)]).assign_timestamps_and_watermarks(BY_TIME)
        keyed(events).process(Watermarks(), output_type=tuple[str, int, int]).uid(uid).print()

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.print()
        environment.add_source(_Numbers(), tuple[str, int]).uid("numbers").print()
        marks(environment, "first")

    def grown(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        marks(environment, "added")
        build(environment, stream)

    storage = MemoryStorage()
    before = job(build, [("s", 1)], storage=storage).run()
    after = job(grown, [("s", 1)], [("t", 1)], storage=storage).run(allow_non_restored_state=False)

    assert str(("first", 5, MIN_WATERMARK)) in shown(before)
    assert shown(after) == sorted(map(str, [("added", 5, MIN_WATERMARK), ("t", 1)]))


class _Once(SourceFunction):
    """Yields one record on each subtask, and ends."""

    def run(self, ctx: Any) -> Iterator[Event]:
        yield "once", 5


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_source_function_that_has_ended_holds_nobody_back_also_after_a_restore(parallelism: int) -> None:
    rings: list[list[Event]] = []  # by epoch

    def ring(rows: list[Event], epoch: int) -> None:
        if rows:
            rings.append(sorted(set(rows)))

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        once = environment.add_source(_Once(), tuple[str, int]).uid("once").assign_timestamps_and_watermarks(BY_TIME)
        both = stream.assign_timestamps_and_watermarks(BY_TIME).union(once)
        keyed(both).process(Alarm(), output_type=tuple[str, int]).uid("alarm").sink_to_spark(ring)

    storage = MemoryStorage()
    epochs = [[("a", 10)], [("b", 30)], [("c", 50)], [("d", 70)]]
    job(build, *epochs[:2], parallelism=parallelism, storage=storage).run()
    job(build, *epochs, parallelism=parallelism, storage=storage).run()

    assert rings == [[("once", 5)], [("a", 10)], [("b", 30)], [("c", 50)], [("d", 70)]]


def test_behind_ended_streams_alone_it_is_the_end_of_time_but_that_is_not_remembered() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        once = environment.add_source(_Once(), tuple[str, int]).uid("once").assign_timestamps_and_watermarks(BY_TIME)
        there = environment.from_collection([("there", 7)]).assign_timestamps_and_watermarks(BY_TIME)
        marks = keyed(once.union(there, stream)).process(Watermarks(), output_type=tuple[str, int, int])
        marks.uid("marks").print()

    running = job(build, [("x", 1)], [("y", 1)], [("z", 1)], parallelism=2)
    heard = running.run()

    assert shown(heard)[-1] == str(("z", None, MAX_WATERMARK))
    assert running.checkpoint().watermarks == {}


@pytest.mark.parametrize(("finished", "reached"), [((True, True), MAX_WATERMARK), ((True, False), MIN_WATERMARK)])
def test_a_restored_slot_knows_from_the_start_which_source_functions_have_ended(
    finished: tuple[bool, ...], reached: int
) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        once = environment.add_source(_Once(), tuple[str, int]).uid("once").assign_timestamps_and_watermarks(BY_TIME)
        keyed(once).process(Alarm(), output_type=tuple[str, int]).uid("alarm").print()

    built = job(build, [], parallelism=2).job()
    storage = MemoryStorage()
    uri = mount(storage)
    setup = SlotSetup(
        job_id=built.job_id,
        attempt=Attempt("try"),
        subtask=SubtaskIndex(0),
        plan=built.plan.for_slots(),
        backend=built.backend,
        last_epoch=Epoch(4),
        storage=uri,
        restore=RestorePoint("old", uri, keyed={}, claim=False, finished={OperatorUid("once"): finished}),
    )
    (alarm,) = (op.id for op in built.plan.operators if op.uid == "alarm")

    assert SlotTask(setup)._event_time.watermark_of(alarm) == reached
