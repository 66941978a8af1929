"""Asynchronous calls: a coroutine function's result, and the elements of a batch, tell the type of the stream."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, reveal_type

from checkdam import AsyncFunction, AsyncRetry, RuntimeContext, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()


class Sale(NamedTuple):
    shop: str
    price: float


class Client:
    async def get(self, path: str) -> str:
        return path

    async def close(self) -> None: ...


sales = env.from_collection([Sale("a", 2.5)])
by_shop = sales.key_by(lambda sale: sale.shop)
lines = env.read_text("lines.txt")


async def rate(sale: Sale) -> float:
    return sale.price


async def rates(batch: list[Sale]) -> list[float]:
    return [sale.price for sale in batch]


def price(sale: Sale) -> float:
    return sale.price


class Rate(AsyncFunction[Sale, float]):
    async def open(self, ctx: RuntimeContext) -> None:
        self.client = Client()

    async def async_invoke(self, value: Sale) -> float:
        return float(await self.client.get(value.shop))

    def timeout(self, value: Sale) -> float:
        return value.price

    async def close(self) -> None:
        await self.client.close()


class Upper(AsyncFunction):  # no parameters: its method tells
    def open(self, ctx: RuntimeContext) -> None:
        self.prefix = "x"

    async def async_invoke(self, value: str) -> str:
        return value.upper()


reveal_type(sales.map_async(rate))  # R: DataStream[float]
reveal_type(by_shop.map_async(rate, capacity=1_000, ordered=False))  # R: DataStream[float]
reveal_type(sales.map_async(Rate(), timeout=timedelta(seconds=1)))  # R: DataStream[float]
reveal_type(lines.map_async(Upper(), retry=AsyncRetry(attempts=5)).uid("upper"))  # R: DataStream[str]
reveal_type(sales.map_async(rates, batch_size=32, max_delay=timedelta(seconds=1)))  # R: DataStream[float]
reveal_type(sales.map_async(rate, timeout=timedelta(seconds=1), on_timeout=price))  # R: DataStream[float]
reveal_type(sales.map_async(rate, output_type=float))  # R: DataStream[float]
reveal_type(sales.map_async(rates, batch_size=32, output_type=float))  # R: DataStream[float]

lines.map_async(rate)  # E: arg-type: expected "AsyncMaps[str, Never] | Callable[[str], Awaitable[Never]]"
sales.map_async(price)  # E: arg-type: "Callable[[Sale], float]"; expected "AsyncMaps[Sale, Never]
sales.map_async(Rate)  # E: arg-type: "type[Rate]"
sales.map_async(Upper())  # E: arg-type: "Upper"; expected "AsyncMaps[Sale, Never]
sales.map_async(rate, capacity="many")  # E: call-overload: No overload variant of "map_async"
sales.map_async(rate, max_delay=timedelta(seconds=1))  # E: call-overload: No overload variant of "map_async"
sales.map_async(rate, batch_size=2)  # E: arg-type: expected "AsyncMaps[list[Sale], Sequence[Never]]
sales.map_async(rates)  # E: arg-type: "Callable[[list[Sale]], Coroutine[Any, Any, list[float]]]"
sales.map(rate).map(lambda later: later + 1)  # E: operator: Unsupported operand types for +
