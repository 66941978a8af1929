"""A sink that sends its records in pairs and keeps what waits in operator state.

`checkdam run examples/buffering_sink.py` sends five fruits; the sink, which runs in a slot, says on standard error

    sent [('apple', 1), ('banana', 2)]
    sent [('cherry', 3), ('date', 4)]

The fifth waits in the buffer. Where checkpoints are on it waits in the last of them as well, as "buffered-elements" of
the operator "buffer" (see checkdam inspect), and is the first in the buffer of a job that is started from there.
"""

import sys

from checkdam import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListStateDescriptor,
    SinkContext,
    SinkFunction,
    StreamExecutionEnvironment,
)


class BufferingSink(SinkFunction[tuple[str, int]], CheckpointedFunction):
    """Gathers records until there are enough to be worth a message."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.buffered: list[tuple[str, int]] = []

    def invoke(self, value: tuple[str, int], ctx: SinkContext) -> None:
        self.buffered.append(value)
        if len(self.buffered) >= self.threshold:
            print(f"sent {self.buffered}", file=sys.stderr, flush=True)
            self.buffered.clear()

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.checkpointed = ctx.operator_state_store.get_list_state(
            ListStateDescriptor("buffered-elements", tuple[str, int])  # get_union_list_state: everyone gets all
        )
        if ctx.is_restored:
            self.buffered.extend(self.checkpointed.get())

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.checkpointed.update(self.buffered)


env = StreamExecutionEnvironment.get_execution_environment()
fruits = [("apple", 1), ("banana", 2), ("cherry", 3), ("date", 4), ("elderberry", 5)]
env.from_collection(fruits).add_sink(BufferingSink(threshold=2)).uid("buffer").set_parallelism(1)
env.execute("BufferingSink")
