"""An interval join of orders and payments: `checkdam run examples/orders_and_payments.py`.

A payment belongs to an order if it comes within an hour of it, or up to a minute before, since the clocks of the shop
and the bank differ. Prints each paid order with the seconds that its payment took:

    ('o-1', 'paid', 90)
    ('o-2', 'paid', -20)
    ('o-3', 'paid in part', 600)
    ('o-3', 'paid', 1200)

Nothing is printed of o-4: its payment comes after two hours.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from checkdam import DataStream, JoinContext, ProcessJoinFunction, StreamExecutionEnvironment, WatermarkStrategy


class Order(NamedTuple):
    id: str
    amount: int
    at: int  # milliseconds


class Payment(NamedTuple):
    order: str
    amount: int
    at: int


class Paid(ProcessJoinFunction[Order, Payment, tuple[str, str, int]]):
    def process_element(self, order: Order, payment: Payment, ctx: JoinContext) -> Iterator[tuple[str, str, int]]:
        seconds = (ctx.right_timestamp - ctx.left_timestamp) // 1000
        yield order.id, "paid" if payment.amount == order.amount else "paid in part", seconds


def timed_orders(orders: DataStream[Order]) -> DataStream[Order]:
    return orders.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(minutes=5), lambda order: order.at)
    )


def timed_payments(payments: DataStream[Payment]) -> DataStream[Payment]:
    return payments.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(minutes=5), lambda payment: payment.at)
    )


env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection(
    [Order("o-1", 20, 0), Order("o-2", 35, 60_000), Order("o-3", 50, 120_000), Order("o-4", 5, 180_000)]
)
payments = env.from_collection(
    [
        Payment("o-1", 20, 90_000),
        Payment("o-2", 35, 40_000),
        Payment("o-3", 25, 720_000),
        Payment("o-3", 50, 1_320_000),
        Payment("o-4", 5, 7_380_000),
    ]
)
(
    timed_orders(orders)
    .key_by(lambda order: order.id)
    .interval_join(timed_payments(payments).key_by(lambda payment: payment.order))
    .between(timedelta(minutes=-1), timedelta(hours=1))
    .process(Paid())
    .uid("paid")
    .print()
)
env.execute("OrdersAndPayments")
