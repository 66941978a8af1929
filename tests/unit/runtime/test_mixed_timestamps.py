"""Streams with timestamps and streams without, in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.functions import KeyedProcessFunction, ProcessFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.types.type_info import type_info

BY_TIME = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1])


class Stamp(ProcessFunction):
    """Says with each record what its timestamp is."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int | None]]:
        yield value[0], value[1], ctx.timestamp


class KeyedStamp(KeyedProcessFunction):
    process_element = Stamp.process_element


@pytest.mark.parametrize("joins_batches", [True, False])
@pytest.mark.parametrize("is_keyed_again", [True, False])
@pytest.mark.parametrize("stamped_first", [True, False])
def test_a_stream_without_timestamps_in_a_union_loses_nothing_and_gets_none(
    *, stamped_first: bool, is_keyed_again: bool, joins_batches: bool
) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        other = environment._source("other", ScriptedSource(((("b", 7), ("b", 8)),)), type_info(tuple[str, int]))
        stamped = stream.assign_timestamps_and_watermarks(BY_TIME)
        both = stamped.union(other) if stamped_first else other.union(stamped)
        of = tuple[str, int, int | None]
        first = both.key_by(lambda event: "k", key_type=str).process(KeyedStamp(), output_type=of).uid("first")
        if is_keyed_again:
            first = first.key_by(lambda event: "k", key_type=str).process(KeyedStamp(), output_type=of).uid("second")
        first.process(Stamp(), output_type=of).print()

    heard = LocalJob(
        build, [[("a", 100), ("a", 200)]], MemoryStorage(), joins_batches=joins_batches, parallelism=1
    ).run()

    assert sorted(heard.printed_lines) == ["('a', 100, 100)", "('a', 200, 200)", "('b', 7, None)", "('b', 8, None)"]
