"""Runs source functions: epochs take what their generators have yielded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from checkdam.clock import Clock
from checkdam.graph.functions import SourceFunction, callable_of
from checkdam.graph.operators import Operator
from checkdam.runtime.current_operator import CURRENT, label_of
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import GeneratorContext, OperatorTime, SnapshotContext, YieldContext
from checkdam.runtime.slot.generator_thread import GeneratorThread
from checkdam.runtime.slot.operator_state import CapturedStates, OperatorStates
from checkdam.runtime.slot.process import Process
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier

_COOPERATION_SECONDS: Final = 0.2
"""How long a generator that is asked to end may take to reach a yield before it is interrupted."""

_INTERRUPTION_SECONDS: Final = 0.5
"""How long it may take after that, before it is abandoned."""


class RecordsSignal:
    """Counts how often source functions of a slot had something new for an epoch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.on_count: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        with self._lock:
            self.count += 1
        self.on_count()


class SourceProcess(Process):
    """One source function. Its generator runs in a thread of its own, and may be anywhere between two yields.

    A checkpoint gets the state at the yield of the last record that was passed on. It is captured in the thread of the
    generator, before that continues, so user code needs no lock.
    """

    def __init__(
        self,
        operator: Operator,
        context: GeneratorContext,
        clock: Clock,
        *,
        states: OperatorStates | None,
        next_checkpoint: int,
        is_finished: bool,
        records_came: Callable[[], None],
    ) -> None:
        self._operator = operator
        self._states = states
        self._is_finished = is_finished
        self._is_paused = False
        self._at_yield = YieldContext(OperatorTime(clock), next_checkpoint)
        self._captured: CapturedStates | Exception | None = None
        function = operator.checkpointed_function
        self._snapshot_state = None if function is None else function.snapshot_state
        run, copying = callable_of(operator.function), copier(operator.output_type)
        self._generator = GeneratorThread(
            operator.name,
            lambda: _records(run, context, operator),
            clock,
            copy=None if copying is None else copying.copy,
            capture=None if function is None else self._capture,
            records_came=records_came,
        )

    def pull(self) -> Batch | None:
        if self._is_finished or self._is_paused:
            return None
        if not self._generator.has_begun and self._snapshot_state is not None:
            self._captured = self._capture()
        taken = self._generator.take()
        if taken.failure is not None:
            raise self._failed(taken.records, taken.failure)
        self._captured = taken.state or self._captured
        self._is_finished = taken.has_ended
        return Batch(self._operator.output_type, rows=taken.records) if taken.records else None

    def _failed(self, records: list[Any], cause: BaseException) -> BaseException:
        if not isinstance(cause, Exception):
            return cause
        where = f"run, after {records[-1]!r}" if records else "run"
        error = user_error(self._operator, NO_RECORD, cause, where=where)
        error.__cause__ = cause
        return error

    def _capture(self) -> CapturedStates | Exception:
        """Capture the function's state as of now. A failure fails only the checkpoints that need this very state."""
        assert self._states is not None
        assert self._snapshot_state is not None
        try:
            return self._states.capture_after(self._snapshot_state, self._at_yield)
        except Exception as failure:  # noqa: BLE001  raised by `captured`
            return failure

    def captured(self, context: SnapshotContext) -> CapturedStates:
        """Return the state at the yield of the last record passed on; raise the function's error from there."""
        self._at_yield.checkpoint_id = context.checkpoint_id + 1
        captured = self._captured if self._generator.has_begun else self._capture()
        assert captured is not None
        if isinstance(captured, Exception):
            raise captured
        return captured

    @property
    def last_captured(self) -> CapturedStates:
        """The state at the yield of the last record passed on; nothing before the first, or if it failed."""
        return self._captured if isinstance(self._captured, list) else []

    def end_of_input(self) -> None:
        """Stop where it is: it has not finished, and continues from here if the job is resumed."""
        self._is_paused = True

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    @property
    def has_records(self) -> bool:
        return not self._is_finished and not self._is_paused and self._generator.has_records

    def interrupt(self) -> None:
        self._generator.interrupt()

    def close(self) -> None:
        """End the generator: at the yield it is parked at, so that its `finally` runs, or inside user code.

        One that does not react, such as one in a call into C, is abandoned; its thread ends with the process.
        """
        if not self._generator.has_begun or self._is_finished:
            return
        self._is_finished = True
        try:
            assert isinstance(self._operator.function, SourceFunction)
            self._operator.function.cancel()
        finally:
            self._generator.interrupt()
            if not self._generator.join(_COOPERATION_SECONDS):
                self._generator.raise_inside()
                self._generator.join(_INTERRUPTION_SECONDS)
        if self._generator.failure is not None:
            raise self._generator.failure


def _records(
    run: Callable[[Any], Iterable[Any] | None], context: GeneratorContext, operator: Operator
) -> Iterable[Any]:
    CURRENT.set(label_of(operator))  # for as long as the generator's own thread lives
    records = run(context)
    if records is None:
        raise TypeError("run() returned None; it must yield the records, or return an iterable of them")
    return records
