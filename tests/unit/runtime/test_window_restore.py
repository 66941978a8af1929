"""Window state in a job that changes: another size, trigger, lateness, function, parallelism, backend, accumulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.windowed_jobs import BACKENDS, EPOCHS, MINUTE, UID, Finish, WindowedJob, summed

from checkdam import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    RuntimeContext,
    SlidingEventTimeWindows,
    StateTtlConfig,
    TimeWindow,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowContext,
    WindowedStream,
)
from checkdam.backends import KeyedStateBackend
from checkdam.errors import StateNotRestorableError
from checkdam.ids import JobId
from checkdam.runtime.driver.restore import from_path
from checkdam.runtime.driver.restore_check import Fate, StateReport, check_restore, is_refused
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.source_position import SourceChoices
from checkdam.state_reader import Savepoint
from checkdam.testing.gate import Gate
from checkdam.testing.manual_clock import ManualClock

ANOTHER = JobId("d" * 32)
SECOND = TimeWindow(60_000, 120_000)
SESSIONS = EventTimeSessionWindows(MINUTE)
Windows = WindowedStream[Any, Any, Any]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


class Sums(ProcessWindowFunction[str, Any, tuple[str, int, int], TimeWindow]):
    def process(
        self, key: str, ctx: WindowContext[TimeWindow], elements: Sequence[Any]
    ) -> Iterator[tuple[str, int, int]]:
        yield key, sum(element[1] for element in elements), ctx.window.max_timestamp


def processed(windows: Windows) -> DataStream[Any]:
    return windows.process(Sums(), output_type=tuple[str, int, int])


def counted(windows: Windows) -> DataStream[Any]:
    return windows.trigger(CountTrigger(100)).sum(1)


def purging(windows: Windows) -> DataStream[Any]:
    return windows.trigger(PurgingTrigger(CountTrigger(3))).sum(1)


def purging_kept_longer(windows: Windows) -> DataStream[Any]:
    return windows.trigger(PurgingTrigger(CountTrigger(100))).allowed_lateness(MINUTE).sum(1)


def continuous(windows: Windows) -> DataStream[Any]:
    return windows.trigger(ContinuousEventTimeTrigger(timedelta(seconds=30))).sum(1)


def lenient(windows: Windows) -> DataStream[Any]:
    return windows.allowed_lateness(MINUTE).sum(1)


def stopped(backend: KeyedStateBackend, finish: Finish = summed, assigner: Any = None) -> tuple[WindowedJob, str]:
    """A job that has run, and the checkpoint after its second epoch."""
    before = WindowedJob(finish, assigner, backend=backend)
    job = before.job()
    job.run()
    return before, f"{job.uri}/chk-2"


def report(checkpoint: str, job: WindowedJob) -> dict[str, StateReport]:
    """What `checkdam check` reports of the window operator."""
    reports = check_restore(job.job(job_id=ANOTHER).job().plan, from_path(checkpoint), SourceChoices())
    return {each.state: each for each in reports if each.uid == UID}


def results(checkpoint: str, job: WindowedJob, epochs: Any = EPOCHS, **options: Any) -> list[Any]:
    """User and clicks of all windows that a job emits after it was restored."""
    job.job(epochs, job_id=ANOTHER, **options).run(restore=checkpoint)
    return sorted((row["f0"], row["f1"]) for row in job.output.rows())


def left(job: WindowedJob) -> Savepoint:
    """The checkpoint of a restored job after its one epoch; the first is the one that it begins with."""
    return Savepoint.load(f"{job.job(job_id=ANOTHER).uri}/chk-4")


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(MINUTE), SlidingEventTimeWindows(MINUTE, MINUTE / 2)])
def test_an_unchanged_job_goes_on(backend: KeyedStateBackend, assigner: Any) -> None:
    before, checkpoint = stopped(backend, assigner=assigner)

    after = WindowedJob(backend=backend, assigner=assigner)

    assert {each.fate for each in report(checkpoint, after).values()} == {Fate.AS_IS}
    whole = sorted((row["f0"], row["f1"]) for row in before.output.rows())
    assert results(checkpoint, after) == whole


@pytest.mark.parametrize("finish", [summed, processed])
def test_with_another_size_state_stays_in_its_old_windows(backend: KeyedStateBackend, finish: Finish) -> None:
    _, checkpoint = stopped(backend, finish)

    after = WindowedJob(finish, TumblingEventTimeWindows(2 * MINUTE), backend=backend)

    assert {each.fate for each in report(checkpoint, after).values()} == {Fate.AS_IS}
    assert results(checkpoint, after) == [("ada", 2), ("ada", 13), ("bob", 1), ("bob", 3)]
    contents = left(after).keyed_state(UID, "window-contents")
    assert set(contents.get("bob")) == {TimeWindow(0, 60_000), TimeWindow(0, 120_000)}


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(MINUTE), SlidingEventTimeWindows(MINUTE, MINUTE)])
@pytest.mark.parametrize("finish", [counted, continuous, lenient, purging_kept_longer])
def test_windows_of_another_trigger_or_lateness_end_in_time(
    backend: KeyedStateBackend, finish: Finish, assigner: Any
) -> None:
    _, checkpoint = stopped(backend, finish, assigner)
    more = [*EPOCHS[:2], [("ada", 16, 50_000), ("ada", 16, 62_000), ("bob", 3, 50_000)]]

    after = WindowedJob(assigner=assigner, backend=backend)

    assert not is_refused(list(report(checkpoint, after).values()))
    assert results(checkpoint, after, more) == [("ada", 18), ("ada", 29), ("bob", 4)]


def test_the_state_of_another_trigger_is_carried_along_and_that_of_the_same_restored(
    backend: KeyedStateBackend,
) -> None:
    _, checkpoint = stopped(backend, counted)

    assert report(checkpoint, WindowedJob(counted, backend=backend))["count"].fate is Fate.AS_IS
    others = report(checkpoint, WindowedJob(continuous, backend=backend))
    assert (others["count"].fate, others["fire-time"].fate) == (Fate.CARRIED, Fate.NEW)
    assert not is_refused(list(others.values()))


def test_a_window_that_a_former_trigger_has_purged_emits_nothing(backend: KeyedStateBackend) -> None:
    _, checkpoint = stopped(backend, purging)
    assert set(Savepoint.load(checkpoint).keyed_state(UID, "window-contents").get("ada")) == {SECOND}

    after = WindowedJob(backend=backend)

    assert results(checkpoint, after) == [("ada", 2), ("bob", 1), ("bob", 3)]


@pytest.mark.parametrize("finish", [summed, processed])
def test_windows_restored_with_a_longer_lateness_are_cleared_when_it_is_over(
    backend: KeyedStateBackend, finish: Finish
) -> None:
    _, checkpoint = stopped(backend, finish)
    far = [*EPOCHS[:2], [("eve", 1, 10 * 60_000)]]

    after = WindowedJob(lambda windows: finish(windows.allowed_lateness(MINUTE)), backend=backend)
    assert results(checkpoint, after, far) == [("ada", 2), ("ada", 13), ("bob", 1), ("eve", 1)]

    assert set(dict(left(after).keyed_state(UID, "window-contents"))) == {("eve", TimeWindow(600_000, 660_000))}


OTHER_KINDS = {
    "sum to process": (summed, None, processed, None, "reducing state", "list state"),
    "process to sum": (processed, None, summed, None, "list state", "reducing state"),
    "time to global": (counted, None, counted, GlobalWindows(), "TimeWindow", "GlobalWindow"),
    "global to time": (counted, GlobalWindows(), counted, None, "GlobalWindow", "TimeWindow"),
    "time to sessions": (summed, None, summed, SESSIONS, "had windows that do not merge", "has windows that merge"),
    "sessions to time": (summed, SESSIONS, summed, None, "had windows that merge", "has windows that do not merge"),
    "sessions to time, record by record": (continuous, SESSIONS, continuous, None, "had windows that merge", "do not"),
    "time to sessions, record by record": (processed, None, processed, SESSIONS, "do not merge", "that merge"),
}


@pytest.mark.parametrize("case", OTHER_KINDS)
def test_windows_or_functions_of_another_kind_are_reported_and_refused(backend: KeyedStateBackend, case: str) -> None:
    old, old_assigner, new, new_assigner, was, becomes = OTHER_KINDS[case]
    _, checkpoint = stopped(backend, old, old_assigner)

    after = WindowedJob(new, new_assigner, backend=backend)

    found = report(checkpoint, after)["window-contents"]
    assert found.fate is Fate.INCOMPATIBLE
    assert found.is_refused
    assert was in found.reason
    assert becomes in found.reason
    assert "another uid" in found.reason
    with pytest.raises(StateNotRestorableError) as refusal:
        results(checkpoint, after)
    assert str(refusal.value) == found.reason
    assert not after.output.rows()


@pytest.mark.parametrize("finish", [summed, processed])
def test_sessions_keep_their_bounds_with_another_gap(backend: KeyedStateBackend, finish: Finish) -> None:
    _, checkpoint = stopped(backend, finish, EventTimeSessionWindows(MINUTE / 4))

    after = WindowedJob(finish, SESSIONS, backend=backend)

    found = report(checkpoint, after)
    assert {each.fate for each in found.values()} == {Fate.AS_IS}
    assert found["window-contents"].reason.endswith("records from now on go to windows of the program's gap")
    assert results(checkpoint, after) == [("ada", 1), ("ada", 14), ("bob", 1), ("bob", 3)]


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(MINUTE), EventTimeSessionWindows(MINUTE / 4)])
@pytest.mark.parametrize("finish", [summed, processed, continuous])
@pytest.mark.parametrize(("first", "then"), [*permutations(BACKENDS, 2)])
def test_a_canonical_savepoint_changes_backend_and_parallelism(
    first: str, then: str, finish: Finish, assigner: Any
) -> None:
    gate, place = Gate(), SavepointPlace()
    before = WindowedJob(finish, assigner, backend=BACKENDS[first])
    job = before.job(EPOCHS[:2], until=gate)
    control = job.start()
    job.heard.wait_for_epoch(2)
    savepoint = control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL).result(60)
    gate.open()
    job.join()
    whole = WindowedJob(finish, assigner)
    whole.job().run()

    after = WindowedJob(finish, assigner, backend=BACKENDS[then])
    found = results(savepoint, after, parallelism=3)

    assert found == sorted((row["f0"], row["f1"]) for row in whole.output.rows())


class Remembers(Sums):
    """Keeps the sum of a key's last window in state that expires."""

    def open(self, ctx: RuntimeContext) -> None:
        ttl = StateTtlConfig(timedelta(seconds=1))
        self.last_sum = ctx.get_state(ValueStateDescriptor("last sum", int, ttl=ttl))

    def process(
        self, key: str, ctx: WindowContext[TimeWindow], elements: Sequence[Any]
    ) -> Iterator[tuple[str, int, int]]:
        for result in super().process(key, ctx, elements):
            self.last_sum.update(result[1])
            yield result


def remembered(windows: Windows) -> DataStream[Any]:
    return windows.trigger(CountTrigger(2)).process(Remembers(), output_type=tuple[str, int, int])


def results_and_states_after(pause: timedelta, assigner: Any, backend: KeyedStateBackend) -> tuple[list[Any], Any]:
    """Let a job go on after a pause. Return what it emits, and its states by name and holder."""
    clock = ManualClock()
    before = WindowedJob(remembered, assigner, backend=backend).job(clock=clock)
    before.run()
    clock.advance(pause)
    after = WindowedJob(remembered, assigner, backend=backend)
    found = results(f"{before.uri}/chk-2", after, [*EPOCHS[:2], [("bob", 3, 40_000)]], clock=clock)
    states = left(after)
    keyed = [state.name for state in states.states(UID) if state.kind != "timer"]
    return found, {"timers": list(states.timers(UID))} | {name: dict(states.keyed_state(UID, name)) for name in keyed}


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(MINUTE), EventTimeSessionWindows(MINUTE)])
def test_windows_do_not_expire_with_other_state_while_the_job_is_down(
    backend: KeyedStateBackend, assigner: Any
) -> None:
    found, states = results_and_states_after(timedelta(0), assigner, backend)
    found_later, states_later = results_and_states_after(timedelta(days=1), assigner, backend)

    assert set(states.pop("last sum")) == {"ada", "bob"}
    assert set(states_later.pop("last sum")) == {"bob"}
    assert found_later == found == [("bob", 4)]
    assert states_later == states
    assert {"window-contents", "count"} <= set(states)


@dataclass
class Seen:
    clicks: int


@dataclass
class SeenMore:
    clicks: int
    records: int = 0


class Count(AggregateFunction[Any, Any, tuple[int, int]]):
    def __init__(self, kept: Any) -> None:
        self._kept = kept

    def create_accumulator(self) -> Any:
        return self._kept(0)

    def add(self, click: Any, accumulator: Any) -> Any:
        if isinstance(accumulator, SeenMore):
            return SeenMore(accumulator.clicks + click[1], accumulator.records + 1)
        return Seen(accumulator.clicks + click[1])

    def get_result(self, accumulator: Any) -> tuple[int, int]:
        return accumulator.clicks, getattr(accumulator, "records", -1)

    def merge(self, one: Any, other: Any) -> Any:
        raise AssertionError("nothing merges")


@pytest.mark.parametrize("makes_epochs", [True, False])
def test_an_accumulator_with_a_new_field_migrates(backend: KeyedStateBackend, makes_epochs: bool) -> None:
    def finish(kept: Any) -> Finish:
        def aggregated(windows: Windows) -> DataStream[Any]:
            if not makes_epochs:
                windows = windows.trigger(ContinuousEventTimeTrigger(timedelta(days=1)))
            return windows.aggregate(Count(kept), accumulator_type=kept, output_type=tuple[int, int])

        return aggregated

    _, checkpoint = stopped(backend, finish(Seen))

    after = WindowedJob(finish(SeenMore), backend=backend)

    assert report(checkpoint, after)["window-contents"].fate is Fate.MIGRATES
    more = [*EPOCHS[:2], [("ada", 16, 50_000)]]
    assert results(checkpoint, after, more) == [(1, 0), (2, 0), (29, 1)]
    assert left(after).keyed_state(UID, "window-contents").get("bob") == {
        TimeWindow(0, 60_000): {"clicks": 1, "records": 0}
    }
