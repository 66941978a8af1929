"""A job with every kind of state, on RocksDB, whose output and state do not depend on the parallelism.

All records of a key in one batch come from one file, so they arrive in order; operators that mix keys only count.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from chaos import all_states_model as model
from chaos.all_states_model import Record
from chaos.contract import difference
from chaos.place import FILES_PER_BATCH, Place
from checkdam import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastContext,
    CheckpointedFunction,
    DataStream,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ReadOnlyContext,
    ReducingStateDescriptor,
    RocksDBStateBackend,
    RuntimeContext,
    SourceContext,
    SourceFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from checkdam.graph.operators import OP_STATE
from checkdam.state_reader import Savepoint

_NEVER = StateTtlConfig(timedelta(days=1000))
_RULES = MapStateDescriptor("rules", int, int)
_FOURTH = OutputTag("fourth", tuple[str, int])
_PAUSE_SECONDS = 0.02  # so that the source function runs for several epochs
_KEYS = 60


class Mean(AggregateFunction):
    """Keeps sum and number of the added values."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0] // accumulator[1]


class Everything(KeyedBroadcastProcessFunction[str, Record, Record, str]):
    """Emits the content of the key's states with each record, and when the key's timer fires."""

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.due = ctx.get_state(ValueStateDescriptor("due", int))
        self.numbers = ctx.get_list_state(ListStateDescriptor("numbers", int))
        self.total = ctx.get_reducing_state(ReducingStateDescriptor("total", int, lambda one, other: one + other))
        self.mean = ctx.get_aggregating_state(AggregatingStateDescriptor("mean", tuple[int, int], Mean()))
        self.rests = ctx.get_map_state(MapStateDescriptor("rests", int, int))
        self.latest = ctx.get_map_state(MapStateDescriptor("latest", int, int, ttl=_NEVER))

    def process_broadcast_element(self, value: Record, ctx: BroadcastContext[str]) -> None:
        ctx.get_broadcast_state(_RULES)[value[2] % 8] = value[2]

    def process_element(self, value: Record, ctx: ReadOnlyContext[str]) -> Iterator[str]:
        key, at, number = value
        self.count.update(self.count.value() + 1)
        kept = [*self.numbers.get(), number]
        if len(kept) > model.MOST_NUMBERS:
            self.numbers.update(kept[-2:])
        else:
            self.numbers.add(number)
        self.total.add(number)
        self.mean.add(number)
        if number % 7 == 0:
            self.rests.remove(number % 5)
        else:
            self.rests[number % 5] = self.rests.get(number % 5, 0) + 1
        self.latest[number % 3] = at
        due = self.due.value()
        if due is not None:
            ctx.timer_service.delete_event_time_timer(due)
        ctx.timer_service.register_event_time_timer(at + model.DELAY)
        self.due.update(at + model.DELAY)
        if number % 4 == 0:
            ctx.output(_FOURTH, (f"rest {number % 10}", 1))
        yield f"{self._held(key)} rules {sorted(ctx.get_broadcast_state(_RULES).items())}"

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[str]:
        yield f"{self._held(ctx.current_key)} timer {timestamp}"
        self.numbers.clear()
        self.due.clear()

    def _held(self, key: str) -> str:
        maps = f"{sorted(self.rests.items())} {sorted(self.latest.items())}"
        return f"{key} #{self.count.value()}: {list(self.numbers.get())} {self.total.get()} {self.mean.get()} {maps}"


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Buffers records in list state, and keeps the number of records in union state."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("waiting", tuple[str, int, int]))
        self.counted = ctx.operator_state_store.get_union_list_state(ListStateDescriptor("came", tuple[int, int]))
        self.waiting: list[Record] = list(self.kept.get())

    def open(self, ctx: RuntimeContext) -> None:
        self.subtask = ctx.subtask_index
        self.came = sum(count for subtask, count in self.counted.get() if subtask % ctx.parallelism == self.subtask)

    def flat_map(self, value: Record) -> list[Record]:
        self.waiting.append(value)
        self.came += 1
        if len(self.waiting) < 25:
            return []
        released, self.waiting = self.waiting, []
        return released

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.kept.update(self.waiting)
        self.counted.update([(self.subtask, self.came)])


class Partitions(SourceFunction, CheckpointedFunction):
    """Counts up in each of its partitions, which move between subtasks when the job is rescaled."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("offsets", tuple[int, int]))
        self.offsets: dict[int, int] | None = dict(self.kept.get()) if ctx.is_restored else None

    def open(self, ctx: RuntimeContext) -> None:
        if self.offsets is None:
            mine = range(ctx.subtask_index, model.PARTITIONS, ctx.parallelism)
            self.offsets = dict.fromkeys(mine, 0)

    def run(self, ctx: SourceContext) -> Iterator[tuple[str, int]]:
        assert self.offsets is not None
        for partition in self.offsets:
            while self.offsets[partition] < model.PER_PARTITION:
                self.offsets[partition] += 1
                yield f"partition {partition}", 1
                time.sleep(_PAUSE_SECONDS)

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        assert self.offsets is not None
        self.kept.update(list(self.offsets.items()))


def _parse(line: str) -> Record:
    key, at, number = line.split()
    return key, int(at), int(number)


class AllStates:
    """Keeps value, list, reducing, aggregating, map, TTL, broadcast, list, union and timer state, and a sum."""

    name = "all-states"

    def write_input(self, place: Place, rng: random.Random) -> None:
        def lines(batch: int, number: int) -> list[str]:
            first = batch * model.BATCH_MILLIS
            keys = [f"key{n}" for n in range(_KEYS) if (n + batch) % FILES_PER_BATCH == number]
            if number == 0:
                keys += [model.RULE] * 6  # rules may overwrite each other, so all rules of a batch are in one file
            return [
                f"{rng.choice(keys)} {first + rng.randrange(model.BATCH_MILLIS)} {rng.randrange(1000)}"
                for _ in range(rng.randint(0, 80))
            ]

        place.write_input(lines)

    def build(self, environment: StreamExecutionEnvironment, lines: DataStream[Any], place: Place) -> None:
        environment.set_state_backend(RocksDBStateBackend("32 MB"))
        records = lines.map(_parse, output_type=Record).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1])
        )
        rules = records.filter(lambda record: record[0] == model.RULE).broadcast(_RULES)
        keyed = records.filter(lambda record: record[0] != model.RULE).key_by(lambda record: record[0], key_type=str)
        everything = keyed.connect(rules).process(Everything(), output_type=str).uid("everything")
        everything.sink_to_files(str(place.output / "everything"))

        counted = environment.add_source(Partitions(), output_type=tuple[str, int]).uid("partitions")
        pairs = everything.get_side_output(_FOURTH).union(counted)
        sums = pairs.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("sums")
        sums.sink_to_files(str(place.output / "sums"))

        buffered = records.flat_map(Buffer(), output_type=Record).uid("buffer")
        buffered.sink_to_files(str(place.output / "buffered"))

    def output_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        course = model.course(place.read_input())
        told = Counter(record["value"] for record in place.published("everything"))
        yield from difference("output of everything", told, course.told)
        sums = Counter((record["f0"], record["f1"]) for record in place.published("sums"))
        yield from difference("output of sums", sums, course.sums)
        waiting = Counter(element for _, element in last.operator_state("buffer", "waiting"))
        released = Counter(tuple(record.values()) for record in place.published("buffered"))
        yield from difference("output of the buffer and what it holds", released + waiting, course.records)

    def final_state_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        course = model.course(place.read_input())
        yield from _unequal("the last checkpoint", _keyed_states(last), course.stages[-1])
        sums = {key: count for key, (_, count) in last.keyed_state("sums", OP_STATE)}
        yield from _unequal("the last checkpoint", {"sums": sums}, {"sums": course.final_sums})
        came = sum(count for _, (_, count) in last.operator_state("buffer", "came"))
        yield from _unequal("the last checkpoint", {"came": came}, {"came": course.records.total()})
        offsets = sorted(element for _, element in last.operator_state("partitions", "offsets"))
        expected = [(partition, model.PER_PARTITION) for partition in range(model.PARTITIONS)]
        yield from _unequal("the last checkpoint", {"offsets": offsets}, {"offsets": expected})

    def state_faults(self, place: Place, snapshot: Savepoint) -> Iterator[str]:
        stages, found = model.course(place.read_input()).stages, _keyed_states(snapshot)
        if found not in stages:
            nearest = min(stages, key=lambda stage: sum(stage[name] != found[name] for name in stage))
            yield f"{snapshot.path} is no state the job goes through"
            yield from _unequal(snapshot.path, found, nearest)


def _keyed_states(snapshot: Savepoint) -> dict[str, Any]:
    """Read the states of the operator that has the most; a state without entries is empty."""
    known = {state.name for state in snapshot.states("everything")}
    names = ("count", "due", "numbers", "total", "mean", "rests", "latest")
    found: dict[str, Any] = {
        name: dict(snapshot.keyed_state("everything", name)) if name in known else {} for name in names
    }
    timers = snapshot.timers("everything") if any(name.startswith("_timers/") for name in known) else ()
    found["timers"] = {key: timestamp for (key, _), timestamp in timers}
    found["rules"] = dict(snapshot.broadcast_state("everything", "rules")) if "rules" in known else {}
    return found


def _unequal(where: str, found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        if found[name] != value:
            yield f"{where}: {name} is {_short(found[name])}, not {_short(value)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(value)} entries)"
