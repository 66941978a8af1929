"""Process functions: the types of their class, their methods and their stream are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, reveal_type

from checkdam import (
    BatchContext,
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessContext,
    ProcessFunction,
    ReadOnlyContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueState,
    ValueStateDescriptor,
)

env = StreamExecutionEnvironment.get_execution_environment()


class Item(NamedTuple):
    color: str
    size: int


class Rule(NamedTuple):
    name: str
    least: int


LATE = OutputTag("late", str)
RULES = MapStateDescriptor("rules", str, Rule)
SIZE = ValueStateDescriptor("size", int, default=0)
items = env.from_collection([Item("red", 1)])
rules = env.from_collection([Rule("big", 3)])
by_color = items.key_by(lambda item: item.color)
by_size = items.key_by(lambda item: item.size)


class Grow(KeyedProcessFunction[str, Item, int]):
    def open(self, ctx: RuntimeContext) -> None:
        self.size = ctx.get_state(SIZE)

    def process_element(self, value: Item, ctx: ProcessContext[str]) -> Iterator[int]:
        reveal_type(ctx.current_key)  # R: str
        reveal_type(ctx.get_state(SIZE))  # R: ValueState[int]
        ctx.output(LATE, ctx.current_key)
        ctx.output(LATE, value.size)  # E: misc: Cannot infer value of type parameter "T" of "output"
        yield self.size.value() + value.size
        yield value.color  # E: misc: Incompatible types in "yield" (actual type "str", expected type "int")

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[int]:
        reveal_type(ctx.current_key)  # R: str
        yield timestamp


class Alarm(KeyedProcessFunction[str, Item, str]):
    def process_element(self, value: Item, ctx: ProcessContext[str]) -> None:
        ctx.timer_service.register_event_time_timer(value.size)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> list[str]:
        return [ctx.current_key]


class NoParameters(KeyedProcessFunction):  # its methods tell
    def process_element(self, value: Item, ctx: ProcessContext) -> Iterator[tuple[str, int]]:
        reveal_type(ctx.current_key)  # R: object
        yield value.color, value.size


grown = by_color.process(Grow()).uid("grow")
reveal_type(grown)  # R: DataStream[int]
reveal_type(grown.get_side_output(LATE))  # R: DataStream[str]
reveal_type(by_color.process(Alarm()))  # R: DataStream[str]
reveal_type(by_color.process(NoParameters()))  # R: DataStream[tuple[str, int]]
reveal_type(by_size.process(NoParameters(), output_type=tuple[str, int]))  # R: DataStream[tuple[str, int]]


class Sizes(KeyedBatchFunction[tuple[str, int]]):
    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        reveal_type(ctx.get_column_state("size", int))  # R: ColumnState
        reveal_type(len(batch))  # R: int
        return batch.keys, batch.sum(batch.column("size"))


class WithoutOutput(KeyedBatchFunction):
    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> None: ...


reveal_type(by_color.process_batch(Sizes()))  # R: DataStream[tuple[str, int]]
reveal_type(by_color.process_batch(WithoutOutput(), output_type=int))  # R: DataStream[int]

# -- what is wrong in a function


class WrongBatch(KeyedBatchFunction[int]):
    # E: override: supertype defines the argument type as "KeyedBatch"
    def process_batch(self, batch: Item, ctx: BatchContext) -> object:
        return None


items.process_batch(Sizes())  # E: attr-defined: "DataStream[Item]" has no attribute "process_batch"
by_color.process_batch(Grow())  # E: call-overload: No overload variant of "process_batch" of "KeyedStream" matches


class WrongElement(KeyedProcessFunction[str, Item, int]):
    # E: override: supertype defines the argument type as "Item"
    def process_element(self, value: str, ctx: ProcessContext[str]) -> Iterator[int]:
        yield len(value)


class WrongContext(KeyedProcessFunction[str, Item, int]):
    # E: override: supertype defines the argument type as "ProcessContext[str]"
    def process_element(self, value: Item, ctx: ProcessContext[int]) -> Iterator[int]:
        yield ctx.current_key


class WrongOutput(KeyedProcessFunction[str, Item, int]):
    # E: override: "Iterator[str]" of "process_element"
    def process_element(self, value: Item, ctx: ProcessContext[str]) -> Iterator[str]:
        yield ctx.current_key


class WrongKeyUse(KeyedProcessFunction[str, Item, int]):
    def process_element(self, value: Item, ctx: ProcessContext) -> Iterator[int]:
        yield ctx.current_key  # E: misc: actual type "object", expected type "int"


# -- a function on the wrong stream

by_size.process(Grow())  # E: arg-type: "Grow"; expected "KeyedProcessFunction[int, Item, int]"
rules.key_by(lambda rule: rule.name).process(Grow())  # E: arg-type: expected "KeyedProcessFunction[str, Rule, int]"
# E: arg-type: "NoParameters"; expected "KeyedProcessFunction[str, Rule, Any]"
rules.key_by(lambda rule: rule.name).process(NoParameters())
items.process(Grow())  # E: call-overload: No overload variant of "process" of "DataStream" matches
by_color.process(Grow)  # E: call-overload: No overload variant of "process" of "KeyedStream" matches


class Split(ProcessFunction[Item, str]):
    def process_element(self, value: Item, ctx: Context) -> Iterator[str]:
        yield value.color


reveal_type(items.process(Split()))  # R: DataStream[str]
rules.process(Split())  # E: arg-type: "Split"; expected "ProcessFunction[Rule, str]"
by_color.process(Split())  # E: call-overload: matches argument type "Split"

# -- two streams


class Match(KeyedBroadcastProcessFunction[str, Item, Rule, str]):
    def process_broadcast_element(self, value: Rule, ctx: BroadcastContext[str]) -> None:
        reveal_type(ctx.get_broadcast_state(RULES))  # R: MapState[str, Rule]
        ctx.get_broadcast_state(RULES)[value.name] = value
        ctx.apply_to_keyed_state(SIZE, self.shrink)
        # E: arg-type: expected "Callable[[str, ValueState[int]], object]"
        ctx.apply_to_keyed_state(SIZE, self.wrong_key)

    def process_element(self, value: Item, ctx: ReadOnlyContext[str]) -> Iterator[str]:
        reveal_type(ctx.get_broadcast_state(RULES))  # R: ReadOnlyMapState[str, Rule]
        ctx.get_broadcast_state(RULES)["a"] = Rule("a", 1)  # E: index: Unsupported target for indexed assignment
        yield ctx.current_key

    def shrink(self, key: str, size: ValueState[int]) -> None:
        size.update(size.value() - 1)

    def wrong_key(self, key: int, size: ValueState[int]) -> None: ...


class MatchAll(BroadcastProcessFunction[Item, Rule, str]):
    def process_broadcast_element(self, value: Rule, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(RULES)[value.name] = value

    def process_element(self, value: Item, ctx: ReadOnlyContext) -> Iterator[str]:
        yield value.color


class Join(KeyedCoProcessFunction[str, Item, Rule, int]):
    def process_element1(self, value: Item, ctx: ProcessContext[str]) -> Iterator[int]:
        yield value.size

    def process_element2(self, value: Rule, ctx: ProcessContext[str]) -> None: ...


everywhere = rules.broadcast(RULES)
by_name = rules.key_by(lambda rule: rule.name)
reveal_type(everywhere)  # R: BroadcastStream[Rule]
reveal_type(by_color.connect(everywhere))  # R: KeyedBroadcastConnectedStream[str, Item, Rule]
reveal_type(items.connect(everywhere))  # R: BroadcastConnectedStream[Item, Rule]
reveal_type(by_color.connect(by_name))  # R: ConnectedStreams[str, Item, Rule]
reveal_type(by_color.connect(everywhere).process(Match()).uid("match"))  # R: DataStream[str]
reveal_type(items.connect(everywhere).process(MatchAll()))  # R: DataStream[str]
reveal_type(by_color.connect(by_name).process(Join()))  # R: DataStream[int]

# E: arg-type: expected "KeyedBroadcastProcessFunction[int, Item, Rule, str]"
by_size.connect(everywhere).process(Match())
items.connect(everywhere).process(Match())  # E: call-overload: matches argument type "Match"
# E: arg-type: "KeyedBroadcastProcessFunction[str, Item, Item, str]"
by_color.connect(items.broadcast(RULES)).process(Match())
by_name.connect(by_color).process(Join())  # E: arg-type: "KeyedCoProcessFunction[str, Rule, Item, int]"
by_size.connect(by_name)  # E: arg-type: "KeyedStream[int, Rule]"
items.connect(rules)  # E: arg-type: expected "BroadcastStream[Never]"
