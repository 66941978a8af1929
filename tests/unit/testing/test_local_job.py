"""LocalJob as users have it: state by name, published output, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkdam import (
    DataStream,
    JobGraphError,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from checkdam.testing import DriverKilled, LocalJob, MemoryStorage, OutputDirectory, Step, Trouble, kill_driver
from checkdam.testing.local_target import local_environment


class Kinds(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.all = ctx.get_list_state(ListStateDescriptor("all", int))
        self.by_parity = ctx.get_map_state(MapStateDescriptor("by parity", int, int))

    def process_element(self, value: int, ctx: ProcessContext) -> Iterator[int]:
        self.count.update(self.count.value() + 1)
        self.all.add(value)
        self.by_parity[value % 2] = value
        yield value


def build(environment: StreamExecutionEnvironment, numbers: DataStream[int]) -> None:
    keyed = numbers.key_by(lambda number: number // 10, key_type=int)
    keyed.process(Kinds(), output_type=int).uid("kinds").print()


def test_state_of_any_kind_is_read_by_its_name() -> None:
    job = LocalJob(build, [[1, 2], [3, 11]], MemoryStorage())
    job.run()

    assert job.state("kinds", "count") == {0: 3, 1: 1}
    assert job.state("kinds", "all") == {0: [1, 2, 3], 1: [11]}
    assert job.state("kinds", "by parity") == {0: {1: 3, 0: 2}, 1: {1: 11}}
    assert job.state("kinds", ValueStateDescriptor("count", int)) == {0: 3, 1: 1}
    assert dict(job.savepoint().keyed_state("kinds", "count")) == {0: 3, 1: 1}


def test_an_output_directory_shows_what_is_published_and_no_more() -> None:
    storage, output = MemoryStorage(), OutputDirectory()

    def job(*troubles: Trouble) -> LocalJob:
        return LocalJob(
            lambda env, numbers: numbers.sink_to_files(output.uri).uid("out"), [[1], [2]], storage, troubles=troubles
        )

    with pytest.raises(DriverKilled):
        job(Trouble(Step.METADATA_WRITTEN, kill_driver, number=2)).run()
    assert output.rows() == [1]
    assert len(output.storage.list("")) > 1  # the second is staged

    job().run()
    assert sorted(output.rows()) == [1, 2]


def test_what_spark_reads_is_refused(tmp_path: Path) -> None:
    environment = local_environment()
    environment.read_text(str(tmp_path)).print()

    with pytest.raises(JobGraphError, match="is read by Spark"):
        environment.execute()
