"""Windows and interval joins on Spark: the same results as on LocalJob, on both backends, and after a failover."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import (
    AggregateFunction,
    EventTimeSessionWindows,
    FixedDelayRestart,
    JoinContext,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from checkdam.checkpoint.settings import JobEnd
from checkdam.testing import LocalJob, MemoryStorage

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.api.streams import DataStream
    from checkdam.runtime.monitor.job_events import EpochStats

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Event = tuple[str, int, int]  # key, amount, milliseconds
LATE = OutputTag("late", Event)

EPOCHS = (
    "a 1 3\nb 2 4\na 3 9\na 4 11",
    "a 5 8\nb 6 25\nc 7 2",  # 8 and 2 are not late for [0, 10): the watermark is 5
    "a 8 31\nc 9 27",
    "a 10 14\nb 11 38\nc 12 1",  # 14 is late for all windows but those that lateness keeps; 1 for all
)
"""Lines of text files, one file an epoch: the watermark ends the epochs at 5, 19, 25 and 32."""


class Total(AggregateFunction[Event, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, event: Event, total: int) -> int:
        return total + event[1]

    def get_result(self, total: int) -> int:
        return total

    def merge(self, one: int, other: int) -> int:
        return one + other


class Told(ProcessWindowFunction[str, int, str, TimeWindow]):
    def process(self, key: str, ctx: WindowContext[TimeWindow], totals: Sequence[int]) -> Iterator[str]:
        yield f"{key} [{ctx.window.start}, {ctx.window.end}) {totals[0]}"


class Pair(ProcessJoinFunction[Event, Event, str]):
    def process_element(self, left: Event, right: Event, ctx: JoinContext) -> Iterator[str]:
        yield f"{left[0]} {ctx.left_timestamp} {ctx.right_timestamp}"


def events(lines: DataStream[Any]) -> DataStream[Any]:
    parsed = lines.map(
        lambda line: (line.split()[0], int(line.split()[1]), int(line.split()[2])), output_type=tuple[str, int, int]
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=5), lambda event: event[2])
    return parsed.assign_timestamps_and_watermarks(strategy)


def windowed(assigner: Any, lateness: int = 0) -> Callable[[DataStream[Any]], DataStream[str]]:
    """Return a program that tells the total of each window, and each late record."""

    def program(lines: DataStream[Any]) -> DataStream[str]:
        totals = (
            events(lines)
            .key_by(lambda event: event[0], key_type=str)
            .window(assigner)
            .allowed_lateness(timedelta(milliseconds=lateness))
            .side_output_late_data(LATE)
            .aggregate(Total(), Told())
            .uid("totals")
        )
        return totals.union(totals.get_side_output(LATE).map(lambda event: f"late {event}", output_type=str))

    return program


def joined(lines: DataStream[Any]) -> DataStream[str]:
    """Tell the pairs of small and large amounts of a key that are at most 10 ms apart."""
    small = events(lines.filter(lambda line: int(line.split()[1]) % 2 == 0))
    large = events(lines.filter(lambda line: int(line.split()[1]) % 2 == 1))
    bounds = timedelta(milliseconds=-10), timedelta(milliseconds=10)
    one, other = (each.key_by(lambda event: event[0], key_type=str) for each in (small, large))
    return one.interval_join(other).between(*bounds).process(Pair()).uid("pairs")


TUMBLING = windowed(TumblingEventTimeWindows(timedelta(milliseconds=10)))
PROGRAMS: dict[str, Callable[[DataStream[Any]], DataStream[str]]] = {
    "tumbling": TUMBLING,
    "sliding": windowed(SlidingEventTimeWindows(timedelta(milliseconds=10), timedelta(milliseconds=4)), lateness=8),
    "session": windowed(EventTimeSessionWindows(timedelta(milliseconds=5)), lateness=3),
    "interval join": joined,
}


def run_locally(program: Callable[[DataStream[Any]], DataStream[str]]) -> Counter[str]:
    job = LocalJob(lambda env, lines: program(lines).print(), [epoch.splitlines() for epoch in EPOCHS], MemoryStorage())
    job.run()
    return Counter(line.rpartition("> ")[2] for line in job.heard.printed_lines)


def environment(jobs: Jobs, backend: str) -> StreamExecutionEnvironment:
    return jobs.environment(checkpoints=jobs.checkpoints(), settings={"state.backend.type": backend})


def lines_of(env: StreamExecutionEnvironment, jobs: Jobs) -> DataStream[Any]:
    return env.read_text(jobs.texts(*EPOCHS), max_files_per_epoch=1)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_without_spark(jobs: Jobs, name: str, backend: str) -> None:
    env = environment(jobs, backend)
    PROGRAMS[name](lines_of(env, jobs)).print()

    env.execute()

    assert Counter(jobs.watcher.shown) == run_locally(PROGRAMS[name])


def test_tumbling_windows_tell_what_is_late() -> None:
    assert run_locally(TUMBLING) == Counter(
        [
            *("a [0, 10) 9", "b [0, 10) 2", "c [0, 10) 7", "a [10, 20) 4"),
            *("b [20, 30) 6", "c [20, 30) 9", "a [30, 40) 8", "b [30, 40) 11"),
            *("late ('a', 10, 14)", "late ('c', 12, 1)"),
        ]
    )


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("name", ["tumbling", "session"])
def test_each_result_is_in_the_output_once_though_a_slot_is_killed(jobs: Jobs, name: str, backend: str) -> None:
    at_once = FixedDelayRestart(attempts=5, delay=timedelta(0))
    env = environment(jobs, backend).set_restart_strategy(at_once)
    out = jobs.tmp_path / "out"
    PROGRAMS[name](lines_of(env, jobs)).sink_to_files(str(out)).uid("out")

    def kill_once(stats: EpochStats) -> None:
        if stats.epoch == 1 and len(jobs.watcher.attempts) == 1:  # windows are open, and some have fired
            os.kill(jobs.watcher.attempts[0][0], signal.SIGKILL)

    jobs.watcher.on_epoch = kill_once
    result = env.execute()

    assert result.end is JobEnd.FINISHED
    assert len(jobs.watcher.attempts) == 2
    assert texts_in(out) == run_locally(PROGRAMS[name])


def texts_in(directory: Path) -> Counter[str]:
    lines = [line for part in directory.glob("*.json") for line in part.read_text().splitlines()]
    return Counter(next(iter(json.loads(line).values())) for line in lines)
