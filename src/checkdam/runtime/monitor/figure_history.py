"""Figures of operators over the last hour, in bounded memory: what charts of metrics are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from checkdam.runtime.monitor.job_records import OperatorFigures

STEP_MS: Final = 5_000
MOST_SAMPLES: Final = 720  # an hour
MOST_VALUES: Final = 500_000
"""How many values all samples may have: a job with many operators and metrics is remembered for less than an hour."""
_VALUES_EACH = 20  # of a subtask, without the metrics of its function


class FigureSample(NamedTuple):
    at: int  # milliseconds since 1970
    figures: Sequence[OperatorFigures]


class FigureHistory:
    """The figures of a job every few seconds, across its attempts. Not archived."""

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        self._samples: deque[FigureSample] = deque()
        self._sizes: deque[int] = deque()
        self._most_values = most_values
        self._values = 0

    def is_due(self, at: int) -> bool:
        """Return whether the last sample is old enough, or in the future: the clock may have been set back."""
        return not self._samples or not 0 <= at - self._samples[-1].at < STEP_MS

    def add(self, at: int, figures: Sequence[OperatorFigures]) -> None:
        size = sum(_VALUES_EACH + len(subtask.user) for operator in figures for subtask in operator.subtasks)
        self._samples.append(FigureSample(at, figures))
        self._sizes.append(size)
        self._values += size
        while len(self._samples) > 1 and (len(self._samples) > MOST_SAMPLES or self._values > self._most_values):
            self._samples.popleft()
            self._values -= self._sizes.popleft()

    def samples(self) -> tuple[FigureSample, ...]:
        """Return the samples, oldest first."""
        return tuple(self._samples)
