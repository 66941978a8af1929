"""Timers: which fire, when, in which order, and what of them outlives the slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.runtime.slot.one_operator import OneOperator, restore_point

from checkdam.errors import StateAccessError, UserFunctionError
from checkdam.graph.contexts import OnTimerContext, OutputTag, ProcessContext, TimeDomain
from checkdam.graph.functions import KeyedProcessFunction, ProcessFunction
from checkdam.graph.operators import ProcessKind
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.testing import ManualClock, MemoryStorage


class Alarm(KeyedProcessFunction):
    """Records are orders: "key:event 5 1" registers event-time timers, "key:delete 5" deletes them, and so on."""

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        order, *times = value.partition(":")[2].split()
        timers = ctx.timer_service
        act = {
            "event": timers.register_event_time_timer,
            "delete": timers.delete_event_time_timer,
            "clock": timers.register_processing_time_timer,
            "forget": timers.delete_processing_time_timer,
        }.get(order)
        for time in times:
            assert act is not None
            act(int(time))
        if order == "say":
            yield f"{ctx.current_key} heard at {timers.current_watermark}"

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        domain = "" if ctx.time_domain is TimeDomain.EVENT_TIME else "clock "
        assert ctx.timestamp == timestamp
        yield f"{ctx.current_key} {domain}{timestamp}"


def alarm(**options: Any) -> OneOperator:
    return OneOperator(ProcessKind(Alarm()), key=lambda value: value.partition(":")[0], **options)


def test_timers_up_to_the_watermark_fire_by_time_and_then_by_registration() -> None:
    it = alarm()
    it.give("b:event 7 3", "a:event 3 9")

    assert it.advance(7) == ["b 3", "a 3", "b 7"]
    assert it.advance(8) == []
    assert it.advance(9) == ["a 9"]


def test_a_timer_of_one_key_and_time_fires_once_however_often_it_is_registered() -> None:
    it = alarm()
    it.give("a:event 5 5", "a:event 5")

    assert it.advance(5) == ["a 5"]
    assert it.advance(6) == []


def test_the_two_domains_do_not_know_each_others_timers() -> None:
    it = alarm()
    it.give(f"a:event {it.now}", f"a:clock {it.now}", f"a:delete {it.now}")

    assert it.advance() == [f"a clock {it.now}"]


def test_a_deleted_timer_does_not_fire_and_can_be_registered_again() -> None:
    it = alarm()
    it.give("a:event 5 6", "b:event 5", "a:delete 5 99")
    assert it.advance(5) == ["b 5"]
    it.give("a:delete 6", "a:event 6")

    assert it.advance(6) == ["a 6"]


def test_a_timer_in_the_past_fires_with_the_epoch_under_way() -> None:
    it = alarm()
    it.advance(100)
    it.give("a:event 5")

    assert it.advance(100) == ["a 5"]


def test_a_processing_time_timer_fires_when_the_clock_has_come_so_far() -> None:
    it = alarm()
    due = it.now + 1500
    it.give(f"a:clock {due}")
    assert it.advance(MAX_WATERMARK) == []
    assert it.process.next_due == due

    it.clock.advance(1.5)

    assert it.advance() == [f"a clock {due}"]
    assert it.process.next_due is None


def test_processing_time_timers_due_when_an_epoch_begins_fire_before_its_first_record_and_only_then() -> None:
    it = alarm()
    due = it.now + 1000
    it.give(f"a:clock {due} {due + 1000}")
    it.advance()
    it.clock.advance(1)

    assert it.give("b:say")[0] == f"a clock {due}"

    it.clock.advance(1)
    assert len(it.give("b:say")) == 1
    assert it.advance() == [f"a clock {due + 1000}"]


def test_the_watermark_that_functions_see_moves_with_advance() -> None:
    it = alarm()

    assert it.give("a:say") == [f"a heard at {-(2**63)}"]
    it.advance(70)
    assert it.give("a:say") == ["a heard at 70"]


class Chain(KeyedProcessFunction):
    """Each timer registers the one that is `step` later; the records say where to begin."""

    def __init__(self, step: int) -> None:
        self.step = step

    def process_element(self, value: str, ctx: ProcessContext) -> None:
        ctx.timer_service.register_event_time_timer(int(value))

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        ctx.timer_service.register_event_time_timer(timestamp + self.step)
        yield str(timestamp)


def chain(step: int) -> OneOperator:
    return OneOperator(ProcessKind(Chain(step)), key=lambda value: "k")


def test_a_timer_may_register_later_ones_that_fire_in_the_same_round() -> None:
    it = chain(10)
    it.give("5")

    assert it.advance(30) == ["5", "15", "25"]
    assert it.advance(35) == ["35"]


@pytest.mark.parametrize("step", [0, -1])
def test_a_timer_that_renews_itself_for_its_own_time_or_before_waits_for_the_next_round(step: int) -> None:
    it = chain(step)
    it.give("5")

    assert it.advance(30) == ["5"]
    assert it.advance(30) == [str(5 + step)]


def test_the_end_of_all_input_fires_what_is_registered_and_lets_a_periodic_timer_end() -> None:
    it = chain(10)
    it.give("5", "7")

    assert it.advance(MAX_WATERMARK) == ["5", "7"]


def test_timers_are_part_of_a_snapshot_and_go_to_the_subtask_that_owns_their_key() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    before = alarm(storage=storage, clock=clock)
    before.give(*(f"k{i}:event {i}" for i in range(40)), f"k0:clock {before.now}", "k1:delete 1")
    point = restore_point(before)

    after = [alarm(storage=storage, clock=clock, restore=point, subtask=i, parallelism=3) for i in range(3)]

    fired = [it.advance(100) for it in after]
    expected = [f"k{i} {i}" for i in range(40) if i != 1] + [f"k0 clock {before.now}"]
    assert sorted(each for some in fired for each in some) == sorted(expected)
    assert all(fired)
    assert not any(it.advance(100) for it in after)


def test_a_fired_timer_is_gone_from_the_next_snapshot() -> None:
    storage = MemoryStorage()
    before = alarm(storage=storage)
    before.give("a:event 5 8")
    before.advance(5)

    after = alarm(storage=storage, restore=restore_point(before))

    assert after.advance(10) == ["a 8"]


def test_many_timers_registered_and_deleted_leave_no_trace_in_memory() -> None:
    it = alarm()
    it.give(*(f"a:{order} {10_000 + i}" for i in range(3000) for order in ("event", "delete")), "a:event 3")

    assert it.process.timers is not None
    queue = it.process.timers.event
    assert len(queue) == 1
    assert len(queue._times) < 1100
    assert it.advance(20_000) == ["a 3"]


def test_what_a_timer_gives_has_the_timers_time_behind_an_assigner_and_none_elsewhere() -> None:
    stamped, plain = alarm(is_stamped=True), alarm()
    for it in (stamped, plain):
        it.give("a:event 5 9")

    with_times, without = stamped.process.advance(9), plain.process.advance(9)

    assert with_times is not None
    assert with_times.timestamps == [5, 9]
    assert without is not None
    assert without.timestamps is None


class Aside(Alarm):
    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        ctx.output(OutputTag("aside", str), ctx.current_key)
        yield ctx.current_key


def test_what_a_timer_of_the_clock_gives_has_no_event_time() -> None:
    it = OneOperator(
        ProcessKind(Aside()), key=lambda value: value.partition(":")[0], aside={"aside": str}, is_stamped=True
    )
    it.give(f"a:clock {it.now}", "b:event 5")

    at_the_end = it.process.advance(9)

    assert at_the_end is not None
    assert (at_the_end.rows, at_the_end.timestamps) == (["a", "b"], [None, 5])
    assert it.process.take_side_outputs()["aside"].timestamps == [None, 5]


def test_what_a_timer_of_the_clock_gives_in_front_of_an_epochs_records_leaves_them_their_timestamps() -> None:
    it = alarm(is_stamped=True)
    it.give(f"a:clock {it.now + 1000}", timestamps=[3])
    it.advance(9)
    it.clock.advance(1)

    batch = it.give_batch(["b:say", "c:say"], timestamps=[7, None])

    assert batch is not None
    assert [record.split()[0] for record in batch.rows] == ["a", "b", "c"]
    assert batch.timestamps == [None, 7, None]


class Failing(Alarm):
    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        raise ValueError("too late")


def test_a_failing_timer_names_its_key_and_time_and_leaves_no_key_behind() -> None:
    it = OneOperator(ProcessKind(Failing()), key=lambda value: value.partition(":")[0])
    it.give("some-key:event 5")

    with pytest.raises(UserFunctionError, match=r"on_timer at 5 for key 'some-key'.*too late"):
        it.advance(5)

    assert it.opened.store is not None
    with pytest.raises(StateAccessError):
        hash(it.opened.store.current_key)


class Misuse(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> None:
        times: dict[str, Any] = {"float": 1.5, "bool": True, "none": None, "huge": 2**63}
        ctx.timer_service.register_event_time_timer(times[value])

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> None:
        pass


@pytest.mark.parametrize("what", ["float", "bool", "none", "huge"])
def test_a_timer_needs_a_time(what: str) -> None:
    with pytest.raises(UserFunctionError, match=r"StateAccessError: a timer's time is .*milliseconds since 1970"):
        OneOperator(ProcessKind(Misuse()), key=str).give(what)


class WithoutOnTimer(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> None:
        ctx.timer_service.register_event_time_timer(ctx.timer_service.current_watermark)


def test_a_function_that_registers_timers_must_say_what_they_do() -> None:
    with pytest.raises(UserFunctionError, match="does not define on_timer"):
        OneOperator(ProcessKind(WithoutOnTimer()), key=str).give("a")


class WithoutKeys(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[int]:
        yield ctx.timer_service.current_processing_time
        if value == "register":
            ctx.timer_service.register_processing_time_timer(0)


def test_without_keys_there_is_a_clock_and_no_timer() -> None:
    it = OneOperator(ProcessKind(WithoutKeys()))

    assert it.give("tell") == [it.now]
    with pytest.raises(UserFunctionError, match=r"timers on a stream without keys.*key_by"):
        it.give("register")


def test_the_next_timers_are_found_without_taking_them() -> None:
    it = alarm()
    it.give("a:event 9 3 7", "b:event 5 3", "b:delete 5", "c:event 5")
    assert it.process.timers is not None
    queue = it.process.timers.event

    found = [queue.earliest(count) for count in (0, 1, 3, 100)]

    ordered = [(3, "a"), (3, "b"), (5, "c"), (7, "a"), (9, "a")]
    assert found == [[], ordered[:1], ordered[:3], ordered]
    assert it.advance(9) == [f"{key} {time}" for time, key in ordered]
