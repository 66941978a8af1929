"""Which failures the restart strategy is asked about: all that a restart may mend, however often they come."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from checkdam import KeyedProcessFunction, MapFunction, SinkFunction, SourceFunction, StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import JobFailedError, StateNotRestorableError, UserFunctionError
from checkdam.graph.contexts import RuntimeContext
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import Build, LocalJob

FOUR_TIMES = FixedDelayRestart(attempts=4, delay=timedelta(0))


class Service:
    """Is down until it has been asked so often; always with the same words."""

    down_for = 0

    @classmethod
    def ask(cls) -> None:
        if cls.down_for > 0:
            cls.down_for -= 1
            raise ConnectionError("the service is down")


class AsksInOpen(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        Service.ask()

    def map(self, value: str) -> str:
        return value


class AsksForEachRecord(MapFunction):
    def map(self, value: str) -> str:
        Service.ask()
        return value


class AsksAsSource(SourceFunction):
    def run(self, ctx: Any) -> Iterator[str]:
        Service.ask()
        yield "a"


class AsksInTimer(KeyedProcessFunction):
    def process_element(self, value: str, ctx: Any) -> None:
        ctx.timer_service.register_processing_time_timer(0)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        Service.ask()
        yield ctx.current_key


class AsksAsSink(SinkFunction):
    def invoke(self, value: str, ctx: Any) -> None:
        Service.ask()


def _in_open(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.map(AsksInOpen(), output_type=str).print()


def _in_source(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.filter(lambda word: False).union(env.add_source(AsksAsSource(), output_type=str).uid("source")).print()


def _in_timer(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.key_by(lambda word: word).process(AsksInTimer(), output_type=str).uid("timer").print()


def _in_sink(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.add_sink(AsksAsSink()).uid("sink")
    words.print()


def _in_keyed_sink(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.key_by(lambda word: word).add_sink(AsksAsSink()).uid("sink")
    words.print()


def _in_spark_sink(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.sink_to_spark(lambda rows, epoch: Service.ask())
    words.print()


def _on_record(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
    words.map(AsksForEachRecord(), output_type=str).print()


def _failing_early(build: Build) -> Build:
    def with_setting(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        env.set_restart_strategy(FOUR_TIMES, fail_on_repeated_rejection=True)
        build(env, words)

    return with_setting


def _job(build: Build) -> LocalJob:
    return LocalJob(build, [["a"]], MemoryStorage(), parallelism=1, restart=FOUR_TIMES)


ELSEWHERE = [_in_open, _in_source, _in_timer, _in_sink, _in_keyed_sink, _in_spark_sink]


@pytest.mark.parametrize("build", [*ELSEWHERE, _on_record])
def test_the_same_error_again_and_again_is_restarted_as_the_strategy_says(build: Build) -> None:
    Service.down_for = 4

    heard = _job(build).run()

    assert heard.printed_lines[-1:] == ["a"]
    assert len(heard.restarts) == 4


@pytest.mark.parametrize("build", [*ELSEWHERE, _on_record])
def test_the_strategy_also_ends_it(build: Build) -> None:
    Service.down_for = 100
    job = _job(build)

    with pytest.raises(JobFailedError, match="the service is down"):
        job.run()

    assert len(job.heard.restarts) == 4
    assert Service.down_for == 95


def test_a_record_rejected_again_ends_the_job_early_if_so_set() -> None:
    Service.down_for = 100
    job = _job(_failing_early(_on_record))

    with pytest.raises(UserFunctionError, match="failed on record 'a'"):
        job.run()

    assert len(job.heard.restarts) == 1


@pytest.mark.parametrize("build", ELSEWHERE)
def test_what_is_no_record_of_a_function_never_ends_it_early(build: Build) -> None:
    Service.down_for = 4

    heard = _job(_failing_early(build)).run()

    assert len(heard.restarts) == 4


def test_a_checkpoint_that_does_not_fit_is_raised_at_once() -> None:
    storage = MemoryStorage()
    counted = LocalJob(lambda env, s: s.key_by(lambda w: w).max().uid("before").print(), [["a"]], storage)
    path = counted.run().last_checkpoint
    assert path is not None
    job = LocalJob(lambda env, s: s.key_by(lambda w: w).max().uid("after").print(), [["a"]], MemoryStorage())

    with pytest.raises(StateNotRestorableError):
        job.run(restore=path)

    assert job.heard.restarts == []
