"""Order within a key in whole jobs without Spark: by origin, whatever the parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.contexts import RuntimeContext
from checkdam.graph.functions import KeyedProcessFunction, ProcessFunction
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob

Step = tuple[str, int]
STEPS = [(key, number) for number in range(40) for key in "abc"]


class Through(ProcessFunction):
    def process_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        yield value


class OutOfOrder(KeyedProcessFunction):
    """Gives each number that is not the next of its key."""

    def open(self, ctx: RuntimeContext) -> None:
        self.due = ctx.get_state(ValueStateDescriptor("due", int, default=0))

    def process_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        if value[1] != self.due.value():
            yield value
        self.due.update(value[1] + 1)


class Subtask(ProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.number = ctx.subtask_index

    def process_element(self, value: Step, ctx: Any) -> Iterator[int]:
        yield self.number


@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_functions_without_keys_keep_the_order_of_every_key(parallelism: int, other: int) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        through = stream.process(Through()).process(Through()).set_parallelism(other).process(Through())
        through.key_by(lambda step: step[0]).process(OutOfOrder()).uid("order").print()

    job = LocalJob(build, [STEPS], MemoryStorage(), parallelism=parallelism, joins_batches=False)

    assert job.run().printed_lines == []


def test_a_rebalanced_stream_reaches_every_subtask() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.process(Subtask()).print("kept")
        stream.rebalance().process(Subtask()).print("rebalanced")

    lines = LocalJob(build, [STEPS], MemoryStorage(), parallelism=3).run().printed_lines

    shown = {(line.partition(":")[0], line.rpartition(" ")[2]) for line in lines}
    assert shown == {("kept", "0"), *(("rebalanced", subtask) for subtask in "012")}
