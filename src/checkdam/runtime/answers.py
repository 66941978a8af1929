"""Answers to requests to a running job: futures that are set once."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from checkdam.errors import CheckdamError

T = TypeVar("T")


def new_answer() -> Future[Any]:
    """Return a future that the requester cannot cancel: work in progress is finished, awaited or not."""
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


def give(answer: Future[T], value: T) -> None:
    """Set the answer, unless it is already set: a job that was given up has refused all."""
    with suppress(InvalidStateError):
        answer.set_result(value)


def refuse(answer: Future[Any], reason: CheckdamError) -> None:
    """Fail the answer, unless it is already set: several parties may refuse when an attempt ends."""
    with suppress(InvalidStateError):
        answer.set_exception(reason)
