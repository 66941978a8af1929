"""A checkpoint that holds operator state alone has a size, wherever it is told."""

from __future__ import annotations

from typing import Any

from checkdam import CheckpointedFunction, ListStateDescriptor, SinkFunction
from checkdam.state_reader import Savepoint
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob


class Buffer(SinkFunction, CheckpointedFunction):
    def initialize_state(self, ctx: Any) -> None:
        self.state = ctx.operator_state_store.get_list_state(ListStateDescriptor("buffered", str))

    def invoke(self, value: str, ctx: Any) -> None:
        self.state.add(value)

    def snapshot_state(self, ctx: Any) -> None:
        """The state is kept up to date."""


def test_operator_state_in_the_metadata_counts() -> None:
    job = LocalJob(
        lambda _, stream: stream.add_sink(Buffer()).uid("buffer"), [["x" * 100], ["y" * 50]], MemoryStorage()
    )

    heard = job.run()

    first, second = heard.completed[0], heard.completed[1]
    assert 100 < first.state_bytes < second.state_bytes - 40 < 400
    assert first.new_bytes == first.state_bytes
    assert second.new_bytes == second.state_bytes
    assert job.checkpoint().state_bytes >= 150
    assert [each.bytes for each in Savepoint.load(f"{job.uri}/chk-{second.checkpoint_id}").operators] == [
        second.state_bytes
    ]
