"""Answers to what is asked of a running job: futures that are done once."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from checkdam.errors import CheckdamError

T = TypeVar("T")


def new_answer() -> Future[Any]:
    """An answer that its asker cannot take back: what is under way is done, whether or not somebody still waits."""
    answer: Future[Any] = Future()
    answer.set_running_or_notify_cancel()
    return answer


def answered(value: T) -> Future[T]:
    answer: Future[T] = new_answer()
    answer.set_result(value)
    return answer


def refused(reason: CheckdamError) -> Future[Any]:
    answer = new_answer()
    refuse(answer, reason)
    return answer


def refuse(answer: Future[Any], reason: CheckdamError) -> None:
    """The first answer counts: when an attempt ends, several may have something to say."""
    with suppress(InvalidStateError):
        answer.set_exception(reason)
