"""Joins of two streams: within windows, and within intervals of event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.support.one_window import Event, OneWindow, ms

from checkdam import (
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    Evictor,
    FlatJoinFunction,
    JoinContext,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    UserFunctionError,
)
from checkdam.backends.hashmap.hashmap_states import DictMap, HashMapMaps
from checkdam.graph.watermarks import MAX_WATERMARK


class Payment(NamedTuple):
    """A record of the second stream."""

    order: str
    at: int
    paid: int = 0


Pair = tuple[int, int]
TENS = TumblingEventTimeWindows(ms(10))


class Both(JoinFunction[Event, Payment, Pair]):
    def join(self, first: Event, second: Payment) -> Pair:
        return first.n, second.paid


class Repeated(FlatJoinFunction[Event, Payment, Pair]):
    """As many pairs as the first says."""

    def join(self, first: Event, second: Payment) -> Iterator[Pair] | None:
        return iter([(first.n, second.paid)] * first.n) if first.n else None


class Groups(CoGroupFunction[Event, Payment, tuple[list[int], list[int]]]):
    def co_group(self, first: Sequence[Event], second: Sequence[Payment]) -> list[tuple[list[int], list[int]]]:
        return [([each.n for each in first], [each.paid for each in second])]


def two(build: Any, backend: str, **options: Any) -> OneWindow:
    return OneWindow(build, backend=backend, second=Payment, **options)


def joined(first: DataStream[Any], second: DataStream[Any], assigner: Any = TENS) -> Any:
    return first.join(second).where("key").equal_to("order").window(assigner)


def grouped(first: DataStream[Any], second: DataStream[Any], assigner: Any = TENS) -> Any:
    return first.co_group(second).where("key").equal_to("order").window(assigner)


# -- within windows


@pytest.mark.parametrize(
    "function",
    [Both(), lambda first, second: (first.n, second.paid)],
    ids=["JoinFunction", "lambda"],
)
def test_every_pair_of_one_key_and_window_is_joined(function: Any, backend: str) -> None:
    with two(lambda a, b: joined(a, b).apply(function, output_type=Pair), backend) as it:
        orders = [Event("a", 1, 1), Event("a", 2, 2), Event("b", 3, 3), Event("a", 11, 4)]
        payments = [Payment("a", 9, 7), Payment("a", 5, 8), Payment("c", 5, 9), Payment("a", 20, 10)]

        assert it.epoch(*orders, second=payments, watermark=100) == [(1, 7), (1, 8), (2, 7), (2, 8)]
        assert it.stamps == [9] * 4
        assert it.states() == {}


def test_the_sides_may_come_in_different_epochs(backend: str) -> None:
    with two(lambda a, b: joined(a, b).apply(Both()), backend) as it:
        it.epoch(second=[Payment("a", 9, 7)], watermark=0)
        assert it.states() == {
            "window-contents": {("a", TimeWindow(0, 10)): [(1, None, Payment("a", 9, 7))]},
            "_timers/event_window-timers": {("a", TimeWindow(0, 10)): [9]},
        }
        it.epoch(Event("a", 1, 1), watermark=0)
        assert it.epoch(watermark=9) == [(1, 7)]


def test_a_flat_join_gives_any_number_of_records_for_a_pair(backend: str) -> None:
    with two(lambda a, b: joined(a, b).apply(Repeated()), backend) as it:
        orders = [Event("a", 1, 0), Event("a", 2, 2)]
        assert it.epoch(*orders, second=[Payment("a", 3, 7)], watermark=9) == [(2, 7), (2, 7)]


def test_co_group_sees_windows_with_records_of_one_side_only(backend: str) -> None:
    with two(lambda a, b: grouped(a, b).apply(Groups()), backend) as it:
        orders = [Event("a", 1, 1), Event("a", 2, 2), Event("b", 3, 3)]
        payments = [Payment("a", 4, 7), Payment("c", 5, 8)]

        assert it.epoch(*orders, second=payments, watermark=9) == [([1, 2], [7]), ([3], []), ([], [8])]
        assert it.states() == {}


def test_a_join_in_sliding_windows_gives_a_pair_once_for_each_window(backend: str) -> None:
    with two(lambda a, b: joined(a, b, SlidingEventTimeWindows(ms(10), ms(5))).apply(Both()), backend) as it:
        found = it.epoch(Event("a", 4, 1), second=[Payment("a", 3, 7), Payment("a", 6, 8)], watermark=100)

        assert found == [(1, 7), (1, 7), (1, 8)]
        assert it.stamps == [4, 9, 9]


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_a_join_in_sessions(to: str, backend: str) -> None:
    it = two(lambda a, b: joined(a, b, EventTimeSessionWindows(ms(10))).apply(Both()), backend)
    it.epoch(Event("a", 0, 1), Event("a", 16, 2), watermark=-1)
    with it.restored(backend=to, parallelism=2) as again:
        again.epoch(second=[Payment("a", 8, 7)], watermark=-1)  # makes both sessions one

        assert sorted(again.epoch(watermark=25)) == [(1, 7), (2, 7)]
        assert again.states() == {}


def test_a_join_with_trigger_evictor_and_lateness(backend: str) -> None:
    def build(a: DataStream[Any], b: DataStream[Any]) -> DataStream[Any]:
        return joined(a, b).trigger(PurgingTrigger(CountTrigger(3))).evictor(CountEvictor(2)).apply(Both())  # type: ignore[no-any-return]

    with two(build, backend) as it:
        assert it.epoch(Event("a", 1, 1), Event("a", 2, 2), second=[Payment("a", 3, 7)], watermark=0) == [(2, 7)]
        assert "window-contents" not in it.states()

    lenient = lambda a, b: joined(a, b).allowed_lateness(ms(5)).apply(Both())  # noqa: E731
    with two(lenient, backend) as it:
        assert it.epoch(Event("a", 1, 1), second=[Payment("a", 3, 7)], watermark=9) == [(1, 7)]
        assert it.epoch(second=[Payment("a", 4, 8)], watermark=14) == [(1, 7), (1, 8)]
        assert it.epoch(second=[Payment("a", 4, 9)], watermark=14) == []
        assert it.states() == {}


class Unpaid(Evictor[Any, Any]):
    """Removes payments of nothing."""

    def evict_before(self, elements: list[Any], window: Any, ctx: Any) -> list[Any]:
        return [each for each in elements if each.value[0] == 0 or each.value[2].paid]


def test_an_evictor_of_a_join_gets_side_and_record(backend: str) -> None:
    with two(lambda a, b: joined(a, b).evictor(Unpaid()).apply(Both()), backend) as it:
        assert it.epoch(Event("a", 1, 1), second=[Payment("a", 3, 0), Payment("a", 3, 7)], watermark=9) == [(1, 7)]


def test_a_join_by_the_clock(backend: str) -> None:
    build = lambda a, b: joined(a, b, TumblingProcessingTimeWindows(timedelta(seconds=1))).apply(Both())  # noqa: E731
    with two(build, backend, is_stamped=False) as it:
        it.epoch(Event("a", 0, 1), second=[Payment("a", 0, 7)])
        it.clock.advance(1)
        assert it.epoch() == [(1, 7)]
        assert it.states() == {}


# -- within intervals


class Match(ProcessJoinFunction[Event, Payment, Pair]):
    def process_element(self, left: Event, right: Payment, ctx: JoinContext) -> Iterator[Pair]:
        assert (ctx.left_timestamp, ctx.right_timestamp) == (left.at, right.at)
        assert ctx.timestamp == max(left.at, right.at)
        yield left.n, right.paid


LATE_ORDERS, LATE_PAYMENTS = OutputTag("late orders", Event), OutputTag("late payments", Payment)


def within(lower: int, upper: int, **options: Any) -> Any:
    def build(first: DataStream[Any], second: DataStream[Any]) -> DataStream[Any]:
        interval = first.key_by("key").interval_join(second.key_by("order")).between(ms(lower), ms(upper), **options)
        interval = interval.side_output_left_late_data(LATE_ORDERS).side_output_right_late_data(LATE_PAYMENTS)
        return interval.process(Match())

    return build


@pytest.mark.parametrize("second_first", [False, True])
@pytest.mark.parametrize(
    ("lower", "upper", "options", "joined"),
    [
        (-2, 1, {}, [8, 9, 10, 11]),
        (-2, 1, {"lower_exclusive": True}, [9, 10, 11]),
        (-2, 1, {"upper_exclusive": True}, [8, 9, 10]),
        (-2, 1, {"lower_exclusive": True, "upper_exclusive": True}, [9, 10]),
        (0, 0, {}, [10]),
        (1, 3, {}, [11, 12, 13]),
        (-3, -1, {}, [7, 8, 9]),
        (-1, 1, {"lower_exclusive": True, "upper_exclusive": True}, [10]),
    ],
)
def test_a_left_record_joins_the_right_ones_within_its_interval(
    lower: int, upper: int, options: Any, joined: list[int], second_first: bool, backend: str
) -> None:
    payments = [Payment("a", time, time) for time in range(5, 16)] + [Payment("b", 10, 99)]
    with two(within(lower, upper, **options), backend) as it:
        found = []
        if second_first:
            found += it.epoch(second=payments, watermark=-1)
        found += it.epoch(Event("a", 10, 1), second=() if second_first else payments, watermark=-1)

        assert found == [(1, time) for time in joined]
        assert it.stamps == [max(10, time) for time in joined]


def test_all_records_with_one_timestamp_join(backend: str) -> None:
    with two(within(0, 0), backend) as it:
        found = it.epoch(Event("a", 5, 1), Event("a", 5, 2), second=[Payment("a", 5, 7), Payment("a", 5, 8)])

        assert sorted(found) == [(1, 7), (1, 8), (2, 7), (2, 8)]


@pytest.mark.parametrize(
    ("lower", "upper", "left_until", "right_until"),
    [(-2, 3, 13, 12), (1, 3, 13, 10), (-3, -1, 10, 13), (0, 0, 10, 10)],
)
def test_a_record_is_kept_until_no_partner_can_come(
    lower: int, upper: int, left_until: int, right_until: int, backend: str
) -> None:
    with two(within(lower, upper), backend) as it:
        it.epoch(Event("a", 10, 1), second=[Payment("z", 10, 7)], watermark=0)
        assert it.states() == {
            "LEFT_BUFFER": {"a": {10: [Event("a", 10, 1)]}},
            "RIGHT_BUFFER": {"z": {10: [Payment("z", 10, 7)]}},
            "_timers/event": {"a": [left_until], "z": [right_until]},
        }

        for time in range(9, 14):
            it.epoch(watermark=time)
            states = it.states()
            assert ("LEFT_BUFFER" in states) is (time < left_until)
            assert ("RIGHT_BUFFER" in states) is (time < right_until)
        assert it.states() == {}


@pytest.mark.parametrize(("lower", "upper"), [(-2, 3), (1, 3), (-3, -1)])
def test_partners_are_still_there_when_the_watermark_is_just_behind(lower: int, upper: int, backend: str) -> None:
    for time in range(10 + lower, 10 + upper + 1):
        with two(within(lower, upper), backend) as it:
            it.epoch(Event("a", 10, 1), watermark=time - 1)
            assert it.epoch(second=[Payment("a", time, 7)], watermark=time - 1) == [(1, 7)]
        with two(within(lower, upper), backend) as it:
            it.epoch(second=[Payment("a", time, 7)], watermark=9)
            assert it.epoch(Event("a", 10, 1), watermark=9) == [(1, 7)]


def test_records_behind_the_watermark_are_late_and_join_nothing(backend: str) -> None:
    with two(within(-10, 10), backend, aside=[LATE_ORDERS, LATE_PAYMENTS]) as it:
        it.epoch(Event("a", 20, 1), second=[Payment("a", 20, 7)], watermark=15)

        found = it.epoch(
            *(Event("a", time, time) for time in (14, 15)),
            second=[Payment("a", time, time) for time in (14, 15)],
            watermark=15,
        )

        assert sorted(found) == [(1, 15), (15, 7), (15, 15)]
        assert it.aside(LATE_ORDERS) == [Event("a", 14, 14)]
        assert it.aside(LATE_PAYMENTS) == [Payment("a", 14, 14)]


def test_late_records_that_nothing_reads_are_dropped(backend: str) -> None:
    with two(within(-10, 10), backend) as it:
        it.epoch(watermark=15)

        assert it.epoch(Event("a", 5, 1), second=[Payment("a", 5, 7)], watermark=15) == []
        assert it.states() == {}


def test_the_end_of_input_empties_both_sides(backend: str) -> None:
    with two(within(-10, 10), backend) as it:
        it.epoch(Event("a", 20, 1), second=[Payment("b", 20, 7)])
        it.epoch(watermark=MAX_WATERMARK)

        assert it.states() == {}


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_an_interval_join_continues_from_a_savepoint(to: str, backend: str) -> None:
    keys = [f"key {n}" for n in range(10)]
    it = two(within(-5, 5), backend, parallelism=2)
    it.epoch(*(Event(key, 10, 1) for key in keys), second=[Payment(key, 20, 7) for key in keys], watermark=8)
    with it.restored(backend=to, parallelism=3) as again:
        found = again.epoch(*(Event(key, 17, 2) for key in keys), second=[Payment(key, 9, 8) for key in keys])
        assert sorted(found) == sorted([(1, 8), (2, 7)] * len(keys))
        again.epoch(watermark=30)
        assert again.states() == {}


class Aside(ProcessJoinFunction[Event, Payment, Pair]):
    def process_element(self, left: Event, right: Payment, ctx: JoinContext) -> None:
        ctx.output(PAIRS, (left.n, right.paid))


PAIRS = OutputTag("pairs", Pair)


def test_a_function_of_an_interval_join_has_side_outputs(backend: str) -> None:
    def build(first: DataStream[Any], second: DataStream[Any]) -> DataStream[Any]:
        return first.key_by("key").interval_join(second.key_by("order")).between(ms(0), ms(5)).process(Aside())

    with two(build, backend, aside=[PAIRS]) as it:
        assert it.epoch(Event("a", 1, 1), second=[Payment("a", 3, 7)]) == []
        assert it.aside(PAIRS) == [(1, 7)]


class Fails(ProcessJoinFunction[Event, Payment, Pair]):
    def process_element(self, left: Event, right: Payment, ctx: JoinContext) -> Iterator[Pair]:
        yield 1 // left.n, 1


def test_an_error_of_the_function_names_the_record(backend: str) -> None:
    def build(first: DataStream[Any], second: DataStream[Any]) -> DataStream[Any]:
        return first.key_by("key").interval_join(second.key_by("order")).between(ms(0), ms(5)).process(Fails())

    it = two(build, backend)

    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as failed:
        it.epoch(Event("a", 1, 0), second=[Payment("a", 3, 7)])

    assert failed.value.record == "Payment(order='a', at=3, paid=7)"


def test_an_interval_join_asks_the_state_once_for_each_result_and_not_for_other_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = {"get": 0, "__setitem__": 0, "items": 0}
    for name in calls:
        counted_class = HashMapMaps if name == "items" else DictMap
        original = getattr(counted_class, name)

        def counted(self: Any, *arguments: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            return original(self, *arguments)

        monkeypatch.setattr(counted_class, name, counted)
    with two(within(0, 0), "hashmap") as it:
        it.epoch(*(Event("a", at, at) for at in range(500)))
        it.epoch(*(Event("a", 1_000, 0) for _ in range(500)))
        calls.update(dict.fromkeys(calls, 0))

        found = it.epoch(second=[Payment("a", at, at) for at in range(500)])
        assert found == [(at, at) for at in range(500)]
        assert calls == {"get": 1_000, "__setitem__": 500, "items": calls["items"]}
        assert calls["items"] <= 2


@dataclass
class Bill:
    """A record that a function can change."""

    order: str
    at: int
    paid: int = 0


class Spoil(ProcessJoinFunction[Event, Bill, Pair]):
    def process_element(self, left: Event, right: Bill, ctx: Any) -> Iterator[Pair]:
        yield left.n, right.paid
        right.paid = -1


def test_a_function_that_changes_a_new_record_does_not_change_what_is_kept(backend: str) -> None:
    def build(first: DataStream[Any], second: DataStream[Any]) -> DataStream[Any]:
        return first.key_by("key").interval_join(second.key_by("order")).between(ms(-5), ms(5)).process(Spoil())

    with OneWindow(build, backend=backend, second=Bill) as it:
        it.epoch(Event("a", 1, 1), watermark=0)
        assert it.epoch(second=[Bill("a", 2, 7)], watermark=0) == [(1, 7)]
        assert it.epoch(Event("a", 3, 2), watermark=0) == [(2, 7)]


def test_records_of_one_key_and_millisecond_are_written_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    original = HashMapMaps.put

    def put(self: Any, key: Any, value: Any) -> None:
        written.append(len(value))
        original(self, key, value)

    monkeypatch.setattr(HashMapMaps, "put", put)
    with two(within(0, 0), "hashmap") as it:
        it.epoch(*(Event("a", 5, n) for n in range(500)))

    assert written == [500]
