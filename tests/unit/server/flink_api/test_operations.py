from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.server.made_jobs import JOB

from checkdam.errors import StorageError
from checkdam.server.app.http_errors import RestError
from checkdam.server.flink_api.operations import OperationKind, Operations, in_thread
from checkdam.testing import ManualClock

KIND = OperationKind.SAVEPOINT
NEVER_BEGUN: Future[Any] = Future()


def _operations(clock: ManualClock | None = None) -> Operations:
    return Operations(timedelta(minutes=5), clock or ManualClock())


def _done(value: object = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_a_result_is_kept_for_a_while_after_the_end_and_not_before() -> None:
    clock = ManualClock()
    operations = _operations(clock)
    future: Future[Any] = Future()
    trigger = operations.start(KIND, JOB, None, lambda: future)
    clock.advance(timedelta(hours=1))
    assert operations.find(KIND, JOB, trigger) is not None

    future.set_result("done")
    clock.advance(timedelta(minutes=5))
    assert operations.find(KIND, JOB, trigger) is not None
    clock.advance(timedelta(seconds=1))
    assert operations.find(KIND, JOB, trigger) is None


def test_what_a_verb_raises_at_once_is_its_failure() -> None:
    def begin() -> Future[Any]:
        raise StorageError("no")

    operations = _operations()
    found = operations.find(KIND, JOB, operations.start(KIND, JOB, None, begin))

    assert found is not None
    assert isinstance(found.failure, StorageError)


def test_a_trigger_id_in_capitals_is_the_same_trigger() -> None:
    operations = _operations()

    assert operations.start(KIND, JOB, "A" * 32, _done) == "a" * 32
    assert operations.start(KIND, JOB, "a" * 32, lambda: pytest.fail("begun twice")) == "a" * 32


@pytest.mark.parametrize("trigger", ["x", "0" * 31, "0" * 33, "g" * 32, "0" * 32 + "\n"])
def test_a_malformed_trigger_id_starts_nothing(trigger: str) -> None:
    with pytest.raises(RestError, match="32 hex digits"):
        _operations().start(KIND, JOB, trigger, lambda: pytest.fail("begun"))


def test_waiting_ends_when_the_last_result_has_been_told() -> None:
    operations = _operations()
    trigger = operations.start(KIND, JOB, None, _done)
    fetched = threading.Timer(0, lambda: operations.find(KIND, JOB, trigger))

    fetched.start()

    assert operations.wait_until_fetched(30)
    fetched.join()


def test_nobody_is_waited_for_when_all_has_been_told() -> None:
    operations = _operations()
    operations.find(KIND, JOB, operations.start(KIND, JOB, None, _done))

    assert operations.wait_until_fetched(0)


def test_a_client_that_saw_it_under_way_is_waited_for() -> None:
    clock = ManualClock()
    operations = _operations(clock)
    future: Future[Any] = Future()
    operations.find(KIND, JOB, operations.start(KIND, JOB, None, lambda: future))
    clock.advance(timedelta(minutes=1))
    future.set_result(None)

    assert not operations.wait_until_fetched(0)


def test_who_never_asked_is_not_waited_for_long() -> None:
    clock = ManualClock()
    operations = _operations(clock)
    operations.start(KIND, JOB, None, _done)
    assert not operations.wait_until_fetched(0)

    clock.advance(timedelta(seconds=11))

    assert operations.wait_until_fetched(0)


def test_work_in_a_thread_ends_with_what_it_raised() -> None:
    def fail() -> None:
        raise StorageError("no")

    assert isinstance(in_thread(fail).exception(30), StorageError)


def test_an_end_between_two_looks_is_told_with_the_next_and_then_nobody_is_waited_for() -> None:
    operations = _operations()
    future: Future[Any] = Future()
    trigger = operations.start(KIND, JOB, None, lambda: future)

    found = operations.find(KIND, JOB, trigger)
    future.set_result("done")
    assert found is not None
    told = [found.was_fetched]  # what the status call goes by
    operations.find(KIND, JOB, trigger)
    told.append(found.was_fetched)

    assert told == [False, True]
    assert operations.wait_until_fetched(0)
