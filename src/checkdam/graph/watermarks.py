"""Watermark strategies: where a record's timestamp comes from, and how late records may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

from checkdam.clock import milliseconds_in
from checkdam.errors import JobGraphError

MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1

T = TypeVar("T", default=Any)
T_contra = TypeVar("T_contra", contravariant=True, default=Any)


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T_contra]):
    """Timestamps, and the watermark that trails the largest of them by `max_out_of_orderness`.

    `timestamp(record)` returns milliseconds since 1970, or a datetime. With `idleness`, a stream without records for
    that long does not hold back the others.
    """

    timestamp: Callable[[T_contra], int | datetime]
    max_out_of_orderness: timedelta = timedelta(0)
    idleness: timedelta | None = None

    def __post_init__(self) -> None:
        if not callable(self.timestamp):
            raise JobGraphError(
                f"a watermark strategy needs a function that returns a record's timestamp, not {self.timestamp!r}",
                hint="Write WatermarkStrategy.for_monotonous_timestamps(lambda record: record.time).",
            )
        if self.max_out_of_orderness < timedelta(0):
            raise JobGraphError(f"max_out_of_orderness must not be negative, but is {self.max_out_of_orderness}")
        if self.idleness is not None and self.idleness <= timedelta(0):
            raise JobGraphError(f"idleness must be positive, not {self.idleness}")

    @staticmethod
    def for_monotonous_timestamps(
        timestamp: Callable[[T], int | datetime], *, idleness: timedelta | None = None
    ) -> WatermarkStrategy[T]:
        """Return a strategy for ascending timestamps: the watermark directly follows the largest."""
        return WatermarkStrategy(timestamp, timedelta(0), idleness)

    @staticmethod
    def for_bounded_out_of_orderness(
        max_out_of_orderness: timedelta, timestamp: Callable[[T], int | datetime], *, idleness: timedelta | None = None
    ) -> WatermarkStrategy[T]:
        """Return a strategy for records that arrive at most this late."""
        return WatermarkStrategy(timestamp, max_out_of_orderness, idleness)

    def watermark(self, largest: int) -> int:
        """Return the watermark after this timestamp: no record up to it is expected any more."""
        return largest - milliseconds_in(self.max_out_of_orderness) - 1
