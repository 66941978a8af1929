"""Event time, timers and epochs without records on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import CheckpointRetention
from checkdam.graph.contexts import OnTimerContext, ProcessContext
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.graph.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs, LineServer

    from checkdam.api.streams import DataStream

pytestmark = pytest.mark.spark


KEPT = CheckpointRetention.RETAIN_ON_CANCELLATION


class Alarm(KeyedProcessFunction):
    """Rings, per key, when event time has come as far as the record says, and tells where the watermark stands."""

    def process_element(self, value: tuple[str, int], ctx: ProcessContext) -> None:
        assert ctx.timestamp == value[1]
        ctx.timer_service.register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[tuple[str, int, int]]:
        yield ctx.current_key, timestamp, min(ctx.timer_service.current_watermark, 10**9)


class After(KeyedProcessFunction):
    """Rings, per key, a little after the record."""

    def process_element(self, value: str, ctx: ProcessContext) -> None:
        time = ctx.timer_service
        time.register_processing_time_timer(time.current_processing_time + 300)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        yield ctx.current_key


def events(lines: DataStream[Any]) -> DataStream[Any]:
    """Lines such as "a 5", as pairs of key and timestamp."""
    pairs = lines.map(lambda line: (line.split()[0], int(line.split()[1])), output_type=tuple[str, int])
    return pairs.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda pair: pair[1]))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_fire_with_the_watermark_of_the_whole_job_and_the_rest_at_the_end(jobs: Jobs, parallelism: int) -> None:
    texts = jobs.texts("a 10\nb 20\n", "c 15\nd 21\n", "e 40\n")
    environment = jobs.environment(parallelism, jobs.checkpoints())
    alarms = events(environment.read_text(texts, max_files_per_epoch=1)).key_by(lambda pair: pair[0], key_type=str)
    rings = alarms.process(Alarm(), output_type=tuple[str, int, int]).uid("alarm")
    # Another exchange behind it: the epoch without records passes two levels.
    rings.key_by(lambda ring: ring[0], key_type=str).reduce(lambda one, other: other).uid("last").print()

    environment.execute()

    end = 10**9
    assert Counter(jobs.watcher.values) == Counter(
        [("a", 10, 19), ("c", 15, 20), ("b", 20, 20), ("d", 21, 39), ("e", 40, end)]
    )
    assert [stats.records for stats in jobs.watcher.epochs] == [2, 2, 1, 0]
    assert jobs.watcher.checkpoints[-1].epoch == jobs.watcher.epochs[-1].epoch


def test_what_is_there_from_the_start_holds_nobody_back_after_epoch_0(jobs: Jobs) -> None:
    texts = jobs.texts("a 10\nb 20\n", "c 50\n")
    environment = jobs.environment(2, jobs.checkpoints())
    static = events(environment.from_collection(["x 5"], type=str))
    both = events(environment.read_text(texts, max_files_per_epoch=1)).union(static)
    both.key_by(lambda pair: pair[0], key_type=str).process(Alarm(), output_type=tuple[str, int, int]).uid(
        "alarm"
    ).print()

    environment.execute()

    assert Counter(jobs.watcher.values) == Counter([("x", 5, 19), ("a", 10, 19), ("b", 20, 49), ("c", 50, 10**9)])


def test_a_processing_time_timer_fires_in_an_idle_job_and_the_job_resumes_behind_it(
    jobs: Jobs, line_server: LineServer
) -> None:
    def run(resume: bool) -> list[Any]:
        with line_server("a", "b") as port:
            environment = jobs.environment(2, jobs.checkpoints(retention=KEPT), resume=resume)
            keyed = environment.socket_text_stream("localhost", port).key_by(lambda line: line, key_type=str)
            keyed.process(After(), output_type=str).uid("after").print()
            jobs.watcher.on_checkpoint = lambda _: jobs.cancel() if len(jobs.watcher.lines) == 2 else None
            environment.execute("after")
        return jobs.watcher.shown

    first, again = run(resume=False), run(resume=True)

    assert sorted(first) == ["a", "b"]
    assert sorted(again) == ["a", "b"]
    assert jobs.watcher.restored_from
    epochs = [stats.epoch for stats in jobs.watcher.epochs]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))


def test_an_idle_stream_holds_nobody_back(jobs: Jobs, line_server: LineServer) -> None:
    idle = WatermarkStrategy.for_monotonous_timestamps(lambda pair: pair[1], idleness=timedelta(milliseconds=200))
    with line_server("a 10", "b 20") as port, line_server() as silent:
        environment = jobs.environment(2, jobs.checkpoints())
        pairs = environment.socket_text_stream("localhost", silent).map(
            lambda line: (line, 0), output_type=tuple[str, int]
        )
        both = events(environment.socket_text_stream("localhost", port)).union(
            pairs.assign_timestamps_and_watermarks(idle)
        )
        alarms = both.key_by(lambda pair: pair[0], key_type=str).process(Alarm(), output_type=tuple[str, int, int])
        alarms.uid("alarm").print()
        jobs.watcher.on_printed = lambda _: jobs.cancel()

        environment.execute()

    assert jobs.watcher.values == [("a", 10, 19)]
