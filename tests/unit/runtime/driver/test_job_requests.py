from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.word_count import WordCount

from checkdam.errors import JobControlError
from checkdam.runtime.driver.job_requests import (
    CheckpointRequest,
    Request,
    Requests,
    RescaleRequest,
    SavepointRequest,
    StopRequest,
)
from checkdam.runtime.job_control import SavepointFormat


def stop() -> StopRequest:
    return StopRequest("place", SavepointFormat.CANONICAL, drain=False)


def rescale() -> RescaleRequest:
    return RescaleRequest(WordCount([["a"]]).job().job())


def savepoint() -> SavepointRequest:
    return SavepointRequest("place", SavepointFormat.CANONICAL)


@pytest.fixture
def requests() -> Requests:
    return Requests()


Ending = Callable[[], StopRequest | RescaleRequest]


def always(request: Request) -> bool:
    return True


def test_the_oldest_that_can_begin_is_the_first(requests: Requests) -> None:
    blocked, free = CheckpointRequest(full=False), savepoint()
    requests.add(blocked)
    requests.add(free)

    assert requests.first(always) is blocked
    assert requests.first(lambda request: request is not blocked) is free


@pytest.mark.parametrize("last", [stop, rescale])
def test_what_ends_the_attempt_overtakes_nothing_and_is_overtaken_by_nothing(requests: Requests, last: Ending) -> None:
    blocked, ending, later = CheckpointRequest(full=False), last(), savepoint()
    for request in (blocked, ending, later):
        requests.add(request)

    assert requests.first(lambda request: request is not blocked) is None
    requests.take(blocked)
    assert requests.first(always) is ending
    requests.take(ending)
    assert requests.first(always) is later


@pytest.mark.parametrize("last", [stop, rescale])
def test_an_attempt_ends_once_unless_that_fails(requests: Requests, last: Ending) -> None:
    first, second, third = last(), stop(), stop()
    requests.add(first)

    requests.add(second)
    requests.failed(first, JobControlError("disk full"))
    requests.add(third)

    assert "already" in str(second.answer.exception(0))
    assert "disk full" in str(first.answer.exception(0))
    assert requests.first(always) is third


def test_when_they_are_closed_all_are_answered_and_so_is_whoever_comes_later(requests: Requests) -> None:
    before, after = savepoint(), savepoint()
    requests.add(before)

    requests.close(JobControlError("over"))
    requests.add(after)
    requests.failed(before, JobControlError("too late"))

    assert [str(each.answer.exception(0)) for each in (before, after)] == ["over", "over"]
    assert requests.first(always) is None


def test_an_asker_cannot_take_a_request_back() -> None:
    request = savepoint()

    assert not request.answer.cancel()
