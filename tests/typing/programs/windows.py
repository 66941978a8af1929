"""Windows and joins: each call knows key, records and windows, and refuses a function, trigger or tag of another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple, reveal_type

from checkdam import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FlatJoinFunction,
    GlobalWindow,
    GlobalWindows,
    JoinContext,
    JoinFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WindowAssigner,
    WindowAssignerContext,
    WindowContext,
    WindowFunction,
)

env = StreamExecutionEnvironment.get_execution_environment()
MINUTE = timedelta(minutes=1)


class Sale(NamedTuple):
    shop: str
    at: int
    price: float


sales = env.from_collection([Sale("a", 1, 2.5)])
words = env.from_collection(["a"])
by_shop = sales.key_by(lambda sale: sale.shop)

# -- windows of a stream

tumbling = by_shop.window(TumblingEventTimeWindows(MINUTE))
reveal_type(tumbling)  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(by_shop.window(SlidingEventTimeWindows(MINUTE, MINUTE)))  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(by_shop.window(EventTimeSessionWindows(MINUTE)))  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(by_shop.window(GlobalWindows()))  # R: WindowedStream[str, Sale, GlobalWindow]
reveal_type(by_shop.count_window(10, 5))  # R: WindowedStream[str, Sale, GlobalWindow]
reveal_type(sales.window_all(TumblingProcessingTimeWindows(MINUTE)))  # R: AllWindowedStream[Sale, TimeWindow]
reveal_type(sales.count_window_all(10))  # R: AllWindowedStream[Sale, GlobalWindow]


def gap_of(sale: Sale) -> timedelta:
    return MINUTE * len(sale.shop)


reveal_type(by_shop.window(EventTimeSessionWindows(gap_of)))  # R: WindowedStream[str, Sale, TimeWindow]
words.key_by(len).window(EventTimeSessionWindows(gap_of))  # E: arg-type
by_shop.window(TumblingEventTimeWindows)  # E: arg-type: "type[TumblingEventTimeWindows]"
TumblingEventTimeWindows(10)  # E: arg-type: "int"; expected "timedelta"
sales.window(TumblingEventTimeWindows(MINUTE))  # E: attr-defined: has no attribute "window"
tumbling.uid("windows")  # E: attr-defined: has no attribute "uid"

# -- their functions


class Report(ProcessWindowFunction[str, Sale, tuple[str, int]]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[Sale]) -> Iterator[tuple[str, int]]:
        reveal_type(ctx.window)  # R: TimeWindow
        reveal_type(ctx.current_watermark)  # R: int
        reveal_type(ctx.window_state().get_state(ValueStateDescriptor("n", int, default=0)))  # R: ValueState[int]
        ctx.output(LATE, elements[0])
        ctx.output(LATE, key)  # E: misc: Cannot infer value of type parameter "T" of "output"
        yield key, ctx.window.end


class Everything(ProcessWindowFunction[str, Sale, int, GlobalWindow]):
    def process(self, key: str, ctx: WindowContext[GlobalWindow], elements: Sequence[Sale]) -> list[int]:
        reveal_type(ctx.window)  # R: GlobalWindow
        return [len(elements)]


class Prices(WindowFunction[str, Sale, float]):
    def apply(self, key: str, window: TimeWindow, elements: Sequence[Sale]) -> Iterator[float]:
        yield sum(sale.price for sale in elements)


class ByNumber(ProcessWindowFunction[int, Sale, int]):
    def process(self, key: int, ctx: WindowContext, elements: Sequence[Sale]) -> list[int]:
        return [key]


class Texts(ProcessWindowFunction[str, str, int]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[str]) -> list[int]:
        return [len(elements)]


class Mean(AggregateFunction[Sale, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: Sale, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value.price, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


class ShowMean(ProcessWindowFunction[str, float, str]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[float]) -> Iterator[str]:
        yield f"{key}: {elements[0]}"


LATE = OutputTag("late", Sale)

reveal_type(tumbling.process(Report()))  # R: DataStream[tuple[str, int]]
reveal_type(tumbling.apply(Prices()))  # R: DataStream[float]
reveal_type(tumbling.reduce(max))  # R: DataStream[Sale]
reveal_type(tumbling.reduce(lambda one, other: one, Report()))  # R: DataStream[tuple[str, int]]
reveal_type(tumbling.aggregate(Mean()))  # R: DataStream[float]
reveal_type(tumbling.aggregate(Mean(), ShowMean()))  # R: DataStream[str]
reveal_type(tumbling.sum("price").uid("sum"))  # R: DataStream[Sale]
reveal_type(by_shop.window(GlobalWindows()).process(Everything()))  # R: DataStream[int]
reveal_type(tumbling.process(Report()).get_side_output(LATE))  # R: DataStream[Sale]

tumbling.process(ByNumber())  # E: arg-type
tumbling.process(Texts())  # E: arg-type
tumbling.process(Everything())  # E: arg-type
tumbling.process(Prices())  # E: call-overload: matches argument type "Prices"
tumbling.process(Report)  # E: call-overload: matches argument type "type[Report]"
tumbling.aggregate(Mean(), Report())  # E: misc: Cannot infer value of type parameter "R" of "aggregate"
words.key_by(len).window(TumblingEventTimeWindows(MINUTE)).aggregate(Mean())  # E: arg-type


class All(ProcessAllWindowFunction[Sale, int]):
    def process(self, ctx: WindowContext, elements: Sequence[Sale]) -> list[int]:
        return [ctx.window.start]


class ApplyAll(AllWindowFunction[Sale, int]):
    def apply(self, window: TimeWindow, elements: Sequence[Sale]) -> list[int]:
        return [window.start]


together = sales.window_all(TumblingEventTimeWindows(MINUTE))
reveal_type(together.process(All()))  # R: DataStream[int]
reveal_type(together.apply(ApplyAll()))  # R: DataStream[int]
reveal_type(together.reduce(max, All()))  # R: DataStream[int]
together.process(Report())  # E: call-overload: matches argument type "Report"

# -- triggers, evictors, late records


class Dear(Trigger[Sale, TimeWindow]):
    def on_element(self, value: Sale, timestamp: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        reveal_type(ctx.get_partitioned_state(ValueStateDescriptor("n", int, default=0)))  # R: ValueState[int]
        return TriggerResult.FIRE if value.price > 10 else TriggerResult.CONTINUE


reveal_type(tumbling.trigger(Dear()).evictor(CountEvictor(3)))  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(tumbling.trigger(CountTrigger(3)).allowed_lateness(MINUTE))  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(tumbling.side_output_late_data(LATE))  # R: WindowedStream[str, Sale, TimeWindow]
reveal_type(DeltaTrigger(2, lambda last, new: new.price - last.price, Sale))  # R: DeltaTrigger[Sale]
tumbling.trigger(DeltaTrigger(2, lambda last, new: new.price - last.price, Sale))
tumbling.evictor(DeltaEvictor(2, lambda one, last: last.price - one.price))
tumbling.trigger(EventTimeTrigger)  # E: arg-type: "type[EventTimeTrigger]"
words.key_by(len).window(TumblingEventTimeWindows(MINUTE)).trigger(Dear())  # E: arg-type: "Dear"
tumbling.side_output_late_data(OutputTag("late", str))  # E: arg-type
tumbling.allowed_lateness(5)  # E: arg-type: "int"; expected "timedelta"

# -- windows of one's own


class Day(NamedTuple):
    name: str
    end: int

    @property
    def max_timestamp(self) -> int:
        return self.end - 1


class Days(WindowAssigner[Sale, Day]):
    window_type = Day

    def assign_windows(self, value: Sale, timestamp: int, ctx: WindowAssignerContext) -> Collection[Day]:
        return [Day("today", timestamp + 1)]


class Named(ProcessWindowFunction[str, Sale, str, Day]):
    def process(self, key: str, ctx: WindowContext[Day], elements: Sequence[Sale]) -> list[str]:
        return [ctx.window.name]


reveal_type(by_shop.window(Days()))  # R: WindowedStream[str, Sale, Day]
reveal_type(by_shop.window(Days()).process(Named()))  # R: DataStream[str]
by_shop.window(Days()).process(Report())  # E: arg-type
words.key_by(len).window(Days())  # E: arg-type

# -- joins


class Both(JoinFunction[Sale, str, tuple[str, str]]):
    def join(self, first: Sale, second: str) -> tuple[str, str]:
        return first.shop, second


class Some(FlatJoinFunction[Sale, str, str]):
    def join(self, first: Sale, second: str) -> list[str]:
        return [second]


class Groups(CoGroupFunction[Sale, str, int]):
    def co_group(self, first: Sequence[Sale], second: Sequence[str]) -> list[int]:
        return [len(first) + len(second)]


class Match(ProcessJoinFunction[Sale, str, float]):
    def process_element(self, left: Sale, right: str, ctx: JoinContext) -> Iterator[float]:
        reveal_type(ctx.left_timestamp)  # R: int
        yield left.price


pairs = (
    sales.join(words).where(lambda sale: sale.shop).equal_to(lambda word: word).window(TumblingEventTimeWindows(MINUTE))
)
reveal_type(pairs.apply(Both()))  # R: DataStream[tuple[str, str]]
reveal_type(pairs.apply(lambda sale, word: len(word)))  # R: DataStream[int]
reveal_type(pairs.apply(Some()))  # R: DataStream[str]
groups = sales.co_group(words).where("shop").equal_to(lambda word: word).window(TumblingEventTimeWindows(MINUTE))
reveal_type(groups.apply(Groups()))  # R: DataStream[int]
pairs.apply(lambda sale, word: word.shop)  # E: attr-defined: "str" has no attribute "shop"
groups.apply(Both())  # E: arg-type
sales.join(words).where(lambda sale: sale.prize)  # E: attr-defined: "Sale" has no attribute "prize"

by_word = words.key_by(lambda word: word)
near = by_shop.interval_join(by_word).between(-MINUTE, MINUTE, upper_exclusive=True)
reveal_type(near)  # R: BoundedIntervalJoin[str, Sale, str]
reveal_type(near.side_output_left_late_data(LATE).process(Match()))  # R: DataStream[float]
near.side_output_right_late_data(LATE)  # E: arg-type
by_shop.interval_join(words.key_by(len))  # E: arg-type
by_word.interval_join(by_shop).between(MINUTE, MINUTE).process(Match())  # E: arg-type
