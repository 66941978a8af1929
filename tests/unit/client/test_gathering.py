"""Questions of many threads go out together, and each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from checkdam.client.gathering import Gathering, _Waiting


class Server:
    """Doubles numbers. The first question waits until it is let go, so that others gather behind it."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def ask(self, numbers: Sequence[int]) -> list[int]:
        with self._lock:
            self.asked.append(list(numbers))
        assert self.go_on.wait(30)
        if any(number < 0 for number in numbers):
            raise ValueError("negative")
        return [2 * number for number in numbers]


def asked_for(gathering: Gathering[int, int], number: int, answers: dict[int, object]) -> threading.Thread:
    def ask() -> None:
        try:
            answers[number] = gathering.get(number)
        except ValueError as error:
            answers[number] = str(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def gathered(server: Server, gathering: Gathering[int, int], numbers: Sequence[int]) -> dict[int, object]:
    answers: dict[int, object] = {}
    threads = [asked_for(gathering, number, answers) for number in numbers]
    while len(server.asked) + len(gathering._waiting) < len(numbers):
        threading.Event().wait(0.001)  # until all have asked
    server.go_on.set()
    for thread in threads:
        thread.join(30)
    return answers


def test_what_is_asked_while_others_are_under_way_goes_together() -> None:
    server = Server()
    gathering = Gathering(server.ask, 1000)

    answers = gathered(server, gathering, range(20))

    assert answers == {number: 2 * number for number in range(20)}
    assert list(map(len, server.asked)) == [1, 19]
    assert gathering._under_way == 0


def test_one_wrong_question_spoils_no_other() -> None:
    server = Server()

    answers = gathered(server, Gathering(server.ask, 1000), [1, 2, 3, -4, 5])

    assert answers == {1: 2, 2: 4, 3: 6, -4: "negative", 5: 10}


def test_no_more_go_together_than_may() -> None:
    server = Server()

    answers = gathered(server, Gathering(server.ask, 3), range(20))

    assert answers == {number: 2 * number for number in range(20)}
    assert max(map(len, server.asked)) <= 3


def test_a_failure_of_a_single_question_is_raised_as_it_is() -> None:
    server = Server()
    server.go_on.set()

    with pytest.raises(ValueError, match="negative"):
        Gathering(server.ask, 10).get(-1)

    assert server.asked == [[-1]]


def test_one_that_is_interrupted_while_it_waits_holds_up_nobody() -> None:
    server = Server()
    gathering = Gathering(server.ask, 10)
    answers: dict[int, object] = {}
    first = asked_for(gathering, 1, answers)
    while not server.asked:
        threading.Event().wait(0.001)

    class Interrupted(_Waiting):
        def __init__(self, question: int) -> None:
            super().__init__(question)
            self.woken = _Interrupting()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("checkdam.client.gathering._Waiting", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            gathering.get(2)
    server.go_on.set()
    first.join(30)

    assert gathering.get(3) == 6
    assert answers == {1: 2}


class _Interrupting(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt
