"""The local engine moves records as Spark does."""

from __future__ import annotations

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.state.types import type_info
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.scripted_source import ScriptedSource


@pytest.mark.parametrize(("joins_batches", "count"), [(True, 1), (False, 2)])
def test_what_two_sources_send_to_a_subtask_arrives_in_one_batch_unless_a_test_wants_it_apart(
    joins_batches: bool, count: int
) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream) -> None:
        other = environment._source("other", ScriptedSource((("b",),)), type_info(str))
        stream.union(other).key_by(lambda word: word, key_type=str).reduce(lambda kept, new: new).uid("last").print()

    job = LocalJob(build, [["a"]], MemoryStorage(), parallelism=1, joins_batches=joins_batches)
    heard = job.run()

    assert job._engine is not None
    last_level = job._engine.slots[0]._last_level
    assert last_level is not None
    assert [batch.num_rows for batch in last_level[2]] == [2 // count] * count
    assert sorted(heard.printed_lines) == ["a", "b"]
