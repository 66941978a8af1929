"""execute_and_collect: the records of a stream as they come, and a job that ends with the iterator."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import JobGraphError, UserFunctionError
from checkdam.runtime.job_status import JobStatus
from checkdam.testing.gate import Gate
from checkdam.testing.local_target import local_environment

PATIENCE = 60


@dataclass(frozen=True)
class Visit:
    who: str
    at: datetime
    pages: list[str]
    rating: float | None = None


@pytest.mark.parametrize(
    "records",
    [
        [1, 2, 3],
        [("a", 1), ("b", 2)],
        [Visit("ada", datetime(2024, 1, 1), ["home"]), Visit("bob", datetime(2024, 1, 1, tzinfo=UTC), [], 1.5)],  # noqa: DTZ001  naive on purpose
    ],
)
def test_records_come_as_they_were_sent(records: list[Any]) -> None:
    environment = local_environment()

    with environment.from_collection(records).execute_and_collect("collected") as collected:
        assert list(collected) == records

    assert collected.job.wait(0).end is JobEnd.FINISHED


def test_records_come_while_the_job_runs_and_closing_ends_it() -> None:
    environment = local_environment(until=Gate())  # never opened: the input has no end
    counts = environment.from_collection([("a", 1), ("a", 1)]).key_by(0).sum(1).uid("count")

    with counts.execute_and_collect() as collected:
        first = next(collected)
        assert collected.job.status is JobStatus.RUNNING

    assert first == ("a", 1)
    assert collected.job.wait(0).end is JobEnd.CANCELLED
    assert list(collected) == []


def test_the_job_ends_when_the_limit_is_reached() -> None:
    environment = local_environment(until=Gate())

    collected = environment.from_collection(range(10)).execute_and_collect(limit=3)

    assert list(collected) == [0, 1, 2]
    assert collected.job.wait(0).end is JobEnd.CANCELLED


def test_a_limit_above_the_number_of_records_gives_all_of_them() -> None:
    assert list(local_environment().from_collection([1, 2]).execute_and_collect(limit=5)) == [1, 2]


def test_what_the_job_fails_with_is_raised_while_iterating() -> None:
    environment = local_environment()
    failing = environment.from_collection([0]).map(lambda number: 1 // number, output_type=int)

    collected = failing.execute_and_collect()

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        next(collected)
    assert list(collected) == []


def test_an_iterator_that_is_given_up_ends_its_job() -> None:
    gc.freeze()  # a collection then looks only at what this test makes
    collected = local_environment(until=Gate()).from_collection([1]).execute_and_collect()
    job = collected.job
    assert next(collected) == 1

    del collected
    gc.collect()

    assert job.wait(PATIENCE).end is JobEnd.CANCELLED


def test_other_sinks_of_the_program_run_too() -> None:
    seen: list[Any] = []
    environment = local_environment()
    numbers = environment.from_collection([1, 2])
    numbers.sink_to_spark(lambda rows, epoch: seen.extend(rows))

    assert sorted(numbers.map(lambda n: -n, output_type=int).execute_and_collect()) == [-2, -1]
    assert sorted(seen) == [1, 2]


def test_records_without_a_known_type_are_refused() -> None:
    unknown = local_environment().from_collection([1]).map(lambda number: object())

    with pytest.raises(JobGraphError, match="output_type"):
        unknown.execute_and_collect()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_is_a_whole_number_above_zero(limit: Any) -> None:
    with pytest.raises(JobGraphError, match="limit"):
        local_environment().from_collection([1]).execute_and_collect(limit=limit)


def test_a_record_that_is_not_of_its_type_fails_the_job_where_it_is() -> None:
    words: DataStream[Any] = local_environment().from_collection(["a"])
    wrong = words.map(lambda word: word, output_type=int)

    with pytest.raises(UserFunctionError):
        list(wrong.execute_and_collect())
