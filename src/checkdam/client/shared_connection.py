"""One connection to a slot for all threads of a client."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import msgspec

from checkdam.runtime.live_state.query_connection import QueryAccess, QueryConnection
from checkdam.runtime.live_state.query_messages import Answer, Ask, pack, unpack_answers

_BUSY_CALLS_PART: Final = 8
_MOST_BETWEEN_CALLS_SECONDS: Final = 0.006
"""A call interrupts the slot's processing, the more the busier it is: the next one starts after so many times as long
as the last one took, but after 6 ms at most.
"""

_AT_ONCE: Final = 1000


class SharedConnection:
    """Asks one slot. Questions that come while a call is under way go together with the next call. Thread-safe.

    No thread of its own: of the threads that wait, one sends the questions of all. When the call has ended, it hands
    over to a thread whose question came later.
    """

    def __init__(self, access: QueryAccess, timeout: float) -> None:
        self._connection = QueryConnection(access, timeout)
        self._lock = threading.Lock()
        self._waiting: list[_Question] = []
        self._is_busy = False  # a thread sends, or was told to
        self._not_before = 0.0

    def ask(self, ask: Ask) -> Answer:
        """Return the slot's answer.

        Raises:
            OSError: the slot cannot be asked on this connection, now or later.
        """
        question = _Question(ask)
        with self._lock:
            self._waiting.append(question)
            if not self._is_busy:
                self._is_busy = question.leads = True
        try:
            if not question.leads:
                question.woken.acquire()
            if question.leads:
                self._call()
        except BaseException:  # such as the interruption of this thread
            self._leave(question)
            raise
        if isinstance(question.answer, OSError):
            raise ConnectionError(str(question.answer)) from question.answer
        return question.answer  # type: ignore[no-any-return]  # set by now

    def close(self) -> None:
        """Close the connection for good. Threads that wait get an OSError."""
        self._connection.close()

    def _call(self) -> None:
        early = self._not_before - time.monotonic()
        if early > 0:
            time.sleep(early)  # more questions join meanwhile
        with self._lock:
            taken, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        began = time.monotonic()
        answers: list[Any] = [ConnectionError("the call was interrupted")] * len(taken)
        try:
            answers = self._answers([each.ask for each in taken])
        except OSError as error:
            answers = [error] * len(taken)
        finally:
            took = time.monotonic() - began
            self._not_before = began + min(_BUSY_CALLS_PART * took, _MOST_BETWEEN_CALLS_SECONDS)
            for each, answer in zip(taken, answers, strict=True):
                each.answer = answer
                each.leads = False
                each.woken.release()
            with self._lock:
                self._hand_over()

    def _answers(self, asks: list[Ask]) -> list[Answer]:
        try:
            answers = unpack_answers(self._connection.ask(pack(asks)))
        except msgspec.DecodeError as error:
            self._connection.close()
            raise ConnectionError(f"a slot answered with something else: {error}") from error
        if len(answers) != len(asks):
            self._connection.close()
            raise ConnectionError(f"a slot answered {len(answers)} of {len(asks)} questions")
        return answers

    def _hand_over(self) -> None:
        """Let the first thread that waits send the next call. The caller holds the lock."""
        self._is_busy = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].woken.release()

    def _leave(self, question: _Question) -> None:
        with self._lock:
            if question in self._waiting:
                self._waiting.remove(question)
                if question.leads:
                    self._hand_over()


class _Question:
    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answer: Any = None
        self.leads = False
        self.woken = threading.Lock()  # held until there is an answer, or something to do
        self.woken.acquire()
