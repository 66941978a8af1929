"""Figures over time: fine for the last minutes, coarse for days, bounded, and true sums at every width."""

from __future__ import annotations

import pytest

from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointRecord,
    CheckpointStatus,
    EpochRecord,
    SeriesPoint,
    SnapshotKind,
)
from checkdam.runtime.monitor.time_series import LONGEST_WAIT, TIERS, TimeSeries

NOW = 1_700_000_400_000
HOUR = 3_600_000


def epoch(at: int, *, records: int = 10, duration: float = 5.0, keys: int = 1, entries: int = 1) -> EpochRecord:
    return EpochRecord(1, at, duration, records, keys, entries)


def checkpoint(at: int, duration: float = 30.0, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> CheckpointRecord:
    return CheckpointRecord(
        1,
        kind,
        CheckpointStatus.COMPLETED,
        at - 30,
        1,
        1,
        finished_at=at,
        duration=duration,
        checkpointed_bytes=100,
        state_bytes=200,
    )


def rate(point: SeriesPoint) -> float:
    return 1000 * point.records / point.covered


def test_hours_of_history_stay_in_a_bounded_number_of_points() -> None:
    series = TimeSeries()
    for second in range(0, 13 * 3600, 5):
        series.epoch_ended(epoch(NOW + 1000 * second))

    points = series.points()

    assert len(points) <= sum(most for _, most in TIERS)
    assert points[0].start <= NOW + TIERS[-1][0]
    widths = [point.width for point in points]
    assert widths == sorted(widths, reverse=True)
    assert set(widths) == {width for width, _ in TIERS}
    assert all(rate(point) == pytest.approx(2.0, rel=0.01) for point in points[1:] if point.covered)


def test_no_time_is_in_two_points_and_none_is_left_out() -> None:
    series = TimeSeries()
    for second in range(3 * 3600):
        series.epoch_ended(epoch(NOW + 1000 * second))

    points = series.points()

    ends = [point.start + point.width for point in points[:-1]]
    assert ends == [point.start for point in points[1:]]


def test_points_older_than_the_coarsest_tier_are_dropped() -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW))
    series.epoch_ended(epoch(NOW + 8 * 24 * HOUR))

    assert all(point.start > NOW + 24 * HOUR for point in series.points())


def test_records_count_for_the_time_since_the_epoch_before() -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW, records=1))
    series.epoch_ended(epoch(NOW + 10_000, records=500))

    points = [point for point in series.points() if NOW <= point.start < NOW + 10_000]

    assert [round(rate(point)) for point in points] == [50] * 10
    assert sum(point.records for point in points) == pytest.approx(500)


def test_a_long_pause_is_not_counted_as_slowness() -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW))
    series.epoch_ended(epoch(NOW + 5 * 60_000, records=600))

    points = [point for point in series.points() if point.start > NOW]

    assert points[0].start == NOW + 5 * 60_000 - LONGEST_WAIT
    assert rate(points[0]) == pytest.approx(10.0)


def test_the_time_before_an_attempt_is_not_counted() -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW))
    series.attempt_started(NOW + 20_000)
    series.epoch_ended(epoch(NOW + 21_000, records=100))

    assert rate(next(point for point in series.points() if point.start == NOW + 20_000)) == pytest.approx(100.0)
    assert not any(NOW < point.start < NOW + 20_000 for point in series.points())


def test_durations_keep_their_sum_and_their_greatest() -> None:
    series = TimeSeries()
    for at, duration in ((100, 10.0), (200, 40.0), (300, 10.0)):
        series.epoch_ended(epoch(NOW + at, duration=duration, keys=at, entries=3 * at))
        series.checkpoint_completed(checkpoint(NOW + at, duration))

    [point] = [each for each in series.points() if each.epochs]

    assert (point.epochs, point.epoch_ms, point.longest_epoch_ms, point.entries) == (3, 60.0, 40.0, 900)
    assert (point.checkpoints, point.checkpoint_ms, point.longest_checkpoint_ms) == (3, 60.0, 40.0)
    assert (point.checkpointed_bytes, point.state_bytes) == (300, 200)


def test_a_savepoint_tells_the_size_of_the_state_and_is_no_checkpoint() -> None:
    series = TimeSeries()
    series.checkpoint_completed(checkpoint(NOW, kind=SnapshotKind.SAVEPOINT))

    [point] = series.points()

    assert (point.checkpoints, point.state_bytes, point.entries) == (0, 200, NEVER)


def test_the_size_of_a_savepoint_is_not_mixed_with_those_of_checkpoints() -> None:
    series = TimeSeries()
    series.checkpoint_completed(checkpoint(NOW))
    series.checkpoint_completed(checkpoint(NOW + 1000, kind=SnapshotKind.SAVEPOINT))

    assert [point.start for point in series.points()] == [NOW // 1000 * 1000]


@pytest.mark.parametrize("back", [30_000, 8 * 24 * HOUR])
def test_a_clock_that_is_set_back_stops_nothing(back: int) -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW))
    series.epoch_ended(epoch(NOW - back, records=7))
    series.epoch_ended(epoch(NOW - back + 2000, records=8))

    assert any(point.start == (NOW - back + 2000) // 1000 * 1000 for point in series.points())


def test_an_epoch_longer_than_the_finest_tier_is_counted() -> None:
    series = TimeSeries()
    series.epoch_ended(epoch(NOW))
    series.epoch_ended(epoch(NOW + HOUR, records=3600, duration=HOUR))

    assert all(
        rate(point) == pytest.approx(1.0, rel=0.05) for point in series.points() if point.start > NOW and point.covered
    )
    assert max(point.longest_epoch_ms for point in series.points()) == HOUR
