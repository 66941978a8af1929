"""Which windows a record belongs to, and which windows merge."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.one_window import ms

from checkdam import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    JobGraphError,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.graph.windowing.assigners import WindowAssignerContext


class At:
    """A clock that shows one time."""

    def __init__(self, time: int = 0) -> None:
        self.current_processing_time = time


def starts(assigner: WindowAssigner[Any, Any], timestamp: int) -> list[int]:
    """Return the starts of the windows of a timestamp, in event time or by the clock, and check their ends."""
    ctx: WindowAssignerContext = At(timestamp if not assigner.is_event_time() else 123_456_789)
    windows = assigner.assign_windows("record", timestamp if assigner.is_event_time() else 987, ctx)
    assert {window.end - window.start for window in windows} <= {assigner.size}  # type: ignore[attr-defined]
    assert all(window.start <= timestamp <= window.max_timestamp for window in windows)
    return [window.start for window in windows]


# -- tumbling


@pytest.mark.parametrize("kind", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
@pytest.mark.parametrize(
    ("timestamp", "offset", "start"),
    [
        (0, 0, 0),
        (9, 0, 0),
        (10, 0, 10),
        (-1, 0, -10),
        (-10, 0, -10),
        (-11, 0, -20),
        (0, 3, -7),
        (2, 3, -7),
        (3, 3, 3),
        (12, 3, 3),
        (13, 3, 13),
        (0, -3, -3),
        (6, -3, -3),
        (7, -3, 7),
        (-4, -3, -13),
        (1_700_000_000_123, 0, 1_700_000_000_120),
    ],
)
def test_a_tumbling_window_begins_at_a_multiple_of_its_size_moved_by_the_offset(
    kind: Any, timestamp: int, offset: int, start: int
) -> None:
    assert starts(kind(ms(10), ms(offset)), timestamp) == [start]


def test_a_day_may_begin_at_midnight_of_another_time_zone() -> None:
    china = TumblingEventTimeWindows(timedelta(days=1), offset=timedelta(hours=-8))

    [start] = starts(china, 1_700_000_000_000)  # 2023-11-15, 06:13 there

    assert start == 1_699_977_600_000  # 2023-11-14, 16:00 UTC


# -- sliding


@pytest.mark.parametrize("kind", [SlidingEventTimeWindows, SlidingProcessingTimeWindows])
@pytest.mark.parametrize(
    ("size", "slide", "offset", "timestamp", "expected"),
    [
        (10, 5, 0, 0, [0, -5]),
        (10, 5, 0, 4, [0, -5]),
        (10, 5, 0, 5, [5, 0]),
        (10, 5, 0, -1, [-5, -10]),
        (10, 3, 0, 10, [9, 6, 3]),
        (10, 3, 0, 9, [9, 6, 3, 0]),
        (10, 5, 2, 1, [-3, -8]),
        (10, 5, -2, 1, [-2, -7]),
        (10, 10, 0, 15, [10]),
        (3, 10, 0, 12, [10]),  # a slide longer than the size leaves gaps
        (3, 10, 0, 13, []),
        (3, 10, 0, 9, []),
        (3, 10, 0, -8, [-10]),
        (3, 10, 4, 6, [4]),
    ],
)
def test_sliding_windows_are_those_that_cover_the_timestamp_the_newest_first(
    kind: Any, size: int, slide: int, offset: int, timestamp: int, expected: list[int]
) -> None:
    assert starts(kind(ms(size), ms(slide), ms(offset)), timestamp) == expected


# -- sessions


def test_a_session_begins_with_its_record_and_lasts_for_the_gap() -> None:
    assert list(EventTimeSessionWindows(ms(10)).assign_windows("record", -3, At(5))) == [TimeWindow(-3, 7)]
    assert list(ProcessingTimeSessionWindows(ms(10)).assign_windows("record", -3, At(5))) == [TimeWindow(5, 15)]


def test_the_gap_of_a_session_may_depend_on_the_record() -> None:
    by_event, by_clock = EventTimeSessionWindows[str](gap_of), ProcessingTimeSessionWindows[str](gap_of)

    assert list(by_event.assign_windows("four", 100, At())) == [TimeWindow(100, 104)]
    assert list(by_clock.assign_windows("three", 100, At(7))) == [TimeWindow(7, 12)]


def gap_of(word: str) -> timedelta:
    return ms(len(word))


@pytest.mark.parametrize("gap", [ms(0), ms(-1), timedelta(microseconds=900)])
def test_a_gap_by_record_must_be_positive(gap: timedelta) -> None:
    sessions = EventTimeSessionWindows[str](lambda _: gap)

    with pytest.raises(JobGraphError, match="the gap of a session must be at least one millisecond, not"):
        sessions.assign_windows("record", 0, At())


@pytest.mark.parametrize(
    ("windows", "merged"),
    [
        ([], []),
        ([(0, 10)], []),
        ([(0, 10), (11, 20)], []),
        ([(0, 10), (10, 20)], [((0, 20), [(0, 10), (10, 20)])]),  # those that touch merge, as in Flink
        ([(5, 15), (0, 10)], [((0, 15), [(0, 10), (5, 15)])]),
        ([(0, 30), (5, 10)], [((0, 30), [(0, 30), (5, 10)])]),
        ([(0, 10), (20, 30), (8, 22)], [((0, 30), [(0, 10), (8, 22), (20, 30)])]),
        (
            [(0, 10), (100, 110), (5, 12), (50, 60), (105, 120)],
            [((0, 12), [(0, 10), (5, 12)]), ((100, 120), [(100, 110), (105, 120)])],
        ),
        ([(-20, -10), (-10, -5)], [((-20, -5), [(-20, -10), (-10, -5)])]),
    ],
)
def test_sessions_that_overlap_or_touch_merge(windows: list[Any], merged: list[Any]) -> None:
    found = EventTimeSessionWindows[Any](ms(10)).merge_windows([TimeWindow(*each) for each in windows])

    assert [(tuple(whole), [tuple(part) for part in parts]) for whole, parts in found] == merged


# -- global windows


def test_global_windows_are_one_window_without_an_end() -> None:
    [window] = GlobalWindows().assign_windows("record", MIN_WATERMARK, At())

    assert window == GlobalWindow()
    assert window.max_timestamp == MAX_WATERMARK


# -- defaults


@pytest.mark.parametrize(
    ("assigner", "is_event_time", "trigger", "merges"),
    [
        (TumblingEventTimeWindows(ms(1)), True, EventTimeTrigger, False),
        (SlidingEventTimeWindows(ms(1), ms(1)), True, EventTimeTrigger, False),
        (EventTimeSessionWindows(ms(1)), True, EventTimeTrigger, True),
        (TumblingProcessingTimeWindows(ms(1)), False, ProcessingTimeTrigger, False),
        (SlidingProcessingTimeWindows(ms(1), ms(1)), False, ProcessingTimeTrigger, False),
        (ProcessingTimeSessionWindows(ms(1)), False, ProcessingTimeTrigger, True),
        (GlobalWindows(), False, NeverTrigger, False),
    ],
)
def test_every_assigner_has_its_time_and_its_trigger(
    assigner: WindowAssigner[Any, Any], is_event_time: bool, trigger: type, merges: bool
) -> None:
    assert assigner.is_event_time() is is_event_time
    assert type(assigner.get_default_trigger()) is trigger
    assert isinstance(assigner, MergingWindowAssigner) is merges


# -- refused


@pytest.mark.parametrize("size", [ms(0), ms(-1), timedelta(microseconds=999)])
@pytest.mark.parametrize("kind", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
def test_the_size_of_a_tumbling_window_is_at_least_a_millisecond(kind: Any, size: timedelta) -> None:
    with pytest.raises(JobGraphError, match=f"the size of a window must be at least one millisecond, not {size}"):
        kind(size)


@pytest.mark.parametrize("kind", [SlidingEventTimeWindows, SlidingProcessingTimeWindows])
def test_size_and_slide_of_sliding_windows_are_at_least_a_millisecond(kind: Any) -> None:
    with pytest.raises(JobGraphError, match="the size of a window must be at least one millisecond, not 0:00:00"):
        kind(ms(0), ms(1))
    with pytest.raises(JobGraphError, match="the slide of windows must be at least one millisecond, not 0:00:00"):
        kind(ms(1), ms(0))


@pytest.mark.parametrize("kind", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
@pytest.mark.parametrize("gap", [ms(0), ms(-5)])
def test_the_gap_of_a_session_is_at_least_a_millisecond(kind: Any, gap: timedelta) -> None:
    with pytest.raises(JobGraphError, match="the gap of a session must be at least one millisecond, not"):
        kind(gap)


@pytest.mark.parametrize("make", [TumblingEventTimeWindows, lambda size: SlidingEventTimeWindows(ms(1), size)])
@pytest.mark.parametrize("given", [10, 1.5, "10 s", None])
def test_a_duration_is_a_timedelta(make: Any, given: Any) -> None:
    with pytest.raises(JobGraphError, match=r"must be a timedelta, not ") as refused:
        make(given)

    assert refused.value.hint == "Write timedelta(seconds=10)."


@pytest.mark.parametrize("offset", [ms(10), ms(-10), ms(25)])
def test_an_offset_is_less_than_the_size_or_the_slide(offset: timedelta) -> None:
    with pytest.raises(JobGraphError, match=f"the offset of windows is {offset}, which is not less than their size"):
        TumblingEventTimeWindows(ms(10), offset)
    with pytest.raises(JobGraphError, match=f"the offset of windows is {offset}, which is not less than their slide"):
        SlidingEventTimeWindows(ms(100), ms(10), offset)
    with pytest.raises(JobGraphError, match="the offset of windows must be a timedelta, not 3"):
        TumblingEventTimeWindows(ms(10), 3)  # type: ignore[arg-type]


class Unfinished(MergingWindowAssigner[Any, TimeWindow]):
    pass


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda it: it.assign_windows("record", 0, At()), "assign_windows(value, timestamp, ctx)"),
        (lambda it: it.get_default_trigger(), "get_default_trigger()"),
        (lambda it: it.is_event_time(), "is_event_time()"),
        (lambda it: it.merge_windows([]), "merge_windows(windows)"),
    ],
)
def test_an_assigner_of_ones_own_must_define_all_methods(call: Any, method: str) -> None:
    with pytest.raises(NotImplementedError) as refused:
        call(Unfinished())

    assert str(refused.value) == f"Unfinished must define {method}"
