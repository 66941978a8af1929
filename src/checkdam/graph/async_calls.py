"""Settings of asynchronous calls: when a failed call is made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from checkdam.errors import JobGraphError


@dataclass(frozen=True)
class AsyncRetry:
    """When `map_async` calls its function again for a record.

    Without predicates, every exception is retried and no result is. After the last attempt the exception fails the
    job; a result that `if_result` still rejects is emitted, as in Flink.
    """

    attempts: int = 3
    """How often the function is called for a record at most, including the first call."""
    delay: timedelta = timedelta(milliseconds=100)
    """The pause before the second attempt."""
    factor: float = 1.0
    """Each further pause is this many times as long as the one before: 1.0 for a fixed delay, 2.0 to double it."""
    max_delay: timedelta | None = None
    """The longest pause."""
    if_exception: Callable[[Exception], bool] | None = None
    """Whether to retry after this exception."""
    if_result: Callable[[Any], bool] | None = None
    """Whether to retry after this result."""

    def __post_init__(self) -> None:
        _check("attempts", self.attempts, is_whole(self.attempts) and self.attempts >= 1, "a whole number from 1")
        is_delay = isinstance(self.delay, timedelta) and self.delay >= timedelta(0)
        _check("delay", self.delay, is_delay, "a timedelta of zero or more")
        is_number = isinstance(self.factor, int | float) and not isinstance(self.factor, bool)
        _check("factor", self.factor, is_number and 1 <= self.factor < float("inf"), "a number from 1")
        is_longest = self.max_delay is None or (isinstance(self.max_delay, timedelta) and self.max_delay >= self.delay)
        _check("max_delay", self.max_delay, is_longest, f"a timedelta of at least delay, which is {self.delay}")
        for name in ("if_exception", "if_result"):
            predicate = getattr(self, name)
            _check(name, predicate, predicate is None or callable(predicate), "a function")

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after this attempt, counted from 1."""
        longest = float("inf") if self.max_delay is None else self.max_delay.total_seconds()
        try:
            return float(min(self.delay.total_seconds() * self.factor ** (attempt - 1), longest))
        except OverflowError:
            return longest


def is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _check(name: str, value: Any, is_right: bool, wanted: str) -> None:  # noqa: FBT001  the outcome of a check
    if not is_right:
        raise JobGraphError(f"AsyncRetry: {name} must be {wanted}, not {value!r}")
