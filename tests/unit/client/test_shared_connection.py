"""Many threads on one connection to a slot: whose answer is whose, what goes together, and what breaks together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkdam.client.shared_connection import SharedConnection
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_messages import Ask, FoundKeys, GetKeys, pack, unpack_asks
from checkdam.runtime.live_state.query_server import QueryServer


class Slot:
    """Answers each question with its own keys. The first message waits until it is let go."""

    def __init__(self) -> None:
        self.messages: list[list[Ask]] = []
        self.has_come, self.go_on = threading.Event(), threading.Event()
        self.answer: Callable[[list[Ask]], bytes] = lambda asks: pack(
            [FoundKeys(1, list(ask.keys)) for ask in asks if isinstance(ask, GetKeys)]
        )

    def __call__(self, request: bytes) -> bytes:
        asks = unpack_asks(request)
        self.messages.append(asks)
        self.has_come.set()
        assert self.go_on.wait(30)
        return self.answer(asks)


@pytest.fixture
def slot() -> Slot:
    return Slot()


@pytest.fixture
def connection(slot: Slot, tmp_path: Path) -> Iterator[SharedConnection]:
    access = QueryAccess(f"unix:{tmp_path}/q", "token")
    server = QueryServer(access, slot)
    connection = SharedConnection(access, 30)
    yield connection
    slot.go_on.set()
    connection.close()
    server.close()


class Asking:
    """Threads that ask for one key each, all after the first one's question is under way."""

    def __init__(self, connection: SharedConnection, slot: Slot, count: int) -> None:
        self.answers: dict[bytes, object] = {}
        self._connection = connection
        self._threads = [threading.Thread(target=self._ask, args=(b"%d" % number,)) for number in range(count)]
        self._threads[0].start()
        assert slot.has_come.wait(30)
        for thread in self._threads[1:]:
            thread.start()
        while len(connection._waiting) < count - 1:
            threading.Event().wait(0.001)

    def _ask(self, key: bytes) -> None:
        try:
            self.answers[key] = self._connection.ask(GetKeys("uid", "name", [key]))
        except OSError as error:
            self.answers[key] = str(error)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def test_questions_that_come_during_a_call_go_together(connection: SharedConnection, slot: Slot) -> None:
    asking = Asking(connection, slot, 9)
    slot.go_on.set()
    asking.end()

    assert [len(message) for message in slot.messages] == [1, 8]
    assert asking.answers == {key: FoundKeys(1, [key]) for key in (b"%d" % number for number in range(9))}


def test_after_each_other_each_has_its_own_answer(connection: SharedConnection, slot: Slot) -> None:
    slot.go_on.set()

    answers = [connection.ask(GetKeys("uid", "name", [key])) for key in (b"a", b"b")]

    assert answers == [FoundKeys(1, [b"a"]), FoundKeys(1, [b"b"])]


@pytest.mark.parametrize("answer", [b"nonsense", pack([]), pack([FoundKeys(1, [])] * 2)])
def test_a_wrong_answer_and_all_after_it_are_errors(connection: SharedConnection, slot: Slot, answer: bytes) -> None:
    slot.answer = lambda asks: answer
    asking = Asking(connection, slot, 4)
    slot.go_on.set()
    asking.end()

    assert len(asking.answers) == 4
    assert all(isinstance(each, str) for each in asking.answers.values())
    assert len(slot.messages) == 1


def test_the_end_of_the_slot_frees_all_who_wait(connection: SharedConnection, slot: Slot) -> None:
    asking = Asking(connection, slot, 4)

    connection.close()
    asking.end()

    assert all(isinstance(each, str) for each in asking.answers.values())


def test_a_thread_that_is_interrupted_leaves_the_others_their_answers(
    connection: SharedConnection, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one that has to send the questions of all, and has not begun."""
    slot.go_on.set()
    connection.ask(GetKeys("uid", "name", [b"first"]))
    paused, go_on = threading.Event(), threading.Event()
    interrupted: list[BaseException] = []

    def sleep(seconds: float) -> None:
        if not paused.is_set():
            paused.set()
            assert go_on.wait(30)
            raise KeyboardInterrupt

    monkeypatch.setattr("checkdam.client.shared_connection.time.sleep", sleep)
    connection._not_before = float("inf")

    def ask() -> None:
        try:
            connection.ask(GetKeys("uid", "name", [b"interrupted"]))
        except BaseException as error:  # noqa: BLE001  it is the one that is expected
            interrupted.append(error)

    first = threading.Thread(target=ask)
    first.start()
    assert paused.wait(30)
    answers: list[object] = []
    second = threading.Thread(target=lambda: answers.append(connection.ask(GetKeys("uid", "name", [b"second"]))))
    second.start()
    while len(connection._waiting) < 2:
        threading.Event().wait(0.001)
    go_on.set()
    first.join(30)
    second.join(30)

    assert [type(each) for each in interrupted] == [KeyboardInterrupt]
    assert answers == [FoundKeys(1, [b"second"])]


@pytest.mark.parametrize(("took", "pause"), [(0.0001, 0.0007), (0.0005, 0.0035), (0.002, 0.004), (0.05, None)])
def test_the_busier_a_slot_is_the_later_it_is_asked_again(
    connection: SharedConnection, slot: Slot, monkeypatch: pytest.MonkeyPatch, took: float, pause: float | None
) -> None:
    now = [100.0]
    slept: list[float] = []
    monkeypatch.setattr("checkdam.client.shared_connection.time.monotonic", lambda: now[0])
    monkeypatch.setattr("checkdam.client.shared_connection.time.sleep", slept.append)

    def answer(asks: list[Ask]) -> bytes:
        now[0] += took
        return pack([FoundKeys(1, [])])

    slot.answer = answer
    slot.go_on.set()

    for _ in range(2):
        connection.ask(GetKeys("uid", "name", [b"a"]))

    assert slept == ([] if pause is None else [pytest.approx(pause)])
