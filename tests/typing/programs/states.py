"""State: a handle has the type of its descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import reveal_type

from checkdam import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    FunctionInitializationContext,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OutputTag,
    PickleType,
    ReduceFunction,
    ReducingStateDescriptor,
    RichFunction,
    RuntimeContext,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)

TTL = StateTtlConfig(timedelta(hours=1))
COUNT = ValueStateDescriptor("count", int, default=0)
reveal_type(COUNT)  # R: ValueStateDescriptor[int]


@dataclass
class Model:
    weight: float


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Longer(ReduceFunction[str]):
    def reduce(self, accumulated: str, value: str) -> str:
        return max(accumulated, value, key=len)


def join(one: str, two: str) -> str:
    return one + two


class Asks(RichFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(COUNT)
        self.last = ctx.get_state(ValueStateDescriptor("last", str))
        self.kept: ValueState[str | None] = ctx.get_state(ValueStateDescriptor("kept", str, default="", ttl=TTL))
        self.range: ValueState[tuple[int, int]] = ctx.get_state(
            ValueStateDescriptor("range", tuple[int, int], default=(0, 0))
        )
        self.model = ctx.get_state(ValueStateDescriptor("model", PickleType(Model)))
        self.maybe = ctx.get_state(ValueStateDescriptor("maybe", int | None))
        self.numbers = ctx.get_list_state(ListStateDescriptor("numbers", int))
        self.texts: ListState[str] = ctx.get_list_state(ListStateDescriptor("texts", str, ttl=TTL))
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", int, lambda one, two: one + two))
        self.longest = ctx.get_reducing_state(ReducingStateDescriptor("longest", str, Longer()))
        self.mean = ctx.get_aggregating_state(AggregatingStateDescriptor("mean", tuple[int, int], Mean()))
        self.by_name = ctx.get_map_state(MapStateDescriptor("by name", str, list[int]))
        self.rules: MapState[str, Model] = ctx.get_map_state(MapStateDescriptor("rules", str, PickleType(Model)))
        self.one = ctx.get_map_state(MapStateDescriptor("one", None, int))

        reveal_type(self.count)  # R: ValueState[int]
        reveal_type(self.count.value())  # R: int
        reveal_type(self.last)  # R: ValueState[str | None]
        reveal_type(self.last.value())  # R: str | None
        reveal_type(self.kept.value())  # R: str | None
        reveal_type(self.model)  # R: ValueState[Model | None]
        reveal_type(self.maybe)  # R: ValueState[int | None]
        reveal_type(self.numbers)  # R: ListState[int]
        reveal_type(self.numbers.get())  # R: list[int]
        reveal_type(self.sum)  # R: ReducingState[int]
        reveal_type(self.longest.get())  # R: str | None
        reveal_type(self.mean)  # R: AggregatingState[int, float]
        reveal_type(self.by_name)  # R: MapState[str, list[int]]
        reveal_type(self.by_name["a"])  # R: list[int]
        reveal_type(self.one)  # R: MapState[None, int]

        self.count.update(self.count.value() + 1)
        self.last.update(None)
        self.mean.add(1)

    def is_wrong_state(self, ctx: RuntimeContext) -> None:
        # E: arg-type: "ValueStateDescriptor[int]"; expected "ValueStateDescriptor[str]"
        self.of_text: ValueState[str] = ctx.get_state(COUNT)
        # E: arg-type: "ValueStateDescriptor[str | None]"
        self.never_none: ValueState[str] = ctx.get_state(ValueStateDescriptor("last", str))
        # E: arg-type: expected "TypeForm[str]"
        self.of_numbers: ListState[str] = ctx.get_list_state(ListStateDescriptor("n", int))
        # E: arg-type: expected "TypeForm[int]"
        self.by_number: MapState[int, str] = ctx.get_map_state(MapStateDescriptor("m", str, str))
        ctx.get_list_state(COUNT)  # E: arg-type: "ValueStateDescriptor[int]"; expected "ListStateDescriptor[Never]"
        # E: arg-type: expected "Callable[[int, int], int]"
        ctx.get_reducing_state(ReducingStateDescriptor("r", int, join))

    def is_wrong_value(self) -> None:
        self.count.update("one")  # E: arg-type: "str"; expected "int | None"
        self.last.value().upper()  # E: union-attr: "None" of "str | None" has no attribute "upper"
        self.numbers.add("one")  # E: arg-type: "str"; expected "int"
        self.texts.update([1])  # E: list-item: "int"; expected "str"
        self.sum.add(1.5)  # E: arg-type: "float"; expected "int"
        self.mean.add("one")  # E: arg-type: "str"; expected "int"
        self.by_name["a"] = ["one"]  # E: list-item: "str"; expected "int"
        self.by_name[1]  # E: index: Invalid index type "int"
        self.by_name.put("a", 1)  # E: arg-type: "int"; expected "list[int]"


ReducingStateDescriptor("r", int, Longer())  # E: misc: Cannot infer value of type parameter "T"
AggregatingStateDescriptor("a", str, Mean())  # E: misc: Cannot infer value of type parameter "A"


class Keeps(CheckpointedFunction):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        store = ctx.operator_state_store
        reveal_type(store.get_list_state(ListStateDescriptor("offsets", int)))  # R: ListState[int]
        # R: ListState[tuple[str, int]]
        reveal_type(store.get_union_list_state(ListStateDescriptor("all", tuple[str, int])))
        reveal_type(store.get_broadcast_state(MapStateDescriptor("rules", str, Model)))  # R: MapState[str, Model]
        reveal_type(ctx.keyed_state_store.get_state(COUNT))  # R: ValueState[int]


reveal_type(OutputTag("late", str))  # R: OutputTag[str]
reveal_type(OutputTag("late", PickleType(Model)))  # R: OutputTag[Model]
