"""A source that counts, and knows how far it has come: `checkdam run examples/counter_source.py`.

Prints the numbers from 0 to 9, or up to any other: `checkdam run examples/counter_source.py -- 1000000`. With
-D state.checkpoints.dir=… and -D execution.checkpointing.interval=1s, kill it on its way: `--resume latest` goes on
behind the last number of the newest checkpoint.
"""

import sys
from collections.abc import Iterator

from checkdam import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListStateDescriptor,
    SourceContext,
    SourceFunction,
    StreamExecutionEnvironment,
)


class CounterSource(SourceFunction[int], CheckpointedFunction):
    """Counts from 0 to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.offset = 0

    def run(self, ctx: SourceContext) -> Iterator[int]:
        while self.offset < self.limit:  # a barrier can fall only while the generator waits at a
            self.offset += 1  # yield: the update before it and the record it yields
            yield self.offset - 1  # belong together, with no lock

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.checkpointed = ctx.operator_state_store.get_list_state(ListStateDescriptor("offset", int))
        for offset in self.checkpointed.get():
            self.offset = offset

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.checkpointed.update([self.offset])


limit = int(sys.argv[1]) if len(sys.argv) > 1 else 10
env = StreamExecutionEnvironment.get_execution_environment()
env.add_source(CounterSource(limit)).uid("counter").set_parallelism(1).print().set_parallelism(1)
env.execute("CounterSource")
