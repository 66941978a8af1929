"""Source functions in whole jobs: pulled epoch by epoch, by ticks while other sources run, until all have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.programs import Numbers

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import UserFunctionError
from checkdam.graph.functions import SourceFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import Heard, LocalJob
from checkdam.testing.trouble import DriverKilled, Step, Trouble, kill_driver, kill_slot


def job(
    build: Callable[[StreamExecutionEnvironment, DataStream[Any]], Any], *epochs: list[str], **options: Any
) -> LocalJob:
    return LocalJob(build, epochs, options.pop("storage", None) or MemoryStorage(), record_type=str, **options)


def shown(heard: Heard) -> list[str]:
    return sorted(line.rpartition("> ")[2] for line in heard.printed_lines)


def count_numbers(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    numbers = environment.add_source(Numbers(100), output_type=tuple[str, int]).uid("numbers")
    numbers.key_by(0, key_type=str).sum(1).uid("sum").print()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_of_source_functions_alone_ends_when_every_subtask_has(parallelism: int) -> None:
    running = job(count_numbers, parallelism=parallelism)
    running.run()

    assert running.state("sum") == {str(n): (str(n), 1) for n in range(100)}


def test_a_source_function_of_another_width_than_the_rest_has_a_level_of_its_own() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1).uid("w").print()
        numbers = environment.add_source(Numbers(10), output_type=tuple[str, int]).uid("numbers").set_parallelism(3)
        numbers.map(lambda pair: pair[0], output_type=str).print()

    heard = job(build, ["a"], ["a"], parallelism=2).run()

    assert shown(heard) == sorted(["('a', 1)", "('a', 2)", *map(str, range(10))])


@pytest.mark.parametrize("step", [Step.BEFORE_LEVEL, Step.AFTER_LEVEL, Step.EPOCH_ENDED, Step.BEFORE_WRITING])
@pytest.mark.parametrize("deed", [kill_slot(0), kill_slot(1)])
def test_records_of_a_source_function_count_once_whatever_is_lost(step: Step, deed: Any) -> None:
    kill = Trouble(step, deed, number=1)
    running = job(count_numbers, troubles=[kill])
    running.run()

    assert kill.happened.is_set()
    assert running.state("sum") == {str(n): (str(n), 1) for n in range(100)}


def test_a_source_function_beside_a_stream_goes_on_with_it_and_event_time_ends_with_both() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        by_time = WatermarkStrategy.for_monotonous_timestamps(lambda pair: pair[1])
        numbers = environment.add_source(Numbers(10), output_type=tuple[str, int]).uid("numbers")
        words = stream.map(lambda word: (word, 1), output_type=tuple[str, int])
        both = words.assign_timestamps_and_watermarks(by_time).union(numbers)
        both.key_by(0, key_type=str).sum(1).uid("sum").print()

    running = job(build, ["a"], ["a", "b"])
    running.run()

    assert running.state("sum") == {"a": ("a", 2), "b": ("b", 1), **{str(n): (str(n), 1) for n in range(10)}}


def test_a_source_function_that_fails_fails_the_job_with_its_name() -> None:
    class Bad(SourceFunction):
        def run(self, ctx: Any) -> Iterator[str]:
            yield "a"
            raise ValueError("no more")

    def build(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
        environment.add_source(Bad(), output_type=str).uid("bad").print()

    with pytest.raises(UserFunctionError, match="Bad"):
        job(build).run()


def test_a_driver_killed_between_two_pulls_is_resumed_behind_the_last_checkpoint() -> None:
    storage = MemoryStorage()
    kill = Trouble(Step.METADATA_WRITTEN, kill_driver, number=1)
    with pytest.raises(DriverKilled):
        job(count_numbers, storage=storage, troubles=[kill]).run()

    running = job(count_numbers, storage=storage)
    running.run()

    assert kill.happened.is_set()
    assert running.state("sum") == {str(n): (str(n), 1) for n in range(100)}


class Three(SourceFunction):
    """Three records, and no state to remember that they are out."""

    def run(self, ctx: Any) -> Iterator[tuple[str, int]]:
        yield from [("a", 1), ("b", 1), ("a", 1)]


def test_a_source_without_state_that_had_finished_is_not_run_again() -> None:
    def count(environment: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        three = environment.add_source(Three(), output_type=tuple[str, int]).uid("three").set_parallelism(1)
        pairs = words.map(lambda word: (word, 1), output_type=tuple[str, int])
        three.union(pairs).key_by(0, key_type=str).sum(1).uid("sum").print()

    storage = MemoryStorage()
    job(count, ["a"], storage=storage).run()

    resumed = job(count, ["a"], ["b"], storage=storage)
    resumed.run()

    assert resumed.state("sum") == {"a": ("a", 3), "b": ("b", 2)}


def test_a_source_that_had_finished_is_known_by_its_uid_whatever_stands_in_front_of_it_now() -> None:
    def count(environment: StreamExecutionEnvironment, words: DataStream[Any], *sources: str) -> None:
        for uid in sources:
            three = environment.add_source(Three(), output_type=tuple[str, int]).uid(uid).set_parallelism(1)
            three.key_by(0, key_type=str).sum(1).uid(f"sum of {uid}").print()
        words.print()

    storage = MemoryStorage()
    job(lambda environment, words: count(environment, words, "old"), ["a"], storage=storage).run()

    resumed = job(lambda environment, words: count(environment, words, "new", "old"), ["a"], ["b"], storage=storage)
    resumed.run()

    assert resumed.state("sum of new") == {"a": ("a", 2), "b": ("b", 1)}
    assert resumed.state("sum of old") == {"a": ("a", 2), "b": ("b", 1)}
