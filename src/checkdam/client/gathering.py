"""Small questions of many threads, sent together: what is asked while others are under way goes with the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

_UNDER_WAY = 1
"""Requests at once: with more of them fewer questions gather behind each, which costs more and is no sooner."""


class _Waiting:
    __slots__ = ("answer", "failure", "is_answered", "leads", "question", "was_alone", "woken")

    def __init__(self, question: Any) -> None:
        self.question = question
        self.woken = threading.Event()
        self.leads = False
        self.was_alone = False
        self.is_answered = False
        self.answer: Any = None
        self.failure: BaseException | None = None


class Gathering(Generic[Q, A]):
    """`ask` gets all questions that have gathered, and returns an answer to each; there is no thread but the callers'.

    When `ask` raises for several questions, each is asked again alone, so that one that is wrong spoils no other.
    """

    def __init__(self, ask: Callable[[Sequence[Q]], Sequence[A]], at_once: int) -> None:
        self._ask = ask
        self._at_once = at_once
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._under_way = 0

    def get(self, question: Q) -> A:
        mine = _Waiting(question)
        with self._lock:
            self._waiting.append(mine)
            leads = self._under_way < _UNDER_WAY
            self._under_way += leads
        if leads:
            self._lead()
        while not mine.is_answered:
            try:
                mine.woken.wait()
            except BaseException:  # such as a signal's: nobody else may wait for this one to lead
                self._leave(mine)
                raise
            mine.woken.clear()
            if mine.leads:
                mine.leads = False
                self._lead()
        if mine.failure is not None:
            if mine.was_alone:
                raise mine.failure
            [answer] = self._ask([question])
            return answer
        found: A = mine.answer
        return found

    def _lead(self) -> None:
        """Send what has gathered, then let one of those that wait send what has gathered since."""
        with self._lock:
            taken, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
        try:
            if taken:
                self._send(taken)
        finally:
            with self._lock:
                self._hand_on()

    def _hand_on(self) -> None:
        following = self._waiting[0] if self._waiting else None
        if following is None:
            self._under_way -= 1
        else:
            following.leads = True
            following.woken.set()

    def _leave(self, mine: _Waiting) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                if mine.leads:
                    self._hand_on()

    def _send(self, taken: list[_Waiting]) -> None:
        try:
            answers = self._ask([each.question for each in taken])
            for each, answer in zip(taken, answers, strict=True):
                each.answer = answer
        except BaseException as failure:
            for each in taken:
                each.failure, each.was_alone = failure, len(taken) == 1
            if not isinstance(failure, Exception):
                raise
        finally:
            for each in taken:
                each.is_answered = True
                each.woken.set()
