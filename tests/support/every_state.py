"""EveryState: a job with each kind of state there is, to break, and what must hold of it whatever happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.word_count import leftovers

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.operator_state_file import unpack
from checkdam.connectors.file_sink import STAGING
from checkdam.graph.contexts import (
    BroadcastContext,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OnTimerContext,
    ReadOnlyContext,
    RuntimeContext,
)
from checkdam.graph.functions import CheckpointedFunction, FlatMapFunction, KeyedBroadcastProcessFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.storage.contract import Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.storage.subtree import subtree
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.mounts import mount
from checkdam.types.serializers import serializer_from_spec

Record = tuple[str, int]

RULES = MapStateDescriptor("rules", int, str)
RULE = "rule"  # records of this key are broadcast
PADDING = "x" * 3000  # so that operator state outgrows the metadata, and gets a file


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Hands records on, and keeps them in list state and their number in union list state."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("records", str))
        self.counted = ctx.operator_state_store.get_union_list_state(ListStateDescriptor("counts", tuple[int, int]))
        self.records = list(self.kept.get())

    def open(self, ctx: RuntimeContext) -> None:
        self.subtask = ctx.subtask_index
        self.count = sum(count for subtask, count in self.counted.get() if subtask % ctx.parallelism == self.subtask)

    def flat_map(self, value: Record) -> Iterator[Record]:
        self.records.append(f"{value[0]}-{value[1]}{PADDING}")
        self.count += 1
        yield value

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.kept.update(self.records)
        self.counted.update([(self.subtask, self.count)])


class Everything(KeyedBroadcastProcessFunction[str, Record, Record, str]):
    """Tells with each record, and when its timer is due, what all states of the key hold."""

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.numbers = ctx.get_list_state(ListStateDescriptor("numbers", int))
        self.total = ctx.get_reducing_state(ReducingStateDescriptor("total", int, lambda one, other: one + other))
        self.by_number = ctx.get_map_state(MapStateDescriptor("by number", int, int))

    def process_broadcast_element(self, value: Record, ctx: BroadcastContext[str]) -> None:
        ctx.get_broadcast_state(RULES)[value[1]] = f"rule {value[1]}"

    def process_element(self, value: Record, ctx: ReadOnlyContext[str]) -> Iterator[str]:
        self.count.update(self.count.value() + 1)
        self.numbers.add(value[1])
        self.total.add(value[1])
        self.by_number[value[1] % 3] = self.by_number.get(value[1] % 3, 0) + 1
        ctx.timer_service.register_event_time_timer(value[1] + 5)
        yield f"{self._told(value[0])} rules {sorted(ctx.get_broadcast_state(RULES).items())}"

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        yield f"{self._told(ctx.current_key)} at {timestamp}"

    def _told(self, key: str) -> str:
        entries = sorted(self.by_number.items())
        return f"{key}: {self.count.value()} {list(self.numbers.get())} {self.total.get()} {entries}"


class EveryState:
    """Runs the job over scripted epochs, each key at most once in one, so that the output knows no order."""

    def __init__(
        self,
        epochs: Iterable[Iterable[Record]],
        backend: KeyedStateBackend,
        *,
        storage: Storage | None = None,
        sink: Storage | None = None,
    ) -> None:
        self.epochs = [list(epoch) for epoch in epochs]
        self.storage = storage or MemoryStorage()
        self.sink = sink or MemoryStorage()
        self._backend = backend
        self._sink_uri = mount(self.sink)

    def job(self, **options: Any) -> LocalJob:
        """The job, as LocalJob takes it; with the same storage it is the same job."""
        return LocalJob(self.build, self.epochs, self.storage, record_type=Record, **options)

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        environment.set_state_backend(self._backend)
        timed = stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1])
        )
        buffered = timed.flat_map(Buffer(), output_type=Record).uid("buffer")
        rules = buffered.filter(lambda record: record[0] == RULE).broadcast(RULES)
        keyed = buffered.filter(lambda record: record[0] != RULE).key_by(0, key_type=str)
        told = keyed.connect(rules).process(Everything(), output_type=str).uid("everything")
        told.sink_to_files(self._sink_uri).uid("out")

    def output(self) -> Counter[str]:
        """The lines of the files that a reader sees, and how often each is there."""
        visible = [each.path for each in self.sink.list("") if not each.path.startswith(STAGING)]
        lines = [line for path in visible for line in self.sink.read(path).splitlines()]
        return Counter(str(json.loads(line)["value"]) for line in lines)

    def check_operator_state(self, checkpoint: CompletedCheckpoint) -> None:
        """Every record is in the list state of one subtask, once, and counted in union state, once."""
        found: dict[str, list[Any]] = {"records": [], "counts": []}
        [buffer] = [entry for entry in checkpoint.operators if entry.uid == "buffer"]
        for handle in buffer.operator_states.values():
            for part in unpack(handle, subtree(self.storage, JOB_ID).read):
                found[part.name] += map(serializer_from_spec(part.type).decode_one, part.elements)
        records = [f"{key}-{number}{PADDING}" for epoch in self.epochs for key, number in epoch]
        assert sorted(found["records"]) == sorted(records)
        assert sum(count for _, count in found["counts"]) == len(records)

    def leftovers(self) -> list[str]:
        return leftovers(self.storage, self.sink)
