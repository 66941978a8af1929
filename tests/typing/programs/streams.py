"""Streams: each call knows the type of the records, and refuses a function of another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, reveal_type

from checkdam import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    SinkContext,
    SinkFunction,
    SourceContext,
    SourceFunction,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)

env = StreamExecutionEnvironment.get_execution_environment()


class Sale(NamedTuple):
    shop: str
    at: int
    price: float


class Sales(SourceFunction[Sale]):
    def run(self, ctx: SourceContext) -> Iterator[Sale]:
        yield Sale("a", 1, 2.5)


class Ticks(SourceFunction):
    def run(self, ctx: SourceContext) -> Iterator[int]:
        yield 1


lines = env.read_text("lines.txt")
sales = env.add_source(Sales()).uid("sales").set_parallelism(1)
reveal_type(lines)  # R: DataStream[str]
reveal_type(sales)  # R: DataStream[Sale]
reveal_type(env.add_source(Ticks()))  # R: DataStream[int]
reveal_type(env.socket_text_stream("localhost", 7777))  # R: DataStream[str]
reveal_type(env.from_collection([("a", 1)]))  # R: DataStream[tuple[str, int]]
reveal_type(env.from_collection([], type=str))  # R: DataStream[str]
reveal_type(env.from_collection(["a", None], type=str | None))  # R: DataStream[str | None]

# -- one record after the other


class Price(MapFunction[Sale, float]):
    def map(self, value: Sale) -> float:
        return value.price


class Words(FlatMapFunction):  # no parameters: its methods tell
    def flat_map(self, line: str) -> Iterator[str]:
        yield from line.split()


class IsDear(FilterFunction[Sale]):
    def filter(self, value: Sale) -> bool:
        return value.price > 10


def shop_of(sale: Sale) -> str:
    return sale.shop


words = lines.flat_map(str.split, output_type=str)
pairs = words.map(lambda word: (word, 1), output_type=tuple[str, int])
reveal_type(words)  # R: DataStream[str]
reveal_type(pairs)  # R: DataStream[tuple[str, int]]
reveal_type(words.map(lambda word: (word, len(word))))  # R: DataStream[tuple[str, int]]
reveal_type(lines.flat_map(Words()))  # R: DataStream[str]
reveal_type(sales.map(Price()))  # R: DataStream[float]
reveal_type(sales.map(shop_of))  # R: DataStream[str]
reveal_type(sales.filter(IsDear()).filter(lambda sale: sale.price < 20))  # R: DataStream[Sale]
reveal_type(sales.map(lambda sale: sale.shop or None, output_type=str | None))  # R: DataStream[str | None]

lines.map(Price())  # E: arg-type: "Price"; expected "MapsRecords[str,
lines.map(shop_of)  # E: arg-type: "Callable[[Sale], str]"; expected "MapsRecords[str,
sales.flat_map(Words())  # E: arg-type: "Words"; expected "FlatMapFunction[Sale, Any]"
lines.filter(IsDear())  # E: arg-type: expected "Filters[str] | Callable[[str], object]"
sales.map(lambda sale: sale.prize)  # E: attr-defined: "Sale" has no attribute "prize"
sales.map(shop_of, output_type=int)  # E: arg-type: expected "MapsRecords[Sale, int] | Callable[[Sale], int]"
sales.map(Price).print()  # E: arg-type: "type[Price]"

# -- keys

by_shop = sales.key_by(lambda sale: sale.shop)
reveal_type(by_shop)  # R: KeyedStream[str, Sale]
reveal_type(sales.key_by(lambda sale: (sale.shop, sale.at)))  # R: KeyedStream[tuple[str, int], Sale]
reveal_type(sales.key_by("shop", key_type=str))  # R: KeyedStream[str, Sale]
reveal_type(pairs.key_by(0, key_type=str))  # R: KeyedStream[str, tuple[str, int]]
reveal_type(by_shop.map(shop_of))  # R: DataStream[str]
reveal_type(by_shop.sum("price").uid("sum"))  # R: DataStream[Sale]

by_shop.uid("by shop")  # E: attr-defined: "KeyedStream[str, Sale]" has no attribute "uid"
by_shop.name("by shop")  # E: attr-defined: has no attribute "name"
by_shop.set_parallelism(2)  # E: attr-defined: has no attribute "set_parallelism"
sales.key_by(shop_of, key_type=int)  # E: arg-type: expected "Callable[[Sale], int] | str | int"
sales.sum("price")  # E: attr-defined: "DataStream[Sale]" has no attribute "sum"

# -- aggregates


class Mean(AggregateFunction[Sale, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: Sale, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value.price, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


class Dearer(ReduceFunction[Sale]):
    def reduce(self, accumulated: Sale, value: Sale) -> Sale:
        return max(accumulated, value)


class WrongMean(AggregateFunction[Sale, tuple[float, int], float]):
    def create_accumulator(self) -> int:  # E: override: incompatible with return type "tuple[float, int]"
        return 0


reveal_type(by_shop.aggregate(Mean()))  # R: DataStream[float]
reveal_type(by_shop.aggregate(Mean(), accumulator_type=tuple[float, int], output_type=float))  # R: DataStream[float]
reveal_type(by_shop.reduce(Dearer()))  # R: DataStream[Sale]
# R: DataStream[tuple[str, int]]
reveal_type(pairs.key_by(lambda pair: pair[0]).reduce(lambda one, two: (one[0], one[1] + two[1])))
words.key_by(len).aggregate(Mean())  # E: arg-type: "Mean"; expected "Aggregates[str,
words.key_by(len).reduce(Dearer())  # E: arg-type: expected "Reduces[str] | Callable[[str, str], str]"

# -- event time, union, sinks


class Shops(SinkFunction[str]):
    def invoke(self, value: str, ctx: SinkContext) -> None: ...


def read_clock(sale: Sale) -> datetime:
    return datetime.fromtimestamp(sale.at / 1000)  # noqa: DTZ006  the time zone does not matter here


timed = sales.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda sale: sale.at))
reveal_type(timed)  # R: DataStream[Sale]
reveal_type(WatermarkStrategy.for_monotonous_timestamps(read_clock))  # R: WatermarkStrategy[Sale]
reveal_type(words.union(lines))  # R: DataStream[str]
reveal_type(words.rebalance())  # R: DataStream[str]
reveal_type(words.add_sink(Shops()).uid("shops"))  # R: DataStreamSink
reveal_type(sales.execute_and_collect(limit=3))  # R: CloseableIterator[Sale]
reveal_type(list(words.execute_and_collect()))  # R: list[str]
reveal_type(env.execute_async())  # R: JobHandle

# E: attr-defined: "Sale" has no attribute
sales.assign_timestamps_and_watermarks(WatermarkStrategy(lambda sale: sale.ad))
# E: arg-type: expected "Callable[[str], int | datetime]"
lines.assign_timestamps_and_watermarks(WatermarkStrategy(read_clock))
lines.union(sales)  # E: arg-type: expected "Stream[str]"
sales.add_sink(Shops())  # E: arg-type: "Shops"; expected "Takes[Sale]"
