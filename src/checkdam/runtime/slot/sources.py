"""Source functions at work: a generator that is asked for more, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkdam.clock import Clock
from checkdam.graph.functions import callable_of
from checkdam.graph.operators import Operator
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import GeneratorContext
from checkdam.runtime.slot.process import Process
from checkdam.state.batch import Batch
from checkdam.state.copying import copier

MOST_RECORDS: Final = 50_000
MOST_SECONDS: Final = 0.2
"""How much one epoch takes from a source, whichever comes first: barriers fall between epochs, so they must end."""


class SourceProcess(Process):
    """One source function. Between two epochs its generator waits at a yield, and what it yielded has gone on."""

    def __init__(self, operator: Operator, context: GeneratorContext, clock: Clock, *, is_finished: bool) -> None:
        self._operator = operator
        self._context = context
        self._clock = clock
        self._records: Iterator[Any] | None = None
        self._is_finished = is_finished
        self._is_paused = False
        self._copier = copier(operator.output_type)

    def pull(self) -> Batch | None:
        if self._is_finished or self._is_paused:
            return None
        produced: list[Any] = []
        until = self._clock.monotonic() + MOST_SECONDS
        try:
            if self._records is None:
                self._records = iter(callable_of(self._operator.function)(self._context))
            for record in self._records:
                produced.append(record if self._copier is None else self._copier.copy(record))
                if len(produced) >= MOST_RECORDS or self._clock.monotonic() >= until:
                    break
            else:
                self._is_finished = True
        except Exception as cause:
            where = f"run, after {produced[-1]!r}" if produced else "run"
            raise user_error(self._operator, NO_RECORD, cause, where=where) from cause
        return Batch(self._operator.output_type, rows=produced) if produced else None

    def end_of_input(self) -> None:
        """Stop where it is: it has not finished, and goes on from here if the job is ever resumed."""
        self._is_paused = True

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    def close(self) -> None:
        """End the generator at the yield it waits at, so that its `finally` runs."""
        records, self._records, self._is_finished = self._records, None, True
        if records is not None and hasattr(records, "close"):
            records.close()
