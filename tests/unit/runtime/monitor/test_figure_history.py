"""Figures over time: an hour of them, in bounded memory."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.runtime.monitor.watched import Watched

from checkdam.ids import Epoch
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.figure_history import MOST_SAMPLES, STEP_MS, FigureHistory
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import OperatorFigures, SubtaskFigures


def test_an_hour_is_remembered_and_no_more() -> None:
    history = FigureHistory()
    for n in range(2 * MOST_SAMPLES):
        history.add(n * STEP_MS, ())

    times = [sample.at for sample in history.samples()]

    assert (len(times), times[-1] - times[0]) == (720, 3_595_000)


def test_many_metrics_are_remembered_for_less() -> None:
    history = FigureHistory(most_values=1_000)
    many = OperatorFigures(0, (SubtaskFigures(0, user=dict.fromkeys(map(str, range(80)), 1)),))
    for n in range(50):
        history.add(n * STEP_MS, [many])

    assert len(history.samples()) == 10


def test_a_job_is_sampled_with_its_epochs_and_while_it_is_looked_at() -> None:
    watched = Watched()
    watched.monitor.status_changed(JobStatus.RUNNING)
    for n in range(30):
        watched.clock.advance(timedelta(seconds=1))
        watched.monitor.epoch_ended(EpochStats(Epoch(n), 1, 0.1))
    assert len(watched.monitor.figure_history()) == 6

    watched.clock.advance(timedelta(seconds=6))
    _ = watched.record

    assert [sample.at for sample in watched.monitor.figure_history()][-1] == watched.now
    assert len(watched.monitor.figure_history()) == 7
