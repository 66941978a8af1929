"""The generator of a source function in a thread of its own, so that an epoch never waits for user code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from checkdam.clock import Clock

S = TypeVar("S")

MOST_RECORDS: Final = 50_000
MOST_SECONDS: Final = 0.2
"""The most one epoch takes from a source, whichever limit comes first: barriers wait for epochs to end."""

_GRACE_SECONDS: Final = 0.05
"""How much longer an epoch waits for a computing generator to reach its next yield."""

_STEPS: Final = 10
_NOT_AWAITED: Final = float("-inf")


@dataclass(frozen=True)
class Taken(Generic[S]):
    """Records for one epoch, and the state of the function at the yield of the last one."""

    records: list[Any]
    state: S | None  # None: the function keeps none, or no record was taken
    has_ended: bool = False  # all records were taken
    failure: BaseException | None = None


class GeneratorThread(Generic[S]):
    """Runs a generator ahead of the epochs that take its records.

    The generator is either parked at a yield, or inside user code. A fast one is parked between epochs: it runs while
    an epoch waits for it, until the epoch has enough. One that is inside user code when the epoch's time is over
    continues, and what it yields later goes to the next epoch; it is parked when enough records for an epoch are
    waiting.

    Records that no epoch has taken are not part of the stream yet. At each yield, before the generator continues,
    `capture` copies the function's state. So `take` returns records together with the state at the yield of the last
    one, whatever the generator does meanwhile.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Iterable[Any]],
        clock: Clock,
        *,
        copy: Callable[[Any], Any] | None = None,
        capture: Callable[[], S] | None = None,
        records_came: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the generator with the first `take`.

        `records_came` is called when an epoch should run: there are new records, or the generator has ended. It must
        not call back.
        """
        self._begin = begin
        self._clock = clock
        self._copy = copy
        self._capture = capture
        self._records_came = records_came
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"source-{name}")
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._buffer: list[Any] = []
        self._captured: tuple[int, S | None] = 0, None  # one reference: how many were yielded, and the state then
        self._taken = 0
        self._until = _NOT_AWAITED  # until when the waiting epoch takes records
        self._ahead_since = 0.0  # when the first record came that no epoch has waited for
        self._is_parked = True
        self._has_ended = False
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._is_closing = False  # the generator is closing at the yield it was parked at

    # -- for the thread of the slot -------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    @property
    def has_records(self) -> bool:
        """Whether `take` would return records, or could: a parked generator continues at once."""
        with self._changed:
            return self._is_parked or self._has_ended or self._available() > 0

    def take(self) -> Taken[S]:
        """Take the yielded records; wait for a parked generator, at most for the time of an epoch."""
        with self._changed:
            if self._is_parked and not self._buffer and not self._is_stopping:
                self._let_run()
            _, state = captured = self._captured
            count = self._available(captured)
            records = self._buffer[:count]
            del self._buffer[:count]
            self._taken += count
            return Taken(records, state, self._has_ended and not self._buffer, self._failure)

    def _let_run(self) -> None:
        self._until = self._clock.monotonic() + MOST_SECONDS
        self._is_parked = False
        if self.has_begun:
            self._changed.notify_all()
        else:
            self._thread.start()
        step = (MOST_SECONDS + _GRACE_SECONDS) / _STEPS
        for _ in range(_STEPS):  # in several steps, so that the watch for hangs sees progress
            if self._changed.wait_for(lambda: self._is_parked or self._has_ended, step):
                break
        self._until = _NOT_AWAITED

    def _available(self, captured: tuple[int, S | None] | None = None) -> int:
        """Count the records that can be taken: those whose state is captured."""
        if self._capture is None:
            return len(self._buffer)
        yielded, _ = captured or self._captured
        return yielded - self._taken

    # -- its end, from any thread ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Let the generator end at the yield it is parked at, or at the next one. Does not wait."""
        with self._changed:
            self._is_stopping = True
            self._until = _NOT_AWAITED
            self._changed.notify_all()

    def raise_inside(self) -> None:
        """Raise GeneratorExit in the generator's Python code. A call into C ends first."""
        with self._changed:
            ident = self._thread.ident
            if ident is not None and not self._is_parked and not self._is_closing and not self._has_ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(GeneratorExit))

    def join(self, seconds: float) -> bool:
        """Wait for the end of the generator. Return False if it is inside user code and does not end.

        The wait for a generator that ends at its yield is unbounded: its `finally` runs.
        """
        with self._changed:
            if not self.has_begun:
                return True
            self._changed.wait_for(lambda: self._has_ended or self._is_closing, seconds)
            if self._is_closing:
                self._changed.wait_for(lambda: self._has_ended)
            return self._has_ended

    @property
    def failure(self) -> BaseException | None:
        """The exception of the generator; None if it raised none before it was asked to end."""
        return self._failure

    # -- the generator's own thread -------------------------------------------------------------------------------
    #
    # It takes the lock directly, not by the condition: GeneratorExit may be raised in Condition.__enter__, when the
    # lock is taken but no `with` can release it yet.

    def _run(self) -> None:
        failure: BaseException | None = None
        captured = None
        try:
            captured = self._drive(iter(self._begin()))
        except BaseException as cause:  # noqa: BLE001  raised in the epoch that takes the records before it
            failure = cause
        with self._lock:
            self._captured = captured or self._captured  # the state after the last record belongs to the end
            if not self._is_stopping or (self._is_closing and not isinstance(failure, GeneratorExit)):
                self._failure = failure
            self._has_ended, self._is_parked = True, False
            if self._until == _NOT_AWAITED and not self._is_stopping:
                self._records_came()
            self._changed.notify_all()

    def _drive(self, records: Iterator[Any]) -> tuple[int, S] | None:
        """Take record after record from the generator. Return the state at its end, if it ends."""
        buffer, copy, capture, monotonic = self._buffer, self._copy, self._capture, self._clock.monotonic
        count = 0
        for record in records:
            buffer.append(record if copy is None else copy(record))
            if capture is not None:
                count += 1
                self._captured = count, capture()
            if (len(buffer) >= MOST_RECORDS or monotonic() >= self._until) and not self._go_on():
                if hasattr(records, "close"):
                    records.close()
                return None
        return None if capture is None else (count, capture())

    def _go_on(self) -> bool:
        """Decide at a yield outside a running epoch. Return False if the generator is to end."""
        now = self._clock.monotonic()
        with self._lock:
            if self._until == _NOT_AWAITED and len(self._buffer) == 1:
                self._ahead_since = now
                self._records_came()
            has_enough = len(self._buffer) >= MOST_RECORDS or now >= self._ahead_since + MOST_SECONDS
            if self._until != _NOT_AWAITED or (self._buffer and has_enough):
                self._is_parked = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._is_parked or self._is_stopping)
            if self._is_stopping:
                self._is_closing, self._is_parked = True, False
                self._changed.notify_all()
                return False
        return True
