"""The generator of a source function in a thread of its own, so that an epoch never waits for the user's code."""

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
"""How much one epoch takes from a source, whichever comes first: barriers fall between epochs, so they must end."""

_GRACE_SECONDS: Final = 0.05
"""How much longer an epoch waits for a generator that computes to come to its next yield."""

_STEPS: Final = 10
_NOT_AWAITED: Final = float("-inf")


@dataclass(frozen=True)
class Taken(Generic[S]):
    """Records for one epoch, and the state of the function at the yield of the last of them."""

    records: list[Any]
    state: S | None  # None: the function keeps none, or no record was taken
    has_ended: bool = False  # all records were taken
    failure: BaseException | None = None


class GeneratorThread(Generic[S]):
    """Runs a generator ahead of the epochs that take its records.

    The generator is parked at a yield, or inside the user's code. A fast one is parked between epochs: it runs while an
    epoch waits for it, until the epoch has enough. One that is inside when the epoch's time is over is left there, and
    what it yields later goes to the next epoch; it is parked when as much waits as an epoch takes.

    Records that no epoch has taken are no part of the stream yet. At each yield, before the generator goes on,
    `capture` fixes the function's state, so that whatever the generator does meanwhile, `take` returns records
    together with the state at the yield of the last of them.
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
        """Begin the generator with the first `take`.

        `records_came` is called when an epoch should come: there are records, or the generator has ended, and no epoch
        knows of it yet. It must not call back.
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
        self._until = _NOT_AWAITED  # until when the epoch that waits takes records
        self._ahead_since = 0.0  # when the first of the records came that no epoch has waited for
        self._is_parked = True
        self._has_ended = False
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._is_closing = False  # the generator, at the yield that it was parked at

    # -- for the thread of the slot -------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    @property
    def has_records(self) -> bool:
        """Whether `take` would bring something, or could: a generator that is parked goes on at once."""
        with self._changed:
            return self._is_parked or self._has_ended or self._available() > 0

    def take(self) -> Taken[S]:
        """Take what was yielded; wait for a generator that was parked, for the time of an epoch at most."""
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
        for _ in range(_STEPS):  # not in one: the watch for hangs is to see it move
            if self._changed.wait_for(lambda: self._is_parked or self._has_ended, step):
                break
        self._until = _NOT_AWAITED

    def _available(self, captured: tuple[int, S | None] | None = None) -> int:
        """Count the records that can be taken: not those whose state is not captured yet."""
        if self._capture is None:
            return len(self._buffer)
        yielded, _ = captured or self._captured
        return yielded - self._taken

    # -- its end, from any thread ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Let the generator end at a yield: the one it is parked at, or else the next. Does not wait for that."""
        with self._changed:
            self._is_stopping = True
            self._until = _NOT_AWAITED
            self._changed.notify_all()

    def raise_inside(self) -> None:
        """Raise GeneratorExit where the generator is inside Python code. A call into C ends first."""
        with self._changed:
            ident = self._thread.ident
            if ident is not None and not self._is_parked and not self._is_closing and not self._has_ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(GeneratorExit))

    def join(self, seconds: float) -> bool:
        """Wait for the end of the generator. Return False if it is inside the user's code and does not end.

        A generator that ends at its yield is waited for without a bound: its `finally` runs.
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
    # It takes the lock itself, not by the condition: GeneratorExit may be raised in Condition.__enter__, when the lock
    # is taken and no `with` is there yet to give it back.

    def _run(self) -> None:
        failure: BaseException | None = None
        captured = None
        try:
            captured = self._drive(iter(self._begin()))
        except BaseException as cause:  # noqa: BLE001  raised in the epoch that takes what came before
            failure = cause
        with self._lock:
            self._captured = captured or self._captured  # the state behind the last record belongs to the end
            if not self._is_stopping or (self._is_closing and not isinstance(failure, GeneratorExit)):
                self._failure = failure
            self._has_ended, self._is_parked = True, False
            if self._until == _NOT_AWAITED and not self._is_stopping:
                self._records_came()
            self._changed.notify_all()

    def _drive(self, records: Iterator[Any]) -> tuple[int, S] | None:
        """Take record after record from the generator; return the state at its end, if it comes to one."""
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
        """Decide at a yield that is not one of an epoch under way. Return False if the generator is to end."""
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
