from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.functions import KeyedProcessFunction, SourceFunction
from checkdam.graph.levels import JobPlan
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.driver.epochs import PendingEpoch
from checkdam.runtime.slot.messages import EpochReport
from checkdam.testing import ManualClock, MemoryStorage
from checkdam.testing.local_job import LocalJob

REPORT = EpochReport(Epoch(1), SubtaskIndex(0))


class Ringing(KeyedProcessFunction):
    def process_element(self, value: str, ctx: Any) -> None: ...

    def on_timer(self, timestamp: int, ctx: Any) -> None: ...


class Endless(SourceFunction):
    def run(self, ctx: Any) -> Any: ...


def with_timers(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.key_by(lambda word: word, key_type=str).process(Ringing(), output_type=str).uid("ring").print()


def with_source(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    environment.add_source(Endless(), output_type=str).uid("endless").print()


def plain(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.print()


def plan_of(build: Any) -> JobPlan:
    return LocalJob(build, [["a"]], MemoryStorage(), record_type=str).job().plan


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def test_the_earliest_of_all_slots_is_due_when_the_clock_is_there() -> None:
    clock = ManualClock()
    pending = PendingEpoch(plan_of(with_timers), clock, restored=False)
    due = milliseconds(clock.now()) + 1500

    pending.epoch_ended([REPORT, replace(REPORT, next_due=due + 1), replace(REPORT, next_due=due)])

    assert pending.seconds_until_due() == pytest.approx(1.5)
    clock.advance(timedelta(seconds=1, milliseconds=499))
    assert pending.seconds_until_due() == pytest.approx(0.001)
    clock.advance(timedelta(milliseconds=1))
    assert pending.seconds_until_due() == 0.0


def test_nothing_is_waited_for_when_no_slot_has_anything_due() -> None:
    pending = PendingEpoch(plan_of(with_timers), ManualClock(), restored=False)
    assert pending.seconds_until_due() is None

    pending.epoch_ended([replace(REPORT, next_due=5)])
    pending.epoch_ended([REPORT, REPORT])

    assert pending.seconds_until_due() is None


@pytest.mark.parametrize(("build", "expected"), [(with_timers, 0.0), (with_source, 0.0), (plain, None)])
def test_after_a_restore_an_epoch_asks_what_is_due_where_something_could_be(build: Any, expected: float | None) -> None:
    assert PendingEpoch(plan_of(build), ManualClock(), restored=True).seconds_until_due() == expected


def test_a_source_function_is_asked_again_until_all_slots_say_that_theirs_has_ended() -> None:
    pending = PendingEpoch(plan_of(with_source), ManualClock(), restored=False)
    told = [(pending.has_unfinished_sources, pending.seconds_until_due())]

    for reports in ([REPORT, replace(REPORT, unfinished_sources=True, ready_sources=True)], [REPORT, REPORT]):
        pending.epoch_ended(reports)
        told.append((pending.has_unfinished_sources, pending.seconds_until_due()))

    assert told == [(True, 0.0), (True, 0.0), (False, None)]


@pytest.mark.parametrize("is_told_before_the_report", [False, True])
def test_a_source_function_that_waits_is_asked_again_when_it_signals(*, is_told_before_the_report: bool) -> None:
    pending = PendingEpoch(plan_of(with_source), ManualClock(), restored=False)
    waiting = replace(REPORT, unfinished_sources=True, signals=3)
    if is_told_before_the_report:
        pending.signalled(REPORT.subtask, 4)
        pending.epoch_ended([waiting])
    else:
        pending.epoch_ended([waiting])
        assert not pending.has_ready_sources
        pending.signalled(REPORT.subtask, 4)

    assert pending.seconds_until_due() == 0.0
    pending.signalled(REPORT.subtask, 4)
    pending.epoch_ended([replace(waiting, signals=4)])
    assert (pending.has_unfinished_sources, pending.seconds_until_due()) == (True, None)
