"""Asynchronous calls: `checkdam run examples/async_enrichment.py`.

Each order gets the price of its item from a service that takes 20 ms to answer, 50 requests at a time, and a judgement
from a model that wants its input in batches. The service fails now and then, and is asked again; for one item it never
answers, and the order goes on without a price. Service and model are made up here: use a client such as httpx or
aiohttp in their place.
"""

import asyncio
from datetime import timedelta
from typing import NamedTuple

from checkdam import AsyncFunction, AsyncRetry, RuntimeContext, StreamExecutionEnvironment

PRICES = {"pen": 2, "desk": 150, "lamp": 40}


class Order(NamedTuple):
    id: int
    item: str


class PricedOrder(NamedTuple):
    id: int
    item: str
    price: int | None


class PriceService:
    """Stands for a client of a service on the network; it belongs to the event loop it was made in."""

    def __init__(self) -> None:
        self.connections = asyncio.Semaphore(50)
        self.requests = 0

    async def price_of(self, item: str) -> int:
        async with self.connections:
            self.requests += 1
            if self.requests % 5 == 0:
                raise ConnectionError("the service is busy")
            if item not in PRICES:
                await asyncio.sleep(3600)
            await asyncio.sleep(0.02)
            return PRICES[item]

    async def close(self) -> None:
        """Give the connections back."""


class AddPrice(AsyncFunction[Order, PricedOrder]):
    async def open(self, ctx: RuntimeContext) -> None:
        self.service = PriceService()  # one for each subtask, until close

    async def async_invoke(self, order: Order) -> PricedOrder:
        return PricedOrder(order.id, order.item, await self.service.price_of(order.item))

    def timeout(self, order: Order) -> PricedOrder:
        return PricedOrder(order.id, order.item, None)

    async def close(self) -> None:
        await self.service.close()


async def judge(orders: list[PricedOrder]) -> list[tuple[int, str]]:
    """Stands for a model: one call for many records."""
    await asyncio.sleep(0.01)
    return [
        (order.id, "unknown" if order.price is None else "dear" if order.price > 100 else "cheap") for order in orders
    ]


env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection([Order(i, ["pen", "desk", "lamp", "ghost"][i % 4]) for i in range(12)])
(
    orders.map_async(
        AddPrice(),
        capacity=50,
        timeout=timedelta(seconds=2),
        retry=AsyncRetry(attempts=5, delay=timedelta(milliseconds=10), factor=2.0),
    )
    .map_async(judge, batch_size=4, max_delay=timedelta(milliseconds=100))
    .print()
)
env.execute("AsyncEnrichment")
