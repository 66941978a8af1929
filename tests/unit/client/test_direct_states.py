"""When a client asks slots itself, and when it goes back to the driver: against real sockets and a driver of words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkdam.client.direct_states import AskDriverError, DirectStates, Place
from checkdam.errors import RequestRefusedError
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_messages import FoundKeys, GetKeys, Refused, pack, unpack_asks
from checkdam.runtime.live_state.query_server import QueryServer
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of

PLACE = ("ab" * 16, "count", "n")


class Job:
    """A job of some slots, and its driver. Each slot answers with the number of its attempt for each key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[QueryServer] = []
        self.described: Any = None
        self.looked_up = 0
        self.asked = 0
        self.attempt = 0
        self.refuses = False
        self.now = 0.0

    def start(self, parallelism: int) -> None:
        """Begin an attempt: with new slots, and a new token."""
        self.stop()
        self.attempt += 1
        ways = [f"unix:{self._directory}/{self.attempt}-{each}" for each in range(parallelism)]
        self._servers = [QueryServer(QueryAccess(way, f"t{self.attempt}"), self._answer) for way in ways]
        self.described = {
            "attempt": f"a{self.attempt}",
            "key-type": text_of(type_info(str)),
            "kind": "value",
            "type": text_of(type_info(int)),
            "map-key-type": None,
            "window-type": None,
            "ttl": False,
            "parallelism": parallelism,
            "max-parallelism": 128,
            "slots": ways,
            "token": f"t{self.attempt}",
        }

    def stop(self) -> None:
        for server in self._servers:
            server.close()

    def describe(self, place: Place) -> Any:
        assert place == PLACE
        self.looked_up += 1
        if self.described is None:
            raise RequestRefusedError("it fails over")
        return self.described

    def _answer(self, request: bytes) -> bytes:
        self.asked += 1
        value = serializer(type_info(int)).encode_one(self.attempt)
        if self.refuses:
            return pack([Refused(is_wrong=False, message="not now", hint=None)] * len(unpack_asks(request)))
        return pack([FoundKeys(7, [value] * len(ask.keys)) for ask in unpack_asks(request) if isinstance(ask, GetKeys)])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    job.start(2)
    yield job
    job.stop()


@pytest.fixture
def states(job: Job) -> Iterator[DirectStates]:
    states = DirectStates(job.describe, 30, lambda: job.now)
    yield states
    states.close()


def values(states: DirectStates, count: int = 20) -> set[Any]:
    keys = [f"w{number}" for number in range(count)]
    found = states.get(PLACE, keys, None, None, is_text=False)
    assert [key for _, key, *_ in found] == keys
    return {value for _, _, _, value, *_ in found}


def test_the_driver_is_asked_once_where_the_slots_are(job: Job, states: DirectStates) -> None:
    assert [values(states) for _ in range(3)] == [{1}] * 3

    assert (job.looked_up, job.asked) == (1, 6)


def test_after_a_failover_the_new_slots_are_asked(job: Job, states: DirectStates) -> None:
    values(states)
    job.start(2)

    with pytest.raises(AskDriverError):
        values(states)
    with pytest.raises(AskDriverError):  # not again at once: the driver may not know of it yet
        values(states)
    assert job.looked_up == 1
    job.now += 2

    assert values(states) == {2}


def test_after_a_rescale_keys_are_asked_for_where_they_are_now(job: Job, states: DirectStates) -> None:
    values(states)
    job.start(5)
    with pytest.raises(AskDriverError):
        values(states)
    job.now += 2

    found = states.get(PLACE, [f"w{number}" for number in range(50)], None, None, is_text=False)

    assert {subtask for *_, subtask in found} == {0, 1, 2, 3, 4}
    assert all(subtask == group * 5 // 128 for *_, group, subtask in found)


def test_an_old_description_does_not_reach_new_slots(job: Job, states: DirectStates) -> None:
    """A slot of the next attempt listens where one of the last did: its token tells them apart."""
    values(states)
    job.stop()
    old = job.described
    server = QueryServer(QueryAccess(old["slots"][0] + "x", "another"), job._answer)
    job.described = {**old, "slots": [each + "x" for each in old["slots"][:1]], "parallelism": 1}
    asked = job.asked
    with pytest.raises(AskDriverError):
        values(states)
    job.now += 2

    with pytest.raises(AskDriverError):
        values(states)

    assert job.asked == asked
    server.close()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"slots": []}, id="slots that cannot be asked"),
        pytest.param({"slots": ["unix:/nowhere/a", "unix:/nowhere/b"]}, id="slots on another machine"),
        pytest.param({"slots": ["https://a", "https://b"]}, id="slots of a newer version"),
        pytest.param({"key-type": '{"newer": 1}'}, id="types of a newer version"),
        pytest.param({"max-parallelism": None}, id="no such description"),
    ],
)
def test_what_cannot_be_asked_is_left_to_the_driver(change: dict[str, Any], job: Job, states: DirectStates) -> None:
    job.described.update(change)

    for _ in range(3):
        with pytest.raises(AskDriverError):
            values(states)

    assert job.looked_up == 1


def test_an_old_server_is_asked_for_everything(job: Job, states: DirectStates) -> None:
    job.described = None

    for _ in range(3):
        with pytest.raises(AskDriverError):
            values(states)

    assert (job.looked_up, job.asked) == (1, 0)


def test_what_a_slot_refuses_the_driver_explains(job: Job, states: DirectStates) -> None:
    job.refuses = True
    with pytest.raises(AskDriverError):
        values(states)
    job.refuses = False

    assert values(states) == {1}


@pytest.mark.parametrize(("map_key", "window"), [(1, None), (None, {"start": 0, "end": 1})])
def test_a_wrong_question_does_not_reach_a_slot(map_key: Any, window: Any, job: Job, states: DirectStates) -> None:
    with pytest.raises(AskDriverError):
        states.get(PLACE, ["w1"], map_key, window, is_text=True)

    assert job.asked == 0


def test_keys_are_read_as_the_server_reads_them(job: Job, states: DirectStates) -> None:
    [(_, key, *_)] = states.get(PLACE, [7], None, None, is_text=True)
    assert key == "7"

    with pytest.raises(AskDriverError):
        states.get(PLACE, [7], None, None, is_text=False)


def test_a_closed_client_asks_again_when_it_is_used(job: Job, states: DirectStates) -> None:
    values(states)

    states.close()

    assert values(states) == {1}
    assert job.looked_up == 2
