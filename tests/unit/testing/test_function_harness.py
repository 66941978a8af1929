"""The harness: one function of a user, in real slots, driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam import (
    AggregateFunction,
    BroadcastContext,
    BroadcastProcessFunction,
    CheckpointedFunction,
    FilterFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JobGraphError,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessContext,
    ProcessFunction,
    ReadOnlyContext,
    ReduceFunction,
    RuntimeContext,
    SinkContext,
    SinkFunction,
    SlotLostError,
    SourceContext,
    SourceFunction,
    StateNotRestorableError,
    StateTtlConfig,
    UserFunctionError,
    ValueStateDescriptor,
)
from checkdam.testing import FunctionHarness, MemoryStorage
from checkdam.testing.local_job import LocalJob

BACKENDS = ["hashmap", "rocksdb"]
NOW = datetime(2024, 1, 1, tzinfo=UTC)
NOW_MS = 1_704_067_200_000


class Visits(KeyedProcessFunction):
    """Counts visits in each kind of state, and tells a user who was silent; late visits go aside."""

    LATE = OutputTag("late", str)

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.times = ctx.get_list_state(ListStateDescriptor("times", int))
        self.pages = ctx.get_map_state(MapStateDescriptor("pages", str, int))

    def process_element(self, visit: tuple[str, str], ctx: ProcessContext) -> Iterator[str]:
        user, page = visit
        self.count.update(self.count.value() + 1)
        self.times.add(ctx.timestamp or 0)
        self.pages[page] = self.pages.get(page, 0) + 1
        if ctx.timestamp is None:
            ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time + 60_000)
        elif ctx.timestamp <= ctx.timer_service.current_watermark:
            ctx.output(self.LATE, user)
        else:
            ctx.timer_service.register_event_time_timer(ctx.timestamp + 10)
        yield f"{user} {self.count.value()}"

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[str]:
        yield f"{ctx.current_key} silent at {timestamp} ({ctx.time_domain.name})"


def visits(**options: Any) -> FunctionHarness:
    given = {"key": 0, "output_type": str, "side_outputs": [Visits.LATE], "now": NOW, **options}
    return FunctionHarness(Visits(), tuple[str, str], **given)


@pytest.mark.parametrize("backend", BACKENDS)
def test_records_go_in_and_what_the_function_gives_comes_out(backend: str) -> None:
    with visits(backend=backend) as harness:
        assert harness.send(("ada", "home")) == ["ada 1"]
        assert harness.send(("ada", "cart"), ("bob", "home")) == ["ada 2", "bob 1"]

        assert harness.output == ["ada 1", "ada 2", "bob 1"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_of_each_kind_is_read_by_key(backend: str) -> None:
    with visits(backend=backend) as harness:
        harness.send(("ada", "home"), ("ada", "home"), ("bob", "cart"), timestamp=7)

        assert harness.state("count", "ada") == 2
        assert harness.state("times", "ada") == [7, 7]
        assert harness.state("pages", "ada") == {"home": 2}
        assert harness.state("count", "eve") is None
        assert harness.states("count") == {"ada": 2, "bob": 1}


def test_state_can_be_read_before_anything_was_sent() -> None:
    with visits() as harness:
        assert harness.state("count", "ada") is None


def test_the_watermark_fires_timers_of_event_time_and_makes_records_late() -> None:
    with visits() as harness:
        harness.send(("ada", "home"), timestamp=100)
        assert harness.timers() == [("ada", "event time", 110)]

        assert harness.advance_watermark(109) == []
        assert harness.advance_watermark(110) == ["ada silent at 110 (EVENT_TIME)"]
        harness.send(("bob", "home"), timestamp=110)

        assert harness.side_output(Visits.LATE) == ["bob"]
        assert harness.timers() == []


def test_a_watermark_is_not_moved_by_records() -> None:
    with visits() as harness:
        harness.send(("ada", "home"), timestamp=1_000_000)

        assert harness.send(("bob", "home"), timestamp=5) == ["bob 1"]
        assert harness.side_output(Visits.LATE) == []


def test_times_may_be_datetimes() -> None:
    with visits() as harness:
        harness.send(("ada", "home"), timestamp=NOW)

        assert harness.advance_watermark(NOW + timedelta(milliseconds=10)) == [
            f"ada silent at {NOW_MS + 10} (EVENT_TIME)"
        ]


def test_processing_time_passes_only_when_it_is_told_to() -> None:
    with visits() as harness:
        harness.send(("ada", "home"))
        assert harness.processing_time == NOW_MS

        assert harness.advance_processing_time(timedelta(seconds=59)) == []
        assert harness.advance_processing_time(1) == [f"ada silent at {NOW_MS + 60_000} (PROCESSING_TIME)"]
        assert harness.processing_time == NOW_MS + 60_000


def test_the_end_of_the_input_fires_every_timer_of_event_time() -> None:
    with visits() as harness:
        harness.send(("ada", "home"), timestamp=100)

        assert harness.end_of_input() == ["ada silent at 110 (EVENT_TIME)"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("restored_on", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_snapshot_is_restored_on_either_backend_and_at_another_parallelism(
    backend: str, restored_on: str, parallelism: int
) -> None:
    users = [f"user{n}" for n in range(20)]
    with visits(backend=backend) as harness:
        harness.send(*((user, "home") for user in users), timestamp=100)
        snapshot = harness.snapshot()
        harness.send(("user0", "home"), timestamp=100)  # not in the snapshot

        with harness.restored(snapshot, backend=restored_on, parallelism=parallelism) as again:
            assert again.states("count") == dict.fromkeys(users, 1)
            assert again.send(("user0", "cart"), timestamp=100) == ["user0 2"]
            assert len(again.advance_watermark(110)) == len(users)

        assert harness.state("count", "user0") == 2


def test_event_time_goes_on_where_the_snapshot_was_taken() -> None:
    with visits() as harness:
        harness.advance_watermark(500)

        with harness.restored(harness.snapshot(), parallelism=2) as again:
            again.send(("ada", "home"), timestamp=400)

            assert again.side_output(Visits.LATE) == ["ada"]


class FewerStates(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", str))

    def process_element(self, visit: tuple[str, str], ctx: ProcessContext) -> Iterator[str]:
        yield str(self.count.value())


def test_another_version_of_the_function_meets_the_state_of_the_first() -> None:
    with visits() as harness:
        harness.send(("ada", "home"))
        snapshot = harness.snapshot()

        with pytest.raises(StateNotRestorableError):
            harness.restored(snapshot, FewerStates())


def test_a_savepoint_of_a_whole_job_is_restored_by_uid(tmp_path: Path) -> None:
    job = LocalJob(
        lambda env, stream: stream.key_by(0).process(Visits(), output_type=str).uid("visits").print(),
        [[("ada", "home"), ("ada", "cart")]],
        MemoryStorage(),
    )
    job.run()

    with visits(uid="visits", restore=f"{job.uri}/chk-{job.checkpoint().checkpoint_id}") as harness:
        assert harness.send(("ada", "home")) == ["ada 3"]


def test_a_snapshot_is_a_savepoint_that_the_state_reader_opens() -> None:
    with visits() as harness:
        harness.send(("ada", "home"))

        assert dict(harness.snapshot().savepoint().keyed_state("function", "count")) == {"ada": 1}


def test_ttl_follows_the_clock_of_the_harness() -> None:
    class Remembers(KeyedProcessFunction):
        def open(self, ctx: RuntimeContext) -> None:
            ttl = StateTtlConfig(timedelta(minutes=1))
            self.last = ctx.get_state(ValueStateDescriptor("last", str, ttl=ttl))

        def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
            yield str(self.last.value())
            self.last.update(value)

    with FunctionHarness(Remembers(), str, key=lambda value: "all", key_type=str, output_type=str) as harness:
        harness.send("a")
        assert harness.send("b") == ["a"]
        harness.advance_processing_time(timedelta(minutes=2))

        assert harness.send("c") == ["None"]


class Fails(MapFunction):
    def map(self, value: int) -> int:
        return 10 // value


def test_what_the_function_raises_is_raised_and_the_slot_is_lost_as_in_a_job() -> None:
    harness = FunctionHarness(Fails(), int)
    snapshot = harness.snapshot()

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        harness.send(0)

    with pytest.raises(SlotLostError):
        harness.send(1)
    assert harness.restored(snapshot).send(5) == [2]


# -- other kinds of functions ---------------------------------------------------------------------------------------


class Upper(ProcessFunction):
    SHORT = OutputTag("short", str)

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        if len(value) < 2:
            ctx.output(self.SHORT, value)
        yield value.upper()


def test_a_process_function_without_keys() -> None:
    with FunctionHarness(Upper(), str, output_type=str, side_outputs=[Upper.SHORT], parallelism=2) as harness:
        assert sorted(harness.send("a", "bc")) == ["A", "BC"]
        assert harness.side_output(Upper.SHORT) == ["a"]


class Positive(FilterFunction):
    def filter(self, value: int) -> bool:
        return value > 0


class Longest(ReduceFunction):
    def reduce(self, one: str, other: str) -> str:
        return max(one, other, key=len)


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


def test_functions_of_one_method() -> None:
    assert FunctionHarness(str.split, str, output_type=str).send("to be") == ["to", "be"]
    assert FunctionHarness(Positive(), int).send(1, -1, 2) == [1, 2]
    assert FunctionHarness(Longest(), str, key=lambda _: 0, key_type=int).send("a", "abc", "ab") == ["a", "abc", "abc"]
    assert FunctionHarness(Mean(), int, key=lambda _: 0, key_type=int).send(1, 2) == [1.0, 1.5]


class Joined(KeyedCoProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.name = ctx.get_state(ValueStateDescriptor("name", str))

    def process_element1(self, value: tuple[int, str], ctx: ProcessContext) -> None:
        self.name.update(value[1])

    def process_element2(self, value: int, ctx: ProcessContext) -> Iterator[str]:
        yield f"{value} is {self.name.value()}"


def test_a_co_process_function_has_two_inputs_and_one_state() -> None:
    with FunctionHarness(
        Joined(), tuple[int, str], key=0, second_type=int, second_key=lambda n: n, key_type=int, output_type=str
    ) as harness:
        assert harness.send((1, "ada")) == []

        assert harness.send_second(1, 2) == ["1 is ada", "2 is None"]


RULES = MapStateDescriptor("rules", str, int)


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_broadcast_element(self, value: tuple[str, int], ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(RULES)[value[0]] = value[1]

    def process_element(self, value: str, ctx: ReadOnlyContext) -> Iterator[str]:
        yield f"{value} {ctx.get_broadcast_state(RULES).get(value)}"


class Rules(BroadcastProcessFunction):
    def process_broadcast_element(self, value: tuple[str, int], ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(RULES)[value[0]] = value[1]

    def process_element(self, value: str, ctx: ReadOnlyContext) -> Iterator[str]:
        yield f"{value} {ctx.get_broadcast_state(RULES).get(value)}"


@pytest.mark.parametrize(("function", "key"), [(KeyedRules(), lambda value: value), (Rules(), None)])
def test_broadcast_records_reach_every_subtask_and_every_restored_one(function: Any, key: Any) -> None:
    with FunctionHarness(
        function,
        str,
        key=key,
        key_type=str if key else None,
        second_type=tuple[str, int],
        broadcast=[RULES],
        output_type=str,
        parallelism=2,
    ) as harness:
        harness.send_second(("a", 1), ("b", 2))
        assert sorted(harness.send("a", "b", "c")) == ["a 1", "b 2", "c None"]
        assert harness.broadcast_state("rules") == {"a": 1, "b": 2}

        with harness.restored(harness.snapshot(), parallelism=3) as again:
            assert sorted(again.send("a", "b")) == ["a 1", "b 2"]


class Counter(SourceFunction, CheckpointedFunction):
    def __init__(self, end: int) -> None:
        self.end = end

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.next = next(iter(self.kept.get()), 0)

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.kept.update([self.next])

    def run(self, ctx: SourceContext) -> Iterator[int]:
        while self.next < self.end:
            self.next += 1
            yield self.next


def test_a_source_function_is_read_and_goes_on_where_it_was() -> None:
    with FunctionHarness(Counter(5)) as harness:
        snapshot = harness.snapshot()
        assert harness.read() == [1, 2, 3, 4, 5]
        assert harness.operator_state("next") == [5]

        with harness.restored(harness.snapshot(), Counter(7)) as finished:
            assert finished.read() == []  # that it has finished is state, too
        with harness.restored(snapshot, Counter(3)) as again:
            assert again.read() == [1, 2, 3]


class Shelf(SinkFunction, CheckpointedFunction):
    def __init__(self) -> None:
        self.held: list[str] = []

    def invoke(self, value: str, ctx: SinkContext) -> None:
        self.held.append(value)

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("held", str))
        self.held = list(self.kept.get())

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.kept.update(self.held)


def test_a_sink_function_is_looked_into_and_its_list_state_is_dealt_out_anew() -> None:
    shelf = Shelf()
    with FunctionHarness(shelf, str) as harness:
        harness.send("a", "b", "c", "d")
        assert harness.function().held == ["a", "b", "c", "d"]
        assert shelf.held == []  # the slot has a copy

        with harness.restored(harness.snapshot(), parallelism=2) as again:
            assert [again.function(subtask).held for subtask in (0, 1)] == [["a", "b"], ["c", "d"]]


# -- wrong use ------------------------------------------------------------------------------------------------------


def test_wrong_use_says_what_to_do() -> None:
    with pytest.raises(JobGraphError, match="record_type"):
        FunctionHarness(Upper())
    with pytest.raises(JobGraphError, match="no second input"):
        FunctionHarness(Upper(), str, output_type=str).send_second("a")
    with pytest.raises(JobGraphError, match="no input"):
        FunctionHarness(Counter(1)).send(1)
    with pytest.raises(JobGraphError, match="side_outputs"):
        FunctionHarness(Upper(), str, output_type=str).side_output(Upper.SHORT)
    with pytest.raises(JobGraphError, match="key"):
        FunctionHarness(Mean(), int)
    with pytest.raises(JobGraphError, match="key_by"):
        FunctionHarness(Visits(), tuple[str, str], output_type=str)
