"""A job's figures over time, in bounded memory: the last minutes by the second, days in coarser steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from checkdam.runtime.monitor.job_records import NEVER, CheckpointRecord, CheckpointStatus, EpochRecord, SeriesPoint

TIERS: Final = ((1_000, 600), (20_000, 360), (120_000, 360), (1_200_000, 504))
"""Width of a point in milliseconds, and how many points there are: 10 minutes, 2 hours, 12 hours, 7 days.

Each width is a multiple of the one before, so that points of two tiers never overlap in part.
"""

LONGEST_WAIT: Final = 60_000
"""An epoch's records count for the time since the epoch before, but for at most this many milliseconds."""

_replace = msgspec.structs.replace


class TimeSeries:
    """Figures of epochs and checkpoints. Not thread-safe."""

    def __init__(self) -> None:
        self._tiers = [_Tier(width, most) for width, most in TIERS]
        self._epoch_ended_at: int | None = None
        self._has_checkpoints = False

    def attempt_started(self, at: int) -> None:
        """Do not count the time until now for the next epoch's records."""
        self._epoch_ended_at = at

    def epoch_ended(self, epoch: EpochRecord) -> None:
        at, longest = epoch.ended_at, max(LONGEST_WAIT, epoch.duration)
        begin = at - epoch.duration if self._epoch_ended_at is None else max(self._epoch_ended_at, at - longest)
        if begin >= at:  # epochs that overlap, or a clock that was set back
            begin = at - max(epoch.duration, 1)
        self._epoch_ended_at = at
        for tier in self._tiers:
            tier.change(at, lambda point: _with_epoch(point, epoch))
            tier.spread(begin, at, epoch.records)

    def checkpoint_completed(self, checkpoint: CheckpointRecord) -> None:
        """Count a checkpoint.

        Of a savepoint only the size of the state counts, and only in a job without checkpoints: in its other form it is
        of another size.
        """
        if checkpoint.kind.is_savepoint and self._has_checkpoints:
            return
        self._has_checkpoints |= not checkpoint.kind.is_savepoint
        for tier in self._tiers:
            tier.change(checkpoint.finished_at, lambda point: _with_checkpoint(point, checkpoint))

    def points(self) -> tuple[SeriesPoint, ...]:
        """Return the points, oldest first, each stretch of time once and as fine as it is known."""
        found: list[list[SeriesPoint]] = []
        until: float = float("inf")
        for tier, coarser in zip(self._tiers, [*TIERS[1:], TIERS[-1]], strict=True):
            since = tier.since(coarser[0])
            found.append([point for point in tier.points() if since <= point.start < until])
            until = min(until, since)
        return tuple(point for points in reversed(found) for point in points)


class _Tier:
    """The newest points of one width."""

    def __init__(self, width: int, most: int) -> None:
        self._width = width
        self._most = most
        self._points: dict[int, SeriesPoint] = {}  # by start; not quite in order
        self._newest = 0

    def points(self) -> list[SeriesPoint]:
        return [self._points[start] for start in sorted(self._points)]

    def since(self, step: int) -> int:
        """Return the start of what this tier covers, rounded up to a multiple of `step`."""
        return -(-(self._newest - self._width * (self._most - 1)) // step) * step

    def change(self, at: float, changed: Callable[[SeriesPoint], SeriesPoint]) -> None:
        start = int(at) // self._width * self._width
        if start <= self._newest - self._width * self._most:
            if start > self._newest - 2 * self._width * self._most:
                return  # too long ago
            self._points.clear()  # the clock was set back
            self._newest = start
        self._points[start] = changed(self._points.get(start) or SeriesPoint(start, self._width))
        if start > self._newest:
            self._newest = start
            for old in [each for each in self._points if each <= start - self._width * self._most]:
                del self._points[old]

    def spread(self, begin: float, end: float, records: int) -> None:
        """Count records for the time from `begin` to `end`, evenly; what this tier does not cover is left out."""
        at = max(begin, end - self._width * (self._most - 1))
        while at < end:
            until = min(end, (int(at) // self._width + 1) * self._width)
            self.change(at, _covering(until - at, records * (until - at) / (end - begin)))
            at = until


def _covering(milliseconds: float, records: float) -> Callable[[SeriesPoint], SeriesPoint]:
    return lambda point: _replace(point, covered=point.covered + milliseconds, records=point.records + records)


def _with_epoch(point: SeriesPoint, epoch: EpochRecord) -> SeriesPoint:
    return _replace(
        point,
        epochs=point.epochs + 1,
        epoch_ms=point.epoch_ms + epoch.duration,
        longest_epoch_ms=max(point.longest_epoch_ms, epoch.duration),
        entries=epoch.entries if epoch.entries != NEVER else epoch.keys,  # as older records have it
    )


def _with_checkpoint(point: SeriesPoint, checkpoint: CheckpointRecord) -> SeriesPoint:
    point = _replace(point, state_bytes=checkpoint.state_bytes)
    if checkpoint.kind.is_savepoint:
        return point
    return _replace(
        point,
        checkpoints=point.checkpoints + 1,
        checkpoint_ms=point.checkpoint_ms + checkpoint.end_to_end,
        longest_checkpoint_ms=max(point.longest_checkpoint_ms, checkpoint.end_to_end),
        checkpointed_bytes=point.checkpointed_bytes + checkpoint.checkpointed_bytes,
    )


def series_of(epochs: Iterable[EpochRecord], checkpoints: Iterable[CheckpointRecord]) -> tuple[SeriesPoint, ...]:
    """Return the points of a job whose record has none: an earlier version wrote it."""
    series = TimeSeries()
    for epoch in epochs:
        series.epoch_ended(epoch)
    for checkpoint in checkpoints:
        if checkpoint.status is CheckpointStatus.COMPLETED:
            series.checkpoint_completed(checkpoint)
    return series.points()
