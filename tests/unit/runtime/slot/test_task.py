"""What a slot tells about itself, what a checkpoint of it holds, and what it lets go of when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.operator_state_file import INLINE_LIMIT
from checkdam.errors import StateRequestError, StorageError, UserFunctionError
from checkdam.graph.contexts import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OnTimerContext,
    ProcessContext,
    RuntimeContext,
    SinkContext,
    SourceContext,
)
from checkdam.graph.functions import CheckpointedFunction, KeyedProcessFunction, SinkFunction, SourceFunction
from checkdam.graph.watermarks import MAX_WATERMARK, WatermarkStrategy
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.messages import EpochReport, RestorePoint, SlotSetup
from checkdam.runtime.slot.task import SlotTask
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.state.snapshot_handles import SlotSnapshot, StateFile
from checkdam.testing import Fault, FaultyStorage, ManualClock, MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.mounts import mount

ONE, TWO = CheckpointId(1), CheckpointId(2)
LIVES: list[str] = []
"""What the functions of a test went through, in order."""


class Source(SourceFunction, CheckpointedFunction):
    """Yields one record an epoch, as long as the clock of the test allows, and keeps `size` bytes of state."""

    def __init__(self, end: int = 3, size: int = 1, fails: str = "") -> None:
        self.end, self.size, self.fails = end, size, fails

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.state = ctx.operator_state_store.get_union_list_state(ListStateDescriptor("kept", str))
        self.begin = len(self.state.get())
        self._maybe_fail("initialize_state")

    def open(self, ctx: RuntimeContext) -> None:
        LIVES.append("open source")
        self._maybe_fail("open")

    def run(self, ctx: SourceContext) -> Iterator[str]:
        for number in range(self.begin, self.end):
            self.state.add("x" * self.size)
            CLOCK.advance(1)
            yield str(number)

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        if self.fails == "snapshot_state" and ctx.checkpoint_id == ONE:
            raise ValueError("no snapshot_state today")

    def close(self) -> None:
        LIVES.append("close source")
        self._maybe_fail("close")

    def _maybe_fail(self, where: str) -> None:
        if where == self.fails:
            self.fails = ""
            raise ValueError(f"no {where} today")


class Sink(SinkFunction):
    def open(self, ctx: RuntimeContext) -> None:
        LIVES.append("open sink")

    def invoke(self, value: str, ctx: SinkContext) -> None:
        LIVES.append(f"got {value}")

    def close(self) -> None:
        LIVES.append("close sink")


CLOCK = ManualClock()


@pytest.fixture(autouse=True)
def fresh_lives() -> None:
    LIVES.clear()


class OneSlot:
    """Slot 0 of 1 of a job that starts with a source function."""

    def __init__(
        self,
        source: SourceFunction | None = None,
        build: Any = None,
        *,
        storage: Any = None,
        restore: RestorePoint | None = None,
    ) -> None:
        self.storage = MemoryStorage() if storage is None else storage

        def whole(environment: StreamExecutionEnvironment, unused: DataStream[Any]) -> None:
            stream = environment.add_source(source or Source(), str).uid("source")
            (build or (lambda records: records.add_sink(Sink())))(stream)

        job = LocalJob(whole, [], self.storage, parallelism=1, record_type=str).job()
        self.task = SlotTask(
            SlotSetup(
                job_id=job.job_id,
                attempt=Attempt("try"),
                subtask=SubtaskIndex(0),
                plan=job.plan.for_slots(),
                backend=job.backend,
                last_epoch=Epoch(0),
                storage=mount(self.storage),
                restore=restore,
            ),
            clock=CLOCK,
        )
        self._levels = [level.index for level in job.plan.levels]
        self._epoch = 0

    def epoch(self) -> EpochReport:
        self._epoch += 1
        arriving: list[Any] = []
        for level in self._levels:
            run = self.task.begin_level(level, Epoch(self._epoch))
            leaving = [each for batch in arriving for each in run.process(batch)]
            arriving = leaving + list(run.finish())
        return self.task.end_epoch(Epoch(self._epoch), commit=False)

    def checkpoint(self, checkpoint_id: CheckpointId = ONE) -> SlotSnapshot:
        self.task.begin_snapshot(checkpoint_id, Epoch(self._epoch))
        return self.task.snapshot(checkpoint_id)

    def files(self) -> list[str]:
        return [each.path for each in self.storage.list("")]


def restored(slot: OneSlot, snapshot: SlotSnapshot) -> RestorePoint:
    [source] = [each for each in snapshot.operators if each.uid == "source"]
    return RestorePoint(
        directory=slot.task._setup.job_id,
        storage=mount(slot.storage),
        keyed={},
        claim=True,
        operator={OperatorUid("source"): (source.operator_state,)},
    )


def test_a_slot_says_whether_its_sources_may_have_more() -> None:
    slot = OneSlot(Source(end=2))

    assert [slot.epoch().unfinished_sources for _ in range(3)] == [True, True, False]
    assert [life for life in LIVES if life.startswith("got")] == ["got 0", "got 1"]


def test_a_checkpoint_holds_operator_state_and_tells_of_finished_sources() -> None:
    slot = OneSlot(Source(end=1))
    slot.epoch()
    [running] = slot.checkpoint(ONE).operators
    slot.epoch()
    [finished] = slot.checkpoint(TWO).operators

    assert (running.uid, running.is_finished, finished.is_finished) == ("source", False, True)
    assert running.operator_state is not None
    assert [len(offsets) for _, _, offsets in running.operator_state.offsets] == [1]


@pytest.mark.parametrize("size", [1, INLINE_LIMIT])
def test_operator_state_is_found_again_be_it_small_or_in_a_file_of_its_own(size: int) -> None:
    slot = OneSlot(Source(end=3, size=size))
    slot.epoch()
    snapshot = slot.checkpoint()
    [source] = snapshot.operators
    assert source.operator_state is not None
    content = source.operator_state.content
    assert isinstance(content, StateFile) == (size > 1)
    assert list(snapshot.new_files) == ([content] if size > 1 else [])
    assert snapshot.state_bytes >= size

    LIVES.clear()
    again = OneSlot(Source(end=3, size=size), storage=slot.storage, restore=restored(slot, snapshot))
    again.epoch()

    assert LIVES == ["open source", "open sink", "got 1"]


def test_an_aborted_checkpoint_leaves_no_file_of_operator_state() -> None:
    slot = OneSlot(Source(size=INLINE_LIMIT))
    slot.epoch()
    slot.task.begin_snapshot(ONE, Epoch(1))
    slot.task._snapshots._writing.submit(lambda: None).result()  # it is written, and nobody has asked for it
    assert len(slot.files()) == 1

    slot.task.aborted(ONE)

    slot.task.close()
    assert slot.files() == []


class Counting(KeyedProcessFunction):
    """Keeps a count per key; asks to be woken a second later."""

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: str, ctx: ProcessContext) -> None:
        self.count.update(self.count.value() + 1)
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time + 5000)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[str]:
        yield f"woken at {ctx.timer_service.current_watermark == MAX_WATERMARK}"


def counted(records: DataStream[Any]) -> Any:
    return records.key_by(lambda value: value, key_type=str).process(Counting(), str).uid("count").add_sink(Sink())


def test_files_of_a_checkpoint_that_cannot_be_written_whole_are_removed() -> None:
    storage = FaultyStorage(MemoryStorage(), at=1, fault=Fault.REFUSED)  # the first write is the operator state
    slot = OneSlot(Source(size=INLINE_LIMIT), counted, storage=storage)
    slot.epoch()

    with pytest.raises(StorageError):
        slot.checkpoint()

    assert slot.files() == []


def test_a_slot_says_when_the_next_timer_is_due() -> None:
    slot = OneSlot(Source(end=1), counted)
    report = slot.epoch()
    assert report.next_due is not None
    [held] = [each.held for each in report.operators.values() if each.held.entries]
    assert (held.entries, held.keys) == (2, 1)  # the count, and one timer
    CLOCK.advance(timedelta(seconds=5))

    assert slot.epoch().next_due is None
    assert LIVES[-1] == "got woken at False"


class AtTheEnd(Counting):
    def process_element(self, value: str, ctx: ProcessContext) -> None:
        ctx.timer_service.register_event_time_timer(10**15)


def test_event_time_is_reported_and_ends_with_the_input() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda value: 1000 + int(value))

    def build(records: DataStream[Any]) -> Any:
        keyed = records.assign_timestamps_and_watermarks(strategy).key_by(lambda value: value, key_type=str)
        return keyed.process(AtTheEnd(), str).uid("count").add_sink(Sink())

    slot = OneSlot(Source(end=2), build)
    assert [list(slot.epoch().event_time.values()) for _ in range(2)] == [[1000], [1001]]
    assert not any(life.startswith("got") for life in LIVES)
    slot.task.end_of_input()

    report = slot.epoch()

    assert [life for life in LIVES if life.startswith("got")] == ["got woken at True"] * 2
    assert list(report.event_time.values()) == [1001]


def test_a_failing_snapshot_state_costs_the_checkpoint_and_not_the_job() -> None:
    slot = OneSlot(Source(fails="snapshot_state"))
    slot.epoch()

    with pytest.raises(UserFunctionError, match=r"snapshot_state.*no snapshot_state today"):
        slot.checkpoint(ONE)

    slot.epoch()
    [source] = slot.checkpoint(TWO).operators
    assert source.operator_state is not None


def test_functions_are_closed_once_downstream_first_and_all_of_them() -> None:
    slot = OneSlot(Source(fails="close"))
    slot.epoch()
    LIVES.clear()

    with pytest.raises(UserFunctionError, match="no close today"):
        slot.task.close()
    slot.task.close()

    assert LIVES == ["close sink", "close source"]


@pytest.mark.parametrize("where", ["initialize_state", "open"])
def test_what_fails_to_open_is_closed_and_nothing_is_that_was_not_begun(where: str) -> None:
    with pytest.raises(UserFunctionError, match=f"no {where} today"):
        OneSlot(Source(fails=where))

    assert [life for life in LIVES if not life.startswith("open source")] == ["close source"]


def test_state_of_an_operator_without_a_checkpointed_function_is_carried_on() -> None:
    slot = OneSlot()
    slot.epoch()
    first = slot.checkpoint()
    plain = OneSlot(Forgetful(), storage=slot.storage, restore=restored(slot, first))
    plain.epoch()

    [source] = plain.checkpoint(TWO).operators

    assert source.operator_state == first.operators[0].operator_state


class Forgetful(SourceFunction):
    def run(self, ctx: SourceContext) -> Iterator[str]:
        yield "only"


def test_a_slot_opens_no_two_states_of_one_name() -> None:
    class Twice(Counting):
        def open(self, ctx: RuntimeContext) -> None:
            super().open(ctx)
            ctx.get_map_state(MapStateDescriptor("count", str, int))

    with pytest.raises(StateRequestError, match='"count"'):
        OneSlot(None, lambda s: s.key_by(lambda v: v, key_type=str).process(Twice(), str).uid("c").add_sink(Sink()))
