"""One operator in a slot of its own: fed by hand, its state checkpointed and restored by hand, with a clock to turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from checkdam.backends import HashMapStateBackend
from checkdam.checkpoint.operator_state_file import pack
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import KeySelector, Kind, Operator, SideOutputKind
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import OperatorTime, SnapshotContext
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.messages import RestorePoint, SlotSetup
from checkdam.runtime.slot.operator_setup import OpenOperator, SlotResources
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle
from checkdam.testing import ManualClock, MemoryStorage
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

UID = OperatorUid("the-operator")


class OneOperator:
    """Subtask `subtask` of `parallelism` of one operator, open. `record` is the type of what goes in and comes out."""

    def __init__(
        self,
        kind: Kind,
        record: Any = str,
        *,
        key: Any = None,
        aside: dict[str, Any] | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        is_stamped: bool = False,
        restore: RestorePoint | None = None,
        clock: ManualClock | None = None,
        storage: MemoryStorage | None = None,
        records_came: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.storage = storage or MemoryStorage()
        self.of = type_info(record)
        self._key = key
        selector = KeySelector(type_info(str), key) if key is not None else None
        self.operator = Operator(1, "it", kind, (0,), self.of, UID, parallelism, key=selector)
        sides = [Operator(2 + i, tag, SideOutputKind(tag), (1,), type_info(of)) for i, (tag, of) in _enumerated(aside)]
        plan = JobPlan("one", (self.operator, *sides), (), (), (), 128)
        setup = SlotSetup(
            job_id=JobId("job"),
            attempt=Attempt("try"),
            subtask=SubtaskIndex(subtask),
            plan=replace(plan, assigners={1: ()}) if is_stamped else plan,
            backend=HashMapStateBackend(),
            last_epoch=Epoch(0),
            storage=None,
            restore=restore,
        )
        event_time = EventTime(plan, self.clock)
        self.opened = OpenOperator(
            self.operator, SlotResources(setup, event_time, self.clock, self.storage, records_came)
        )
        self.process = self.opened.open()

    @property
    def function(self) -> Any:
        """The slot's own copy of the function."""
        return self.opened.operator.function

    @property
    def now(self) -> int:
        return OperatorTime(self.clock).processing_time()

    def give(self, *records: Any, side: int = 0, timestamps: Sequence[int | None] | None = None) -> list[Any]:
        return rows(self.give_batch(records, side=side, timestamps=timestamps))

    def give_batch(
        self, records: Iterable[Any], *, side: int = 0, timestamps: Sequence[int | None] | None = None
    ) -> Batch | None:
        values = list(records)
        keys = Batch(type_info(str), rows=[self._key(value) for value in values]) if self._key is not None else None
        stamps = None if timestamps is None else list(timestamps)
        return self.process(Batch(self.of, rows=values, timestamps=stamps), keys, side)

    def advance(self, watermark: int = -(2**63)) -> list[Any]:
        return rows(self.process.advance(watermark))

    def aside(self) -> dict[str, list[Any]]:
        return {tag: batch.rows for tag, batch in self.process.take_side_outputs().items()}

    def close(self) -> None:
        for closing in self.opened.closings():
            closing()

    def snapshot(self, checkpoint_id: int = 1) -> tuple[KeyedStateHandle | None, OperatorStateHandle | None]:
        parts = self.opened.snapshot_state(SnapshotContext(checkpoint_id, self.now))
        content, offsets = pack(parts)
        store = self.opened.store
        keyed = store.snapshot(CheckpointId(checkpoint_id)).write(self.storage, "shared") if store is not None else None
        return keyed, OperatorStateHandle(offsets, content) if parts else None


def restore_point(*subtasks: OneOperator) -> RestorePoint:
    """What all subtasks hold now, as a checkpoint of them hands it to the next attempt. They share a storage."""
    snapshots = [subtask.snapshot() for subtask in subtasks]
    keyed = tuple(handle for handle, _ in snapshots if handle is not None)
    return RestorePoint("", "", {UID: keyed}, claim=False, operator={UID: tuple(handle for _, handle in snapshots)})


def rows(batch: Batch | None) -> list[Any]:
    return batch.rows if batch is not None else []


def _enumerated(aside: dict[str, Any] | None) -> Iterable[tuple[int, tuple[str, Any]]]:
    return enumerate((aside or {}).items())
