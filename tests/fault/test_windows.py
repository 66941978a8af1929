"""Windows and joins whose slot or driver dies between any two steps: the result is that of a run without deaths."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.support.savepoint_places import SavepointPlace

from checkdam import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    DeltaTrigger,
    EventTimeSessionWindows,
    JoinContext,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from checkdam.ids import JobId
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.testing import (
    DriverKilled,
    LocalJob,
    MemoryStorage,
    OutputDirectory,
    Step,
    Trouble,
    kill_driver,
    kill_slot,
)
from checkdam.testing.gate import Gate
from checkdam.testing.trouble import Deed

pytestmark = pytest.mark.slow


class Event(NamedTuple):
    key: str
    at: int
    n: int


BY_TIME = WatermarkStrategy.for_monotonous_timestamps(lambda event: event.at)
LATE = OutputTag("late", Event)
EPOCHS = [
    [Event("a", 1, 1), Event("b", 4, 2), Event("a", 8, 4)],
    [Event("a", 12, 8), Event("c", 3, 16), Event("b", 15, 32)],
    [Event("a", 2, 64), Event("a", 19, 128)],  # the first is late for its window
    [Event("b", 40, 256), Event("c", 31, 512)],
]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Pair(ProcessJoinFunction[Event, Event, str]):
    def process_element(self, left: Event, right: Event, ctx: JoinContext) -> Iterator[str]:
        yield f"{left.n} {right.n}"


class Windows:
    """A job with windows, sessions, late records and an interval join, its checkpoints and its output."""

    def __init__(self, backend: str) -> None:
        self.storage, self.output, self.backend = MemoryStorage(), OutputDirectory(), backend

    def job(self, *troubles: Trouble, parallelism: int = 2) -> LocalJob:
        return LocalJob(self.build, EPOCHS, self.storage, record_type=Event, troubles=troubles, parallelism=parallelism)

    def savepoint(self, epochs: int, target: str, format: SavepointFormat) -> str:
        """Run the first epochs and stop with a savepoint."""
        job = LocalJob(self.build, EPOCHS[:epochs], self.storage, record_type=Event, parallelism=2, until=Gate())
        control = job.start()
        job.heard.wait_for_epoch(epochs)
        path = control.stop_with_savepoint(target, format, drain=False).result(60)
        job.join()
        return path

    def resume(self, savepoint: str) -> None:
        """Run the other epochs as a new job, with more subtasks."""
        job = LocalJob(self.build, EPOCHS, self.storage, record_type=Event, parallelism=3, job_id=JobId("d" * 32))
        job.run(restore=savepoint)

    def build(self, env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(self.backend)
        stamped = stream.assign_timestamps_and_watermarks(BY_TIME)
        keyed = stamped.key_by("key", key_type=str)
        tens = keyed.window(TumblingEventTimeWindows(ms(10))).side_output_late_data(LATE).sum("n").uid("tens")
        sessions = keyed.window(EventTimeSessionWindows(ms(6))).sum("n").uid("sessions")
        pairs = keyed.interval_join(keyed).between(ms(1), ms(8)).process(Pair()).uid("pairs")
        named = [("tens", tens), ("late", tens.get_side_output(LATE)), ("sessions", sessions)]
        shown = [stream.map(_naming(name), output_type=str) for name, stream in named]
        shown[0].union(*shown[1:], pairs).sink_to_files(self.output.uri).uid("out")

    def rows(self) -> list[str]:
        return sorted(self.output.rows())


def _naming(name: str) -> Any:
    return lambda event: f"{name}: {event.key} {event.n}"


EXPECTED = sorted(
    [
        *("tens: a 5", "tens: b 2", "tens: c 16", "tens: a 136", "tens: b 32", "tens: b 256", "tens: c 512"),
        "late: a 64",
        *("sessions: a 1", "sessions: a 76", "sessions: a 128", "sessions: b 2", "sessions: b 32"),
        *("sessions: c 16", "sessions: b 256", "sessions: c 512"),
        *("1 4", "4 8", "8 128"),
    ]
)


def run_to_the_end(windows: Windows, *troubles: Trouble) -> LocalJob:
    job = windows.job(*troubles)
    try:
        job.run()
    except DriverKilled:
        job = windows.job(parallelism=3)
        job.run()
    return job


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_without_deaths_the_job_gives_this(backend: str) -> None:
    windows = Windows(backend)

    run_to_the_end(windows)

    assert windows.rows() == EXPECTED


DEATHS: dict[str, Deed] = {"slot": kill_slot(1), "driver": kill_driver}
STEPS = [
    Step.BEFORE_EPOCH,
    Step.BEFORE_LEVEL,
    Step.AFTER_LEVEL,
    Step.EPOCH_ENDED,
    Step.BEFORE_WRITING,
    Step.SNAPSHOT_TAKEN,
    Step.METADATA_WRITTEN,
    Step.COMMITTED,
]


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_death_at_any_step_neither_loses_nor_repeats_a_window(
    backend: str, step: Step, death: str, number: int
) -> None:
    windows = Windows(backend)
    trouble = Trouble(step, DEATHS[death], number=number)

    run_to_the_end(windows, trouble)

    assert trouble.happened.is_set()
    assert windows.rows() == EXPECTED


@pytest.mark.parametrize(("before", "after"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_windows_go_on_with_the_other_backend(before: str, after: str) -> None:
    windows = Windows(before)
    with pytest.raises(DriverKilled):
        windows.job(Trouble(Step.BEFORE_EPOCH, kill_driver, number=3)).run()

    windows.backend = after
    windows.job(parallelism=1).run()

    assert windows.rows() == EXPECTED


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("format", SavepointFormat)
@pytest.mark.parametrize(("before", "after"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_a_savepoint_takes_windows_to_the_other_backend_and_parallelism(
    before: str, after: str, format: SavepointFormat, epochs: int
) -> None:
    windows, place = Windows(before), SavepointPlace()
    path = windows.savepoint(epochs, place.uri, format)

    windows.backend = after
    windows.resume(path)

    assert windows.rows() == EXPECTED


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_checkpoints_keep_windows_under_flinks_names(backend: str) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        keyed = stream.assign_timestamps_and_watermarks(BY_TIME).key_by("key", key_type=str)
        days = keyed.window(TumblingEventTimeWindows(timedelta(days=1)))
        keyed.window(EventTimeSessionWindows(timedelta(days=1))).sum("n").uid("sessions").print()
        days.trigger(CountTrigger(100)).sum("n").uid("count").print()
        days.trigger(ContinuousEventTimeTrigger(timedelta(hours=1))).sum("n").uid("continuous").print()
        days.trigger(DeltaTrigger(1000, lambda last, new: new.n - last.n, Event)).sum("n").uid("delta").print()
        keyed.interval_join(keyed).between(ms(1), timedelta(days=1)).process(Pair()).uid("pairs").print()

    job = LocalJob(
        build,
        EPOCHS[:3],
        MemoryStorage(),
        record_type=Event,
        troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=3)],
    )
    with pytest.raises(DriverKilled):
        job.run()

    day = (0, 86_400_000)
    savepoint = job.savepoint()
    names = {each.uid: {state.name for state in savepoint.states(each.uid)} for each in savepoint.operators}
    timers = "_timers/event_window-timers"
    assert {
        uid: found - {"_timers/processing_window-timers", "_timers/processing"} for uid, found in names.items()
    } == {
        "sessions": {"window-contents", "merging-window-set", timers},
        "count": {"window-contents", "count", timers},
        "continuous": {"window-contents", "fire-time", timers},
        "delta": {"window-contents", "last-element", timers},
        "pairs": {"LEFT_BUFFER", "RIGHT_BUFFER", "_timers/event"},
    }
    assert job.state("count", "count") == {"a": {day: 3}, "b": {day: 2}, "c": {day: 1}}
    assert job.state("count", "window-contents")["a"] == {day: ("a", 1, 13)}
    assert job.state("continuous", "fire-time")["a"] == {day: 3_600_000}
    assert job.state("delta", "last-element")["b"] == {day: ("b", 4, 2)}
    assert job.state("sessions", "merging-window-set")["c"] == [((3, 86_400_003), (3, 86_400_003))]
