"""Windows in event time: when they fire, what is late, and what is left of a window that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, Show, Shown, ms

from checkdam import (
    AggregateFunction,
    CountEvictor,
    CountTrigger,
    DataStream,
    EventTimeTrigger,
    OutputTag,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowContext,
    WindowFunction,
)
from checkdam.backends.hashmap.hashmap_states import HashMapCells
from checkdam.graph.watermarks import MAX_WATERMARK

LATE = OutputTag("late", Event)


def tens(stream: DataStream[Any]) -> Any:
    """Windows of 10 milliseconds of each key."""
    return stream.key_by("key").window(TumblingEventTimeWindows(ms(10)))


def sums(stream: DataStream[Any]) -> DataStream[Any]:
    return tens(stream).sum("n")  # type: ignore[no-any-return]


def shown(stream: DataStream[Any]) -> DataStream[Any]:
    return tens(stream).process(Show())  # type: ignore[no-any-return]


class Mean(AggregateFunction[Event, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value.n, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


# -- firing


def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), Event("b", 5, 2), Event("a", 9, 3), watermark=8) == []
        assert windows.epoch(Event("a", 10, 4), watermark=9) == [Shown("a", 0, 10, [1, 3]), Shown("b", 0, 10, [2])]
        assert windows.epoch(watermark=18) == []
        assert windows.epoch(watermark=19) == [Shown("a", 10, 20, [4])]


def test_results_carry_the_last_timestamp_of_their_window(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        windows.epoch(Event("a", 0), Event("a", 25), watermark=50)

        assert windows.stamps == [9, 29]


def test_windows_that_are_due_together_fire_in_the_order_of_their_ends(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        fired = windows.epoch(Event("a", 31), Event("b", 12), Event("a", 1), Event("c", 25), watermark=100)

        assert [each.start for each in fired] == [0, 10, 20, 30]


def test_the_end_of_input_fires_all_windows(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        windows.epoch(Event("a", 0, 1), Event("a", 1_000, 2))

        assert windows.epoch(watermark=MAX_WATERMARK) == [Shown("a", 0, 10, [1]), Shown("a", 1_000, 1_010, [2])]
        assert windows.states() == {}


def test_negative_timestamps_have_windows_too(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        assert windows.epoch(Event("a", -1, 1), Event("a", -10, 2), Event("a", -11, 3), watermark=0) == [
            Shown("a", -20, -10, [3]),
            Shown("a", -10, 0, [1, 2]),
        ]


def test_a_record_belongs_to_every_sliding_window_that_covers_it(backend: str) -> None:
    def sliding(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(SlidingEventTimeWindows(ms(10), ms(5))).process(Show())

    with OneWindow(sliding, backend=backend) as windows:
        assert windows.epoch(Event("a", 4, 1), Event("a", 7, 2), watermark=30) == [
            Shown("a", -5, 5, [1]),
            Shown("a", 0, 10, [1, 2]),
            Shown("a", 5, 15, [2]),
        ]
        assert windows.states() == {}


def test_a_record_between_sliding_windows_belongs_to_none_and_is_not_late(backend: str) -> None:
    def sliding(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(SlidingEventTimeWindows(ms(3), ms(10)))
        return windowed.side_output_late_data(LATE).process(Show())

    with OneWindow(sliding, backend=backend, aside=[LATE]) as windows:
        assert windows.epoch(Event("a", 2, 1), Event("a", 3, 2), Event("a", 10, 3), watermark=30) == [
            Shown("a", 0, 3, [1]),
            Shown("a", 10, 13, [3]),
        ]
        assert windows.aside(LATE) == []
        windows.epoch(Event("a", 5, 4))  # between windows, and behind the watermark: late by Flink's rule
        assert windows.aside(LATE) == [Event("a", 5, 4)]


# -- late records


def test_a_late_record_is_dropped(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        windows.epoch(Event("a", 5, 1), watermark=9)

        assert windows.epoch(Event("a", 6, 2), watermark=100) == []
        assert windows.states() == {}


def test_within_an_epoch_the_watermark_of_the_epoch_before_decides(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        assert windows.epoch(Event("a", 50, 1), Event("a", 5, 2), watermark=49) == [Shown("a", 0, 10, [2])]


def test_late_records_go_to_their_side_output_in_the_order_they_came(backend: str) -> None:
    def late_aside(stream: DataStream[Any]) -> DataStream[Any]:
        return tens(stream).side_output_late_data(LATE).sum("n")  # type: ignore[no-any-return]

    with OneWindow(late_aside, backend=backend, aside=[LATE]) as windows:
        windows.epoch(Event("a", 5, 1), watermark=19)
        windows.epoch(Event("a", 9, 2), Event("b", 1, 3), Event("a", 20, 4), Event("a", 19, 5), watermark=20)

        assert windows.aside(LATE) == [Event("a", 9, 2), Event("b", 1, 3), Event("a", 19, 5)]


def test_late_records_that_nothing_reads_are_dropped(backend: str) -> None:
    def late_aside(stream: DataStream[Any]) -> DataStream[Any]:
        return tens(stream).side_output_late_data(LATE).sum("n")  # type: ignore[no-any-return]

    with OneWindow(late_aside, backend=backend) as windows:
        windows.epoch(watermark=19)

        assert windows.epoch(Event("a", 9, 2)) == []
        assert windows.states() == {}


def test_a_record_that_one_of_its_sliding_windows_still_takes_is_not_late(backend: str) -> None:
    def sliding(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(SlidingEventTimeWindows(ms(10), ms(5)))
        return windowed.side_output_late_data(LATE).process(Show())

    with OneWindow(sliding, backend=backend, aside=[LATE]) as windows:
        windows.epoch(watermark=9)

        assert windows.epoch(Event("a", 7, 1), watermark=14) == [Shown("a", 5, 15, [1])]
        assert windows.aside(LATE) == []


# -- allowed lateness


def lenient(stream: DataStream[Any]) -> DataStream[Any]:
    return tens(stream).allowed_lateness(ms(5)).side_output_late_data(LATE).process(Show())  # type: ignore[no-any-return]


def test_within_the_allowed_lateness_every_late_record_fires_its_window_again(backend: str) -> None:
    with OneWindow(lenient, backend=backend, aside=[LATE]) as windows:
        assert windows.epoch(Event("a", 1, 1), watermark=9) == [Shown("a", 0, 10, [1])]

        assert windows.epoch(Event("a", 2, 2), Event("a", 3, 3), watermark=13) == [
            Shown("a", 0, 10, [1, 2]),
            Shown("a", 0, 10, [1, 2, 3]),
        ]
        assert windows.aside(LATE) == []


def test_a_record_for_a_window_that_did_not_exist_fires_at_once_within_the_allowed_lateness(backend: str) -> None:
    with OneWindow(lenient, backend=backend, aside=[LATE]) as windows:
        windows.epoch(watermark=12)

        assert windows.epoch(Event("a", 1, 1)) == [Shown("a", 0, 10, [1])]


def test_after_the_allowed_lateness_records_are_late_and_the_window_is_gone(backend: str) -> None:
    with OneWindow(lenient, backend=backend, aside=[LATE]) as windows:
        windows.epoch(Event("a", 1, 1), watermark=13)
        assert windows.states() == {
            "window-contents": {("a", TimeWindow(0, 10)): [Event("a", 1, 1)]},
            "_timers/event_window-timers": {("a", TimeWindow(0, 10)): [14]},
        }

        windows.epoch(watermark=14)
        assert windows.states() == {}
        assert windows.epoch(Event("a", 2, 2)) == []
        assert windows.aside(LATE) == [Event("a", 2, 2)]


def test_a_sum_continues_from_what_it_was_when_it_fired(backend: str) -> None:
    def lenient_sum(stream: DataStream[Any]) -> DataStream[Any]:
        return tens(stream).allowed_lateness(ms(5)).sum("n")  # type: ignore[no-any-return]

    with OneWindow(lenient_sum, backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 1), Event("a", 2, 2), watermark=9) == [Event("a", 1, 3)]
        assert windows.epoch(Event("a", 2, 4), watermark=9) == [Event("a", 1, 7)]


def test_with_a_purging_trigger_a_late_record_is_alone_in_its_window(backend: str) -> None:
    def purging(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = tens(stream).trigger(PurgingTrigger(EventTimeTrigger())).allowed_lateness(ms(5))
        return windowed.process(Show())  # type: ignore[no-any-return]

    with OneWindow(purging, backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 1), watermark=9) == [Shown("a", 0, 10, [1])]
        assert "window-contents" not in windows.states()
        assert windows.epoch(Event("a", 2, 2), watermark=9) == [Shown("a", 0, 10, [2])]
        windows.epoch(watermark=14)
        assert windows.states() == {}


# -- what is kept


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda windowed: windowed.sum("n"), Event("a", 1, 3)),
        (lambda windowed: windowed.min("n"), Event("a", 1, 1)),
        (lambda windowed: windowed.max("n"), Event("a", 1, 2)),
        (lambda windowed: windowed.reduce(lambda one, other: other), Event("a", 2, 2)),
        (lambda windowed: windowed.aggregate(Mean()), (3, 2)),
        (lambda windowed: windowed.aggregate(Mean(), Last()), (3, 2)),
        (lambda windowed: windowed.process(Show()), [Event("a", 1, 1), Event("a", 2, 2)]),
        (lambda windowed: windowed.apply(Numbers()), [Event("a", 1, 1), Event("a", 2, 2)]),
    ],
    ids=["sum", "min", "max", "reduce", "aggregate", "aggregate and process", "process", "apply"],
)
def test_a_window_keeps_only_what_its_function_needs_and_nothing_when_it_has_ended(
    function: Any, kept: Any, backend: str
) -> None:
    with OneWindow(lambda stream: function(tens(stream)), backend=backend) as windows:
        windows.epoch(Event("a", 1, 1), Event("a", 2, 2), watermark=0)

        assert windows.states() == {
            "window-contents": {("a", TimeWindow(0, 10)): kept},
            "_timers/event_window-timers": {("a", TimeWindow(0, 10)): [9]},
        }
        windows.epoch(Event("a", 11, 1), watermark=9)
        assert {window for state in windows.states().values() for _, window in state} == {TimeWindow(10, 20)}
        windows.epoch(watermark=MAX_WATERMARK)
        assert windows.states() == {}


class Numbers(WindowFunction[str, Event, tuple[str, list[int]]]):
    def apply(self, key: str, window: TimeWindow, elements: Sequence[Event]) -> list[tuple[str, list[int]]]:
        return [(f"{key} from {window.start}", [each.n for each in elements])]


class Last(ProcessWindowFunction[str, float, tuple[str, int, float]]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[float]) -> Iterator[tuple[str, int, float]]:
        [result] = elements
        yield key, ctx.window.end, result


class Latest(WindowFunction[str, Event, str]):
    def apply(self, key: str, window: TimeWindow, elements: Sequence[Event]) -> list[str]:
        return [f"{key} until {window.end}: {each.n}" for each in elements]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda windowed: windowed.sum("n"), [Event("a", 1, 6)]),
        (lambda windowed: windowed.min("n"), [Event("a", 1, 2)]),
        (lambda windowed: windowed.max("n"), [Event("a", 1, 4)]),
        (lambda windowed: windowed.reduce(lambda one, other: other), [Event("a", 2, 2)]),
        (lambda windowed: windowed.reduce(lambda one, other: other, Latest()), ["a until 10: 2"]),
        (lambda windowed: windowed.aggregate(Mean()), [3.0]),
        (lambda windowed: windowed.aggregate(Mean(), Last()), [("a", 10, 3.0)]),
        (lambda windowed: windowed.apply(Numbers()), [("a from 0", [4, 2])]),
        (lambda windowed: windowed.process(Show()), [Shown("a", 0, 10, [4, 2])]),
    ],
    ids=["sum", "min", "max", "reduce", "reduce and apply", "aggregate", "aggregate and process", "apply", "process"],
)
def test_every_kind_of_function_gets_the_windows_records(function: Any, result: list[Any], backend: str) -> None:
    with OneWindow(lambda stream: function(tens(stream)), backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 4), Event("a", 2, 2), watermark=9) == result
        assert windows.stamps == [9]


def test_a_function_may_return_none_or_several_records(backend: str) -> None:
    class Some(ProcessWindowFunction[str, Event, int]):
        def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> list[int] | None:
            return [each.n for each in elements] if key == "a" else None

    with OneWindow(lambda stream: tens(stream).process(Some()), backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 4), Event("b", 1, 7), Event("a", 2, 2), watermark=9) == [4, 2]
        assert windows.stamps == [9, 9]


@dataclass
class Box:
    """A record that can be changed."""

    key: str
    at: int
    n: int


def add_in_place(one: Box, other: Box) -> Box:
    one.n += other.n
    return one


def add_to_other(one: Box, other: Box) -> Box:
    other.n += one.n
    return other


class Growing(ProcessWindowFunction[str, Box, list[int]]):
    """Changes the records that it gets."""

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Box]) -> Iterator[list[int]]:
        for each in elements:
            each.n += 10
        yield [each.n for each in elements]


@pytest.mark.parametrize(
    ("function", "results"),
    [
        (lambda windowed: windowed.reduce(add_in_place), [Box("a", 4, 1), Box("a", 4, 6), Box("a", 6, 5)]),
        (lambda windowed: windowed.reduce(add_to_other), [Box("a", 4, 1), Box("a", 7, 6), Box("a", 7, 5)]),
        (lambda windowed: windowed.process(Growing()), [[11], [11, 12, 13], [12, 13]]),
        (lambda windowed: windowed.evictor(CountEvictor(9)).reduce(add_in_place), [Box("a", 4, n) for n in (1, 6)]),
    ],
    ids=["reduce", "reduce into the new one", "process", "evictor"],
)
def test_a_function_that_changes_records_changes_no_other_window(
    function: Any, results: list[Any], backend: str
) -> None:
    def sliding(stream: DataStream[Any]) -> DataStream[Any]:
        by_key = stream.key_by(lambda box: box.key, key_type=str)
        return function(by_key.window(SlidingEventTimeWindows(ms(10), ms(5))))  # type: ignore[no-any-return]

    with OneWindow(sliding, backend=backend, record=Box) as windows:
        fired = windows.epoch(Box("a", 4, 1), Box("a", 6, 2), Box("a", 7, 3), watermark=100)

        assert fired[: len(results)] == results


# -- purging and counting in windows of time


def test_a_count_trigger_in_windows_of_time_fires_by_count_and_not_at_the_end(backend: str) -> None:
    def counted(stream: DataStream[Any]) -> DataStream[Any]:
        return tens(stream).trigger(CountTrigger(2)).process(Show())  # type: ignore[no-any-return]

    with OneWindow(counted, backend=backend) as windows:
        fired = windows.epoch(Event("a", 1, 1), Event("a", 2, 2), Event("a", 3, 3), watermark=0)
        assert fired == [Shown("a", 0, 10, [1, 2])]
        assert windows.states()["count"] == {("a", TimeWindow(0, 10)): 1}
        assert windows.epoch(watermark=9) == []
        assert windows.states() == {}


class PurgeAtThree(Trigger[Event, TimeWindow]):
    """Drops a window's records, unseen, when number 3 comes."""

    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp)
        return TriggerResult.PURGE if value.n == 3 else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE


def test_a_purge_drops_what_the_window_holds_and_keeps_the_window(backend: str) -> None:
    def purged(stream: DataStream[Any]) -> DataStream[Any]:
        return tens(stream).trigger(PurgeAtThree()).process(Show())  # type: ignore[no-any-return]

    with OneWindow(purged, backend=backend) as windows:
        windows.epoch(Event("a", 1, 1), Event("a", 2, 3), Event("b", 2, 3), Event("a", 3, 4), watermark=0)

        assert windows.epoch(watermark=9) == [Shown("a", 0, 10, [4])]  # b holds nothing, so it emits nothing
        assert windows.states() == {}


# -- restoring


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("function", [lambda w: w.process(Show()), lambda w: w.aggregate(Mean(), Last())])
def test_windows_continue_from_a_savepoint_on_any_backend_and_parallelism(function: Any, to: str, backend: str) -> None:
    keys = [f"key {n}" for n in range(12)]
    windows = OneWindow(lambda stream: function(tens(stream)), backend=backend)
    windows.epoch(*(Event(key, 1, 1) for key in keys), watermark=0)

    with windows.restored(backend=to, parallelism=3) as again:
        fired = again.epoch(*(Event(key, 2, 2) for key in keys), watermark=9)

        expected = {Shown: [Shown(key, 0, 10, [1, 2]) for key in keys]}.get(
            type(fired[0]), [(key, 10, 1.5) for key in keys]
        )
        assert sorted(fired) == sorted(expected)
        assert again.states() == {}


def test_a_record_that_is_late_before_a_restore_is_late_after_it(backend: str) -> None:
    windows = OneWindow(lenient, backend=backend, aside=[LATE])
    windows.epoch(Event("a", 1, 1), watermark=20)

    with windows.restored() as again:
        assert again.epoch(Event("a", 2, 2), watermark=20) == []
        assert again.aside(LATE) == [Event("a", 2, 2)]


def test_a_window_is_looked_up_only_if_it_may_have_begun_before_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    get_all = HashMapCells.get_all
    monkeypatch.setattr(
        HashMapCells,
        "get_all",
        lambda self, keys: asked.extend(keys) or get_all(self, keys),  # type: ignore[func-returns-value]
    )
    build = lambda stream: stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).sum("n")  # noqa: E731
    windows = OneWindow(build)

    windows.epoch(Event("a", 1, 1), Event("a", 2, 2), watermark=2)
    assert asked == []
    windows.epoch(Event("a", 3, 4), Event("a", 12, 8), Event("b", 11, 16), watermark=3)
    assert asked == [("a", TimeWindow(0, 10))]
    with windows.restored() as again:
        asked.clear()
        again.epoch(Event("a", 4, 32), Event("a", 15, 64), Event("a", 25, 128), watermark=4)

        assert asked == [("a", TimeWindow(0, 10)), ("a", TimeWindow(10, 20))]
        assert sorted(again.epoch(watermark=29)) == [
            Event("a", 1, 39),
            Event("a", 12, 72),
            Event("a", 25, 128),
            Event("b", 11, 16),
        ]
