"""Asynchronous operations: started by one request, polled by others, kept for a while after they end."""

from __future__ import annotations

import re
import secrets
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from checkdam.clock import Clock, SystemClock
from checkdam.errors import CheckdamError
from checkdam.flink.java_throwable import serialized_throwable
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.workers import settle
from checkdam.server.app.http_errors import RestError

_TRIGGER_ID = re.compile(r"[0-9a-fA-F]{32}")
_AWAITED_FOR = 10.0  # seconds after the start during which a client is expected to poll for the first time


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """`serialized_throwable` is the only field that Flink's Java client reads; `message` is ours."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: str
    message: str


class UnknownJobError(RestError):
    """An operation on an unknown job, with Flink's class name and wording, which tools compare with."""

    java_class = "org.apache.flink.runtime.messages.FlinkJobNotFoundException"

    def __init__(self, job_id: str) -> None:
        super().__init__(404, f"Could not find Flink job ({job_id})")


def failure_cause(error: BaseException) -> FailureCause:
    kind = getattr(error, "java_class", f"{type(error).__module__}.{type(error).__qualname__}")
    message = _fit(str(error)) or type(error).__name__
    text = f"{kind}: {message}"
    if not isinstance(error, CheckdamError | RestError):  # expected errors need no stack trace
        text = _fit("".join(traceback.format_exception(error)).rstrip())
    return FailureCause(kind, text, serialized_throwable(kind, message, text), message)


def _fit(text: str) -> str:
    """Return the text without credentials, and with lone surrogates escaped: JSON cannot encode them."""
    return without_credentials(text).encode("utf-8", "backslashreplace").decode()


def named_cause(name: str, message: str, stack_trace: str) -> FailureCause:
    """Return the cause of a job's end from its record."""
    return FailureCause(name, stack_trace, serialized_throwable(name, message, stack_trace), message)


class OperationKind(StrEnum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"  # also used for stop-with-savepoint
    DISPOSAL = "savepoint disposal"
    RESCALING = "rescaling"


@dataclass
class Operation:
    future: Future[Any]
    started_at: float  # monotonic seconds, as below
    ended_at: float | None = None
    was_polled: bool = False
    was_fetched: bool = False  # its end has been reported to a client

    @property
    def failure(self) -> BaseException | None:
        return self.future.exception() if self.future.done() else None


class Operations:
    """The operations of a server. Thread-safe. Reusing a trigger id starts nothing and returns the same operation."""

    def __init__(self, store_for: timedelta, clock: Clock | None = None) -> None:
        self._store_for = store_for.total_seconds()
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._operations: dict[tuple[OperationKind, str, str], Operation] = {}

    def start(self, kind: OperationKind, job_id: str, trigger_id: str | None, begin: Callable[[], Future[Any]]) -> str:
        """Start the operation unless this trigger id is already in use. If `begin` raises, the operation has failed."""
        trigger = (trigger_id or secrets.token_hex(16)).lower()
        if _TRIGGER_ID.fullmatch(trigger) is None:
            raise RestError(400, f'Bad request: triggerId "{trigger_id}" is not 32 hex digits.')
        key = (kind, job_id, trigger)
        with self._changed:
            self._forget_old()
            if key in self._operations:
                return trigger
            operation = Operation(Future(), self._clock.monotonic())
            self._operations[key] = operation
        try:
            future = begin()
        except Exception as error:  # noqa: BLE001  reported by the status call, like a later failure
            future = Future()
            future.set_exception(error)
        operation.future = future
        future.add_done_callback(lambda _: self._ended(operation))
        return trigger

    def find(self, kind: OperationKind, job_id: str, trigger_id: str) -> Operation | None:
        """Return the operation, marking it as fetched if it has ended; None if it is unknown or expired."""
        with self._changed:
            self._forget_old()
            operation = self._operations.get((kind, job_id, trigger_id))
            if operation is not None:
                operation.was_polled = True
                if operation.future.done():
                    operation.was_fetched = True
                    self._changed.notify_all()
            return operation

    def wait_until_fetched(self, timeout: float) -> bool:
        """Wait until clients have fetched the end of every operation they poll; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._awaited(), timeout)

    def _awaited(self) -> list[Operation]:
        now = self._clock.monotonic()
        return [
            operation
            for operation in self._operations.values()
            if not operation.was_fetched and (operation.was_polled or now - operation.started_at < _AWAITED_FOR)
        ]

    def _ended(self, operation: Operation) -> None:
        with self._changed:
            operation.ended_at = self._clock.monotonic()

    def _forget_old(self) -> None:
        horizon = self._clock.monotonic() - self._store_for
        for key, operation in list(self._operations.items()):
            if operation.ended_at is not None and operation.ended_at < horizon:
                del self._operations[key]


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run the function in a daemon thread."""
    future: Future[Any] = Future()
    threading.Thread(target=settle, args=(future, work), name="checkdam-operation", daemon=True).start()
    return future
