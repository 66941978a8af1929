"""When triggers let windows fire, with their state and timers, and what they leave behind: nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, Show, ShowAnywhere, Shown, ms

from checkdam import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DataStream,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    JobGraphError,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    UserFunctionError,
)
from checkdam.graph.watermarks import MAX_WATERMARK

TENS = TumblingEventTimeWindows(ms(10))
SECOND = timedelta(seconds=1)


def windows(trigger: Trigger[Any, Any], backend: str, assigner: Any = TENS, **options: Any) -> OneWindow:
    function: Any = ShowAnywhere() if isinstance(assigner, GlobalWindows) else Show()

    def build(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(assigner).trigger(trigger)
        return windowed.allowed_lateness(options.get("lateness", ms(0))).process(function)

    return OneWindow(build, backend=backend, is_stamped=options.get("is_stamped", True))


def numbers(fired: list[Any]) -> list[list[int]]:
    return [each[-1] for each in fired]


def test_results_of_triggers_say_whether_to_fire_and_to_purge() -> None:
    assert [(each.name, each.is_fire, each.is_purge) for each in TriggerResult] == [
        ("CONTINUE", False, False),
        ("FIRE", True, False),
        ("PURGE", False, True),
        ("FIRE_AND_PURGE", True, True),
    ]


# -- by time


def test_an_event_time_trigger_has_one_timer_and_no_state(backend: str) -> None:
    with windows(EventTimeTrigger(), backend, lateness=ms(10)) as it:
        it.epoch(Event("a", 1), Event("a", 2), watermark=0)
        assert it.states()["_timers/event_window-timers"] == {("a", TimeWindow(0, 10)): [9, 19]}

        assert len(it.epoch(watermark=9)) == 1
        assert it.states()["_timers/event_window-timers"] == {("a", TimeWindow(0, 10)): [19]}
        it.epoch(watermark=19)
        assert it.states() == {}


def test_a_processing_time_trigger_in_windows_of_event_time_fires_by_the_clock(backend: str) -> None:
    with windows(ProcessingTimeTrigger(), backend) as it:
        at = it.now + 5
        assert it.epoch(Event("a", at, 1), watermark=at) == []
        it.clock.advance(0.02)
        [fired] = it.epoch(watermark=at)
        assert fired.numbers == [1]
        it.epoch(watermark=at + 20)
        assert it.states() == {}


def test_a_processing_time_timer_of_a_window_that_has_ended_is_gone(backend: str) -> None:
    with windows(ProcessingTimeTrigger(), backend) as it:
        at = it.now + 5
        it.epoch(Event("a", at, 1), watermark=at)
        it.epoch(watermark=at + 20)

        assert it.states() == {}
        it.clock.advance(1)
        assert it.epoch() == []


def test_a_continuous_event_time_trigger_fires_at_every_multiple_of_its_interval(backend: str) -> None:
    with windows(ContinuousEventTimeTrigger(ms(4)), backend) as it:
        assert it.epoch(Event("a", 5, 1), watermark=0) == []
        assert it.states()["fire-time"] == {("a", TimeWindow(0, 10)): 8}
        assert it.epoch(Event("a", 1, 2), watermark=7) == []
        assert numbers(it.epoch(watermark=8)) == [[1, 2]]
        assert it.states()["fire-time"] == {("a", TimeWindow(0, 10)): 9}  # not beyond the end of the window
        assert numbers(it.epoch(Event("a", 9, 3), watermark=9)) == [[1, 2, 3]]
        assert it.states() == {}


def test_a_continuous_event_time_trigger_fires_once_for_each_interval_that_an_epoch_passes(backend: str) -> None:
    with windows(ContinuousEventTimeTrigger(ms(3)), backend) as it:
        assert len(it.epoch(Event("a", 0, 1), watermark=MAX_WATERMARK)) == 3  # at 3, 6 and 9, which is the end
        assert it.states() == {}


def test_a_continuous_event_time_trigger_fires_with_each_late_record(backend: str) -> None:
    with windows(ContinuousEventTimeTrigger(ms(3)), backend, lateness=ms(10)) as it:
        it.epoch(Event("a", 0, 1), watermark=9)
        assert numbers(it.epoch(Event("a", 1, 2), Event("a", 2, 3), watermark=9)) == [[1, 2], [1, 2, 3]]
        it.epoch(watermark=19)
        assert it.states() == {}


def test_a_continuous_event_time_trigger_fires_in_global_windows_until_the_end_of_input(backend: str) -> None:
    with windows(ContinuousEventTimeTrigger(ms(10)), backend, GlobalWindows()) as it:
        assert it.epoch(Event("a", 5, 1), watermark=9) == []
        assert numbers(it.epoch(watermark=35)) == [[1], [1], [1]]  # at 10, 20 and 30
        assert it.states()["fire-time"] == {("a", GlobalWindow()): 40}
        assert numbers(it.epoch(watermark=MAX_WATERMARK)) == [[1], [1]]  # at 40, and at the end


def test_a_continuous_processing_time_trigger_fires_at_every_multiple_of_its_interval(backend: str) -> None:
    tens = TumblingProcessingTimeWindows(timedelta(seconds=10))
    with windows(ContinuousProcessingTimeTrigger(4 * SECOND), backend, tens, is_stamped=False) as it:
        began = it.now
        it.epoch(Event("a", 0, 1))
        assert it.states()["fire-time"] == {("a", TimeWindow(began, began + 10_000)): began + 4_000}
        it.clock.advance(4)
        assert it.epoch(Event("a", 0, 2)) == []
        it.clock.advance(0.001)
        assert numbers(it.epoch(Event("a", 0, 3))) == [[1, 2]]
        it.clock.advance(4.999)
        assert numbers(it.epoch()) == [[1, 2, 3]]  # at 8
        it.clock.advance(1)
        assert numbers(it.epoch()) == [[1, 2, 3]]  # at the end
        assert it.states() == {}


def test_merged_sessions_by_the_clock_keep_the_earliest_time_of_a_continuous_trigger(backend: str) -> None:
    sessions = ProcessingTimeSessionWindows(timedelta(seconds=10))
    with windows(ContinuousProcessingTimeTrigger(4 * SECOND), backend, sessions, is_stamped=False) as it:
        began = it.now
        it.epoch(Event("a", 0, 1))
        it.clock.advance(2)
        it.epoch(Event("a", 0, 2))
        assert it.states()["fire-time"] == {("a", TimeWindow(began, began + 12_000)): began + 4_000}

        it.clock.advance(2.001)
        assert numbers(it.epoch()) == [[1, 2]]
        it.clock.advance(60)
        assert numbers(it.epoch()) == [[1, 2]] * 2  # at 8, and at the end
        assert it.states() == {}


# -- by count


def test_a_count_trigger_counts_anew_after_it_has_fired(backend: str) -> None:
    with windows(CountTrigger(2), backend, GlobalWindows()) as it:
        assert numbers(it.epoch(*(Event("a", 0, n) for n in range(5)), Event("b", 0, 9))) == [[0, 1], [0, 1, 2, 3]]
        assert it.states()["count"] == {("a", GlobalWindow()): 1, ("b", GlobalWindow()): 1}


def test_a_purging_trigger_purges_whenever_the_other_fires(backend: str) -> None:
    with windows(PurgingTrigger(CountTrigger(2)), backend, GlobalWindows()) as it:
        assert numbers(it.epoch(*(Event("a", 0, n) for n in range(5)))) == [[0, 1], [2, 3]]
    with windows(PurgingTrigger(ContinuousEventTimeTrigger(ms(4))), backend) as it:
        it.epoch(Event("a", 0, 1), watermark=0)
        assert numbers(it.epoch(Event("a", 5, 2), watermark=4)) == [[1, 2]]
        assert numbers(it.epoch(Event("a", 6, 3), watermark=9)) == [[3]]
        assert it.states() == {}
    with windows(PurgingTrigger(ProcessingTimeTrigger()), backend, TumblingProcessingTimeWindows(SECOND)) as it:
        it.epoch(Event("a", 0, 1))
        it.clock.advance(1)
        assert numbers(it.epoch()) == [[1]]
        assert it.states() == {}


# -- by difference


def test_a_delta_trigger_fires_when_a_record_differs_enough_from_the_last_that_fired(backend: str) -> None:
    trigger = DeltaTrigger(2, lambda last, new: new.n - last.n, Event)
    with windows(trigger, backend, GlobalWindows()) as it:
        assert numbers(it.epoch(*(Event("a", 0, n) for n in (1, 3, 4, 5, 7)))) == [[1, 3, 4], [1, 3, 4, 5, 7]]
        assert it.states()["last-element"] == {("a", GlobalWindow()): Event("a", 0, 7)}


def test_a_delta_trigger_leaves_nothing_behind(backend: str) -> None:
    with windows(DeltaTrigger(2, lambda last, new: new.n - last.n, Event), backend) as it:
        it.epoch(Event("a", 1, 1), watermark=0)
        assert it.epoch(watermark=9) == []
        assert it.states() == {}


# -- with a timeout


def test_a_timeout_fires_after_the_first_record_unless_the_other_trigger_has(backend: str) -> None:
    with windows(ProcessingTimeoutTrigger(CountTrigger(3), SECOND), backend, GlobalWindows()) as it:
        began = it.now
        it.epoch(Event("a", 0, 1))
        it.clock.advance(0.6)
        it.epoch(Event("a", 0, 2))
        assert it.states()["timeout"] == {("a", GlobalWindow()): began + 1_000}
        it.clock.advance(0.4)
        assert it.epoch() == []
        it.clock.advance(0.001)
        assert numbers(it.epoch()) == [[1, 2]]
        assert set(it.states()) == {"window-contents"}  # the count is cleared, too

        assert numbers(it.epoch(*(Event("a", 0, n) for n in (3, 4, 5)))) == [[1, 2, 3, 4, 5]]
        assert set(it.states()) == {"window-contents"}
        it.clock.advance(60)
        assert it.epoch() == []


def test_a_timeout_may_begin_anew_with_each_record(backend: str) -> None:
    trigger = ProcessingTimeoutTrigger(CountTrigger(9), SECOND, reset_on_record=True)
    with windows(trigger, backend, GlobalWindows()) as it:
        it.epoch(Event("a", 0, 1))
        it.clock.advance(0.6)
        it.epoch(Event("a", 0, 2))
        it.clock.advance(0.6)
        assert it.epoch() == []
        it.clock.advance(0.401)
        assert numbers(it.epoch()) == [[1, 2]]


def test_a_timeout_may_leave_the_state_of_the_other_trigger(backend: str) -> None:
    trigger = ProcessingTimeoutTrigger(CountTrigger(3), SECOND, clear_on_timeout=False)
    with windows(trigger, backend, GlobalWindows()) as it:
        it.epoch(Event("a", 0, 1), Event("a", 0, 2))
        it.clock.advance(1.001)
        assert numbers(it.epoch()) == [[1, 2]]
        assert it.states()["count"] == {("a", GlobalWindow()): 2}
        assert numbers(it.epoch(Event("a", 0, 3))) == [[1, 2, 3]]


def test_a_timeout_of_a_purging_trigger_fires_without_purging_as_the_other_did_not_fire(backend: str) -> None:
    with windows(ProcessingTimeoutTrigger(PurgingTrigger(CountTrigger(3)), SECOND), backend, GlobalWindows()) as it:
        it.epoch(Event("a", 0, 1))
        it.clock.advance(1.001)
        assert numbers(it.epoch()) == [[1]]
        assert numbers(it.epoch(*(Event("a", 0, n) for n in (2, 3, 4)))) == [[1, 2, 3, 4]]
        assert it.states() == {}


def test_a_timeout_ends_with_its_window(backend: str) -> None:
    with windows(ProcessingTimeoutTrigger(EventTimeTrigger(), SECOND), backend) as it:
        it.epoch(Event("a", 1, 1), watermark=0)
        assert numbers(it.epoch(watermark=9)) == [[1]]
        assert it.states() == {}
        it.clock.advance(2)
        assert it.epoch() == []


# -- never


def test_a_trigger_that_never_fires_still_lets_windows_end(backend: str) -> None:
    with windows(NeverTrigger(), backend) as it:
        it.epoch(Event("a", 1, 1), watermark=0)
        assert it.epoch(watermark=9) == []
        assert it.states() == {}


# -- merging


@pytest.mark.parametrize(
    ("trigger", "can_merge"),
    [
        (EventTimeTrigger(), True),
        (ProcessingTimeTrigger(), True),
        (ContinuousEventTimeTrigger(ms(1)), True),
        (ContinuousProcessingTimeTrigger(ms(1)), True),
        (CountTrigger(1), True),
        (NeverTrigger(), True),
        (PurgingTrigger(CountTrigger(1)), True),
        (PurgingTrigger(DeltaTrigger(1, lambda last, new: 0, int)), False),
        (DeltaTrigger(1, lambda last, new: 0, int), False),
        (ProcessingTimeoutTrigger(CountTrigger(1), ms(1)), False),
    ],
)
def test_triggers_say_whether_they_can_merge(trigger: Trigger[Any, Any], can_merge: bool) -> None:
    assert trigger.can_merge() is can_merge


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger(),
        ProcessingTimeTrigger(),
        ContinuousEventTimeTrigger(ms(3)),
        ContinuousProcessingTimeTrigger(ms(3)),
        CountTrigger(3),
        NeverTrigger(),
        PurgingTrigger(CountTrigger(3)),
        PurgingTrigger(EventTimeTrigger()),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
@pytest.mark.parametrize("lateness", [ms(0), ms(7)])
def test_nothing_is_left_of_sessions_that_merged_and_ended(
    trigger: Trigger[Any, Any], lateness: timedelta, backend: str
) -> None:
    with windows(trigger, backend, EventTimeSessionWindows(ms(10)), lateness=lateness) as it:
        it.epoch(Event("a", 0, 1), Event("a", 16, 2), Event("b", 3, 3), watermark=-1)
        it.epoch(Event("a", 8, 4), Event("a", 60, 5), watermark=20)
        it.clock.advance(60)
        it.epoch(watermark=21)
        it.epoch(watermark=100)

        assert it.states() == {}


# -- of one's own


class Unfinished(Trigger[Event, TimeWindow]):
    pass


class Wrong(Trigger[Event, TimeWindow]):
    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> Any:
        return None


def test_a_trigger_must_define_on_element(backend: str) -> None:
    it = windows(Unfinished(), backend)

    with pytest.raises(UserFunctionError, match=r"Unfinished must define on_element\(value, timestamp, window, ctx\)"):
        it.epoch(Event("a", 1))


def test_a_trigger_that_returns_something_else_is_told_so(backend: str) -> None:
    it = windows(Wrong(), backend)

    with pytest.raises(UserFunctionError, match="Wrong returned None, which is not a TriggerResult"):
        it.epoch(Event("a", 1))


def test_by_default_a_trigger_does_nothing_when_time_passes(backend: str) -> None:
    with windows(OnlyFirst(), backend) as it:
        assert numbers(it.epoch(Event("a", 1, 1), Event("a", 2, 2), watermark=0)) == [[1]]
        it.clock.advance(10)
        assert it.epoch(watermark=9) == []
        assert it.states() == {}


class OnlyFirst(Trigger[Event, TimeWindow]):
    """Fires with the first record; its timers lead to nothing."""

    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.start + 5)
        ctx.register_processing_time_timer(ctx.current_processing_time + 5)
        return TriggerResult.FIRE if value.n == 1 else TriggerResult.CONTINUE


def test_the_timers_of_a_trigger_are_by_window(backend: str) -> None:
    with windows(Halves(), backend) as it:
        it.epoch(Event("a", 1, 1), Event("b", 2, 2), Event("a", 12, 3), watermark=0)

        assert it.epoch(watermark=5) == [Shown("a", 0, 10, [1]), Shown("b", 0, 10, [2])]
        assert it.epoch(watermark=15) == [Shown("a", 10, 20, [3])]


class Halves(Trigger[Event, TimeWindow]):
    """Fires in the middle of a window."""

    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.start + 5)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE if time == window.start + 5 else TriggerResult.CONTINUE


# -- refused


@pytest.mark.parametrize("count", [0, -3, 2.0, True, None])
def test_a_count_is_a_positive_whole_number(count: Any) -> None:
    with pytest.raises(JobGraphError) as refused:
        CountTrigger(count)

    assert refused.value.message == f"the count of a trigger must be a whole number of at least 1, not {count!r}"


@pytest.mark.parametrize("kind", [ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger])
def test_an_interval_is_at_least_a_millisecond(kind: Any) -> None:
    with pytest.raises(JobGraphError, match="the interval of a trigger must be at least one millisecond, not 0:00:00"):
        kind(ms(0))


def test_arguments_of_the_other_triggers_are_checked() -> None:
    with pytest.raises(JobGraphError, match="the timeout of a trigger must be at least one millisecond, not 0:00:00"):
        ProcessingTimeoutTrigger(CountTrigger(1), ms(0))
    with pytest.raises(JobGraphError, match=r"DeltaTrigger\(\) takes a function of two records, not 'no'"):
        DeltaTrigger(1, "no", int)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda given: PurgingTrigger(given), "PurgingTrigger()"),
        (lambda given: ProcessingTimeoutTrigger(given, ms(1)), "ProcessingTimeoutTrigger()"),
    ],
)
def test_a_trigger_around_another_takes_one(make: Any, call: str) -> None:
    with pytest.raises(JobGraphError) as refused:
        make(EventTimeTrigger)
    assert refused.value.message == f"{call} takes a Trigger, not {EventTimeTrigger!r}"
    assert refused.value.hint == "Make one: EventTimeTrigger()."

    with pytest.raises(JobGraphError) as refused:
        make(10)
    assert refused.value.message == f"{call} takes a Trigger, not 10"
    assert refused.value.hint == "Write trigger=CountTrigger(10), or subclass Trigger."
