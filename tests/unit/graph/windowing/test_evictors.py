"""Which records evictors remove, before and after the window's function has seen them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, Show, ShowAnywhere, Shown, ms

from checkdam import (
    CountEvictor,
    CountTrigger,
    DataStream,
    DeltaEvictor,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    JobGraphError,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TumblingEventTimeWindows,
)
from checkdam.graph.windowing.evictors import EvictorContext


class Times:
    current_processing_time = 0
    current_watermark = 0


def numbers(*values: int) -> list[TimestampedValue[int]]:
    """Records whose timestamps are ten times their value."""
    return [TimestampedValue(value, value * 10) for value in values]


def kept(evictor: Evictor[Any, Any], elements: list[TimestampedValue[Any]], *, after: bool) -> list[Any]:
    """Return what an evictor keeps at one moment, and check that it keeps everything at the other."""
    ctx: EvictorContext = Times()
    moments = evictor.evict_before, evictor.evict_after
    assert moments[not after](list(elements), GlobalWindow(), ctx) == elements
    return [each.value for each in moments[after](list(elements), GlobalWindow(), ctx)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("make", "given", "expected"),
    [
        (lambda after: CountEvictor(3, after=after), [1, 2, 3, 4, 5], [3, 4, 5]),
        (lambda after: CountEvictor(3, after=after), [1, 2, 3], [1, 2, 3]),
        (lambda after: CountEvictor(3, after=after), [], []),
        (lambda after: CountEvictor(1, after=after), [1, 2], [2]),
        (lambda after: TimeEvictor(ms(20), after=after), [3, 5, 1, 4], [5, 4]),  # 3 is 20 older: not less
        (lambda after: TimeEvictor(ms(21), after=after), [3, 5, 1, 4], [3, 5, 4]),
        (lambda after: TimeEvictor(ms(1), after=after), [], []),
        (lambda after: DeltaEvictor(2, lambda one, last: last - one, after=after), [1, 9, 3, 2, 4], [9, 3, 4]),
        (lambda after: DeltaEvictor(2.0, lambda one, last: 5.0, after=after), [1, 2], []),
        (lambda after: DeltaEvictor(2, lambda one, last: 0, after=after), [], []),
    ],
)
def test_evictors_keep_what_they_should(
    make: Callable[[bool], Evictor[Any, Any]], given: list[int], expected: list[int], after: bool
) -> None:
    assert kept(make(after), numbers(*given), after=after) == expected


def test_a_time_evictor_keeps_records_without_timestamps() -> None:
    elements: list[TimestampedValue[Any]] = [TimestampedValue(n, None) for n in range(3)]

    assert kept(TimeEvictor(ms(1)), elements, after=False) == [0, 1, 2]


def test_a_time_evictor_takes_a_record_without_timestamp_among_others_for_the_oldest() -> None:
    elements: list[TimestampedValue[Any]] = [TimestampedValue(1, 10), TimestampedValue(2, None), TimestampedValue(3, 5)]

    assert kept(TimeEvictor(ms(100)), elements, after=False) == [1, 3]


# -- in windows


def windowed(stream: DataStream[Any], evictor: Evictor[Any, Any]) -> Any:
    """One window of each key that fires with every second record."""
    return stream.key_by("key").window(GlobalWindows()).trigger(CountTrigger(2)).evictor(evictor)


@pytest.mark.parametrize(
    ("evictor", "fired", "left"),
    [
        (CountEvictor(3), [[0, 1], [1, 2, 3], [3, 4, 5]], [3, 4, 5]),
        (CountEvictor(1, after=True), [[0, 1], [1, 2, 3], [3, 4, 5]], [5]),
        (TimeEvictor(ms(15)), [[0, 1], [2, 3], [4, 5]], [4, 5]),
        (TimeEvictor(ms(15), after=True), [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]], [4, 5]),
        (DeltaEvictor(3, lambda one, last: last.n - one.n), [[0, 1], [1, 2, 3], [3, 4, 5]], [3, 4, 5]),
        (DeltaEvictor(1, lambda one, last: last.n - one.n, after=True), [[0, 1], [1, 2, 3], [3, 4, 5]], [5]),
    ],
    ids=["count", "count after", "time", "time after", "delta", "delta after"],
)
def test_evicted_records_are_gone_from_the_window(
    evictor: Evictor[Any, Any], fired: list[list[int]], left: list[int], backend: str
) -> None:
    with OneWindow(lambda s: windowed(s, evictor).process(ShowAnywhere()), backend=backend) as windows:
        given = windows.epoch(*(Event("a", 10 * n, n) for n in range(6)))

        assert [found for _, found in given] == fired
        states = windows.states()
        assert states["window-contents"]["a", GlobalWindow()] == [(Event("a", 10 * n, n), 10 * n) for n in left]


def test_a_window_that_an_evictor_has_emptied_keeps_nothing(backend: str) -> None:
    nothing = DeltaEvictor[Event](0, lambda one, last: 1.0, after=True)
    with OneWindow(lambda s: windowed(s, nothing).process(ShowAnywhere()), backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 1), Event("a", 2, 2)) == [("a", [1, 2])]
        assert windows.states() == {}


def test_with_an_evictor_reduce_and_sum_combine_what_is_left(backend: str) -> None:
    with OneWindow(lambda s: windowed(s, CountEvictor(3)).sum("n"), backend=backend) as windows:
        fired = windows.epoch(*(Event("a", n, n) for n in range(6)))
        assert [each.n for each in fired] == [1, 6, 12]
    build = lambda s: windowed(s, CountEvictor(3)).reduce(lambda one, other: other, ShowAnywhere())  # noqa: E731
    with OneWindow(build, backend=backend) as windows:
        assert windows.epoch(*(Event("a", n, n) for n in range(4))) == [("a", [1]), ("a", [3])]


def test_a_reduced_window_of_which_all_is_evicted_emits_nothing(backend: str) -> None:
    nothing = DeltaEvictor[Event](0, lambda one, last: 1.0)
    with OneWindow(lambda s: windowed(s, nothing).sum("n"), backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 1), Event("a", 2, 2)) == []


class Odd(Evictor[Event, TimeWindow]):
    """Passes odd numbers on only, and keeps those above the window's start afterwards."""

    def evict_before(
        self, elements: list[TimestampedValue[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue[Event]]:
        assert ctx.current_watermark >= window.max_timestamp
        assert ctx.current_processing_time > 0
        return [each for each in elements if each.value.n % 2]

    def evict_after(
        self, elements: list[TimestampedValue[Event]], window: TimeWindow, ctx: EvictorContext
    ) -> list[TimestampedValue[Event]]:
        return [each for each in elements if each.timestamp is not None and each.timestamp > window.start]


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_users_write_evictors(to: str, backend: str) -> None:
    def odd(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).allowed_lateness(ms(50))
        return windowed.evictor(Odd()).process(Show())

    windows = OneWindow(odd, backend=backend)
    windows.epoch(Event("a", 0, 1), Event("a", 3, 2), Event("a", 2, 3), watermark=0)
    with windows.restored(backend=to) as again:
        assert again.epoch(watermark=9) == [Shown("a", 0, 10, [1, 3])]
        assert again.epoch(Event("a", 5, 5), watermark=9) == [Shown("a", 0, 10, [3, 5])]
        again.epoch(watermark=59)
        assert again.states() == {}


def gap_of_numbers(one: Event, last: Event) -> float:
    return abs(last.n - one.n)


@pytest.mark.parametrize(
    ("evictor", "fired", "again"),
    [
        (CountEvictor(2), [2, 3], [3, 5]),
        (CountEvictor(2, after=True), [1, 2, 3], [2, 3, 5]),
        (TimeEvictor(ms(10)), [2, 3], [2, 3, 5]),
        (DeltaEvictor(2, gap_of_numbers), [2, 3], [5]),
        (Odd(), [1, 3], [3, 5]),
    ],
    ids=["count", "count after", "time", "delta", "of one's own"],
)
def test_an_evictor_sees_the_records_of_all_sessions_that_have_merged(
    evictor: Evictor[Any, Any], fired: list[int], again: list[int], backend: str
) -> None:
    def sessions(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(EventTimeSessionWindows(ms(10))).allowed_lateness(ms(50))
        return windowed.evictor(evictor).process(Show())

    with OneWindow(sessions, backend=backend) as windows:
        windows.epoch(Event("a", 0, 1), Event("a", 16, 2), watermark=0)
        assert windows.epoch(Event("a", 8, 3), watermark=25) == [Shown("a", 0, 26, fired)]
        assert windows.epoch(Event("a", 9, 5), watermark=25) == [Shown("a", 0, 26, again)]
        windows.epoch(watermark=100)
        assert windows.states() == {}


# -- refused


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3"])
def test_a_count_is_a_positive_whole_number(count: Any) -> None:
    with pytest.raises(JobGraphError) as refused:
        CountEvictor(count)

    assert refused.value.message == f"the count of an evictor must be a whole number of at least 1, not {count!r}"


def test_arguments_of_the_other_evictors_are_checked() -> None:
    with pytest.raises(JobGraphError, match="the size of an evictor must be at least one millisecond, not 0:00:00"):
        TimeEvictor(ms(0))
    with pytest.raises(JobGraphError, match=r"DeltaEvictor\(\) takes a function of two records, not 5"):
        DeltaEvictor(1, 5)  # type: ignore[arg-type]
