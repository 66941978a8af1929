from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from checkdam.errors import UserFunctionError
from checkdam.graph.functions import SourceFunction
from checkdam.graph.levels import JobPlan, Level
from checkdam.graph.operators import Operator, SourceFunctionKind, TimestampsKind
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy
from checkdam.runtime.slot.event_time import AssignTimestamps, EventTime, SeenTimestamps
from checkdam.testing import ManualClock
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

ONE, TWO, BOTH, NEITHER = 1, 2, 7, 8  # two assigners, an operator behind both, and one behind none
TEXT = type_info(str)


def identity(value: Any) -> Any:
    return value


def plan(idleness: timedelta | None = None, static: frozenset[int] = frozenset()) -> JobPlan:
    return JobPlan(
        name="job",
        operators=(),
        source_side=(),
        levels=(),
        edges=(),
        max_parallelism=128,
        assigners={ONE: (ONE,), TWO: (TWO,), BOTH: (ONE, TWO)},
        static_assigners=static,
        strategies={
            ONE: WatermarkStrategy.for_monotonous_timestamps(identity),
            TWO: WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=1), identity, idleness=idleness),
        },
    )


def test_the_slowest_assigner_in_front_tells_an_operators_watermark() -> None:
    time = EventTime(plan(), ManualClock())
    time.observe(ONE, 10)
    before = time.watermark_of(BOTH)

    time.observe(TWO, 1008)

    assert before == MIN_WATERMARK  # nothing is known of the second yet
    assert (time.watermark_of(ONE), time.watermark_of(TWO), time.watermark_of(BOTH)) == (9, 7, 7)
    assert time.watermark_of(NEITHER) == MIN_WATERMARK


def test_what_others_have_seen_counts_like_ones_own() -> None:
    one, other, third = (EventTime(plan(), ManualClock()) for _ in range(3))
    one.observe(ONE, 10)
    other.observe(ONE, 30)
    other.observe(TWO, 5000)

    third.merge_control(one.control())
    third.merge_control(other.control())
    one.merge_control(third.control())

    assert third.largest == {ONE: 30, TWO: 5000}
    assert one.watermark_of(BOTH) == third.watermark_of(BOTH) == 29


def test_who_has_seen_nothing_has_nothing_to_say() -> None:
    assert EventTime(plan(), ManualClock()).control() == b""


def test_a_watermark_never_falls() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock)
    time.observe(ONE, 50)
    time.end_epoch(1)
    clock.advance(10)
    assert time.watermark_of(BOTH) == 49  # the second is idle
    time.end_epoch(2)

    time.observe(TWO, 1010)  # it comes back, and is late
    time.observe(ONE, 20)

    assert time.watermark_of(TWO) == 9
    assert time.watermark_of(BOTH) == 49


def test_a_watermark_does_not_fall_with_a_restart_that_wakes_who_was_idle() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock)
    time.observe(ONE, 50)
    time.end_epoch(1)
    clock.advance(10)
    assert (time.watermark_of(BOTH), time.watermark_of(TWO), time.watermark_of(NEITHER)) == (49, *[MIN_WATERMARK] * 2)
    time.end_epoch(2)

    restored = EventTime(plan(idleness=timedelta(seconds=10)), clock, time.largest, time.reached, last_epoch=2)

    assert restored.watermark_of(BOTH) == 49
    assert time.reached == restored.reached == {BOTH: 49}


def test_what_is_at_the_end_of_time_since_all_was_there_from_the_start_keeps_no_watermark() -> None:
    time = EventTime(plan(static=frozenset({TWO})), ManualClock())
    time.observe(ONE, 10)
    time.end_epoch(0)
    assert (time.watermark_of(TWO), time.watermark_of(BOTH)) == (MAX_WATERMARK, 9)

    assert time.reached == {BOTH: 9}


def test_a_stream_is_idle_after_its_time_and_says_when_that_will_be() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock)
    start = int(clock.now().timestamp() * 1000)
    time.observe(ONE, 50)
    clock.advance(4)
    time.observe(TWO, 2000)
    time.end_epoch(1)

    assert time.next_due() == start + 14_000
    clock.advance(9.999)
    assert time.watermark_of(BOTH) == 49
    time.end_epoch(2)
    clock.advance(0.001)
    time.observe(ONE, 9000)

    assert time.watermark_of(BOTH) == 8999
    time.end_epoch(3)
    assert time.next_due() is None


def test_a_deadline_that_passes_at_the_end_of_an_epoch_is_still_due() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock)
    time.watermark_of(BOTH)

    clock.advance(10)
    time.end_epoch(1)

    assert time.next_due() == int(clock.now().timestamp() * 1000)


def test_records_that_bring_no_larger_timestamp_keep_a_stream_awake_wherever_they_are_seen() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock, {ONE: 50, TWO: 2000})
    clock.advance(10)
    task = SeenTimestamps()
    task.observe(TWO, 5)

    time.merge_control(task.control())

    assert time.watermark_of(BOTH) == 49
    time.end_epoch(1)
    assert time.next_due() == int(clock.now().timestamp() * 1000) + 10_000


def test_if_all_are_idle_the_watermark_stays() -> None:
    clock = ManualClock()
    time = EventTime(plan(idleness=timedelta(seconds=10)), clock, {TWO: 2000})
    assert time.watermark_of(TWO) == 999

    time.end_epoch(1)
    clock.advance(60)

    assert time.watermark_of(TWO) == 999


def test_what_is_there_from_the_start_is_over_when_epoch_0_is() -> None:
    time = EventTime(plan(static=frozenset({TWO})), ManualClock())
    time.observe(ONE, 10)
    time.observe(TWO, 1005)
    assert time.watermark_of(BOTH) == 4

    time.end_epoch(0)

    assert time.watermark_of(BOTH) == 9
    restored = EventTime(plan(static=frozenset({TWO})), ManualClock(), {ONE: 10}, last_epoch=3)
    assert restored.watermark_of(BOTH) == 9


SOURCE = 5  # a source function in front of TWO, with two subtasks


def ending_plan(idleness: timedelta | None = None) -> JobPlan:
    source = Operator(
        id=SOURCE,
        name="source",
        kind=SourceFunctionKind(SourceFunction()),
        inputs=(),
        output_type=TEXT,
        parallelism=2,
    )
    return replace(
        plan(idleness),
        operators=(source,),
        levels=(Level(index=1, parallelism=2, operators=(source,), inputs=(), outputs=()),),
        ending_assigners={TWO: frozenset({SOURCE})},
    )


def test_a_source_function_counts_until_its_last_subtask_has_ended_wherever_that_is() -> None:
    here, there = (EventTime(ending_plan(), ManualClock(), subtask=subtask) for subtask in range(2))
    here.observe(ONE, 10)
    here.end_source(SOURCE)
    before = here.watermark_of(BOTH)

    there.end_source(SOURCE)
    here.merge_control(there.control())

    assert before == MIN_WATERMARK
    assert (here.watermark_of(TWO), here.watermark_of(BOTH)) == (MAX_WATERMARK, 9)
    assert here.reached == {BOTH: 9}


def test_a_stream_with_static_sources_in_front_ends_when_they_have_been_read_too() -> None:
    time = EventTime(ending_plan(), ManualClock(), last_epoch=3, unread=frozenset({TWO}))
    for subtask in range(2):
        time.merge_control(_ended(subtask))
    before = time.watermark_of(TWO)

    time.end_epoch(4)

    assert before == MIN_WATERMARK
    assert time.next_due() is not None  # an epoch in which timers behind it fire
    assert time.watermark_of(TWO) == MAX_WATERMARK


def test_beside_a_stream_that_is_idle_the_end_of_another_is_not_the_end_of_time() -> None:
    clock = ManualClock()
    idle = replace(ending_plan(timedelta(seconds=10)), ending_assigners={ONE: frozenset({SOURCE})})
    time = EventTime(idle, clock)
    time.observe(TWO, 2000)
    for subtask in range(2):
        time.merge_control(_ended(subtask))
    assert time.watermark_of(BOTH) == 999
    time.end_epoch(1)

    clock.advance(10)

    assert time.watermark_of(BOTH) == 999


def _ended(subtask: int) -> bytes:
    time = EventTime(ending_plan(), ManualClock(), subtask=subtask)
    time.end_source(SOURCE)
    return time.control()


def test_at_the_end_of_input_it_is_the_end_of_time_for_all_and_that_is_not_remembered() -> None:
    time = EventTime(plan(), ManualClock(), {ONE: 10})

    time.end_of_input()

    assert {time.watermark_of(op) for op in (ONE, TWO, BOTH, NEITHER)} == {MAX_WATERMARK}
    assert time.largest == {ONE: 10}


def test_the_smallest_timestamp_does_not_turn_the_watermark_around() -> None:
    time = EventTime(plan(), ManualClock())
    time.observe(TWO, MIN_WATERMARK + 1)

    assert time.watermark_of(TWO) == MIN_WATERMARK


def assigned(function: Any, rows: list[Any], of: Any) -> tuple[Batch, list[tuple[int, int]]]:
    seen: list[tuple[int, int]] = []
    kind = TimestampsKind(WatermarkStrategy.for_monotonous_timestamps(function))
    operator = Operator(id=ONE, name="times", kind=kind, inputs=(0,), output_type=of)
    assign = AssignTimestamps(operator, lambda assigner, timestamp: seen.append((assigner, timestamp)))
    return assign(Batch(of, rows=rows), None), seen


@pytest.mark.parametrize(
    ("told", "milliseconds"),
    [
        (1500, 1500),
        (-1, -1),
        (datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC), 1999),
        (datetime(1970, 1, 1, 0, 0, 2), 2000),  # noqa: DTZ001  naive means UTC
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
    ],
)
def test_a_timestamp_is_milliseconds_or_a_datetime(told: Any, milliseconds: int) -> None:
    batch, seen = assigned(lambda _: told, ["a", "b"], TEXT)

    assert batch.timestamps == [milliseconds, milliseconds]
    assert batch.rows == ["a", "b"]
    assert seen == [(ONE, milliseconds)]


@pytest.mark.parametrize("told", ["soon", None, 1.5, True, 2**63, -(2**63)])
def test_anything_else_is_the_users_error_and_names_the_record(told: Any) -> None:
    with pytest.raises(UserFunctionError) as caught:
        assigned(lambda text: told if text == "b" else 1, ["a", "b"], TEXT)

    assert "times" in str(caught.value)
    assert "'b'" in str(caught.value)


def test_of_no_records_nothing_is_seen() -> None:
    batch, seen = assigned(identity, [], TEXT)

    assert (len(batch), seen) == (0, [])


def test_that_static_streams_have_ended_is_due_once_and_only_where_something_may_wait_for_it() -> None:
    idle = timedelta(hours=1)  # something to tick for
    clock = ManualClock()
    time = EventTime(plan(idle, static=frozenset({ONE})), clock)
    now = (clock.now() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    time.end_epoch(0)
    first = time.next_due()
    time.end_epoch(1)
    nobody_waits = EventTime(plan(static=frozenset({ONE})), clock)
    nobody_waits.end_epoch(0)

    assert first == now
    assert time.next_due() == now + 3_600_000
    assert nobody_waits.next_due() is None
