"""What assigners and evictors of users return by mistake is refused with an error that names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, Show, ms

from checkdam import (
    DataStream,
    EventTimeTrigger,
    Evictor,
    MergingWindowAssigner,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    UserFunctionError,
    WindowAssigner,
)


class _OneTime:
    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class Assigning(_OneTime, WindowAssigner[Event, TimeWindow]):
    """Assigns whatever it is given."""

    def __init__(self, windows: Callable[[], Any]) -> None:
        self.windows = windows

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[TimeWindow]:
        return self.windows()  # type: ignore[no-any-return]


class Merging(_OneTime, MergingWindowAssigner[Event, TimeWindow]):
    """Merges as it is told to."""

    def __init__(self, merged: Callable[[Collection[TimeWindow]], Any]) -> None:
        self.merged = merged

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + 5)]

    def merge_windows(self, windows: Collection[TimeWindow]) -> Iterable[tuple[TimeWindow, Collection[TimeWindow]]]:
        return self.merged(windows)  # type: ignore[no-any-return]


class Evicting(Evictor[Event, Any]):
    """Returns whatever it is given, before or after the function."""

    def __init__(self, before: Callable[[list[Any]], Any], after: Callable[[list[Any]], Any]) -> None:
        self.before = before
        self.after = after

    def evict_before(self, elements: list[Any], window: Any, ctx: Any) -> list[Any]:
        return self.before(elements)  # type: ignore[no-any-return]

    def evict_after(self, elements: list[Any], window: Any, ctx: Any) -> list[Any]:
        return self.after(elements)  # type: ignore[no-any-return]


def windows(assigner: WindowAssigner[Any, Any], evictor: Evictor[Any, Any] | None = None) -> OneWindow:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        divided = stream.key_by("key").window(assigner)
        return (divided if evictor is None else divided.evictor(evictor)).process(Show())

    return OneWindow(build)


def cause_of(failing: OneWindow, *records: Event) -> str:
    with failing, pytest.raises(UserFunctionError) as failed:
        failing.epoch(*records, watermark=100)
    return failed.value.cause


@pytest.mark.parametrize(
    ("returned", "cause"),
    [
        (lambda: None, "assign_windows() of Assigning must return a list of windows, and returned None"),
        (
            lambda: TimeWindow(0, 10),
            "assign_windows() of Assigning must return a list of windows, and returned TimeWindow(start=0, end=10)",
        ),
        (lambda: [(0, 10)], "assign_windows() of Assigning returned (0, 10), which is not a TimeWindow"),
        (lambda: [TimeWindow(0.5, 10)], "must be of type TimeWindow, but was TimeWindow(start=0.5, end=10)"),  # type: ignore[arg-type]
    ],
)
def test_an_assigner_returns_a_list_of_its_windows(returned: Callable[[], Any], cause: str) -> None:
    assert cause in cause_of(windows(Assigning(returned)), Event("a", 1))


def test_an_assigner_may_return_any_iterable_of_windows() -> None:
    with windows(Assigning(lambda: (TimeWindow(start, start + 10) for start in (0, 20)))) as it:
        assert it.epoch(Event("a", 1, 7), watermark=100) == [("a", 0, 10, [7]), ("a", 20, 30, [7])]


@pytest.mark.parametrize(
    ("returned", "cause"),
    [
        (None, "and returned None"),
        ([3], "and returned 3 among them"),
        ([(TimeWindow(0, 9), None)], "and returned None"),
        ([((0, 9), [])], "merge_windows() of Merging returned (0, 9), which is not a TimeWindow"),
    ],
)
def test_an_assigner_merges_windows_into_windows(returned: Any, cause: str) -> None:
    assert cause in cause_of(windows(Merging(lambda windows: returned)), Event("a", 1), Event("a", 4))


def test_the_windows_that_are_replaced_may_be_any_iterable() -> None:
    def all_in_one(windows: Collection[TimeWindow]) -> Any:
        yield TimeWindow(min(windows).start, max(each.end for each in windows)), (each for each in windows)

    with windows(Merging(all_in_one)) as it:
        assert it.epoch(Event("a", 1, 7), Event("a", 4, 8), watermark=100) == [("a", 1, 9, [7, 8])]


def stay(elements: list[Any]) -> list[Any]:
    return elements


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (lambda elements: None, stay, "evict_before() of Evicting must return the list of those of its elements"),
        (stay, lambda elements: elements.clear(), "evict_after() of Evicting must return the list"),
        (
            lambda elements: [each.value for each in elements],
            stay,
            "each with value and timestamp, and returned Event(key='a', at=1, n=7) among them",
        ),
    ],
)
def test_an_evictor_returns_the_elements_that_stay(before: Any, after: Any, cause: str) -> None:
    tens = TumblingEventTimeWindows(ms(10))
    assert cause in cause_of(windows(tens, Evicting(before, after)), Event("a", 1, 7))


def test_an_evictor_may_return_any_iterable_of_elements() -> None:
    def newest(elements: list[Any]) -> Iterable[Any]:
        return (each for each in elements if each.value.n > 7)

    with windows(TumblingEventTimeWindows(ms(10)), Evicting(newest, newest)) as it:
        assert it.epoch(Event("a", 1, 7), Event("a", 2, 8), watermark=100) == [("a", 0, 10, [8])]
