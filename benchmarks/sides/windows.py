"""Checkdam's windows: a job as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from benchmarks.sides.jobs import SETTINGS, Watch, write
from checkdam import (
    AggregateFunction,
    CheckpointConfig,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from checkdam.api.launch import Launch, set_launch
from checkdam.config import Configuration

DELAY = timedelta(seconds=1)
"""How far the watermark is behind the latest record."""


class Count(AggregateFunction[tuple[str, int], int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[str, int], count: int) -> int:
        return count + 1

    def get_result(self, count: int) -> int:
        return count

    def merge(self, one: int, other: int) -> int:
        return one + other


class WithWindow(ProcessWindowFunction[str, int, tuple[str, int, int], TimeWindow]):
    def process(
        self, word: str, ctx: WindowContext[TimeWindow], counts: Sequence[int]
    ) -> Iterator[tuple[str, int, int]]:
        yield word, ctx.window.start, counts[0]


def timed(line: str) -> tuple[str, int]:
    word, _, at = line.partition(" ")
    return word, int(at)


def run(
    *, assigner: str, seconds: int, sink: str, path: str, files_per_epoch: int, backend: str = "hashmap"
) -> dict[str, Any]:
    """Count the records of each word in each window, with a checkpoint after every epoch."""
    watch = Watch()
    set_launch(Launch(Configuration.load(None), listener=watch))
    env = StreamExecutionEnvironment.get_execution_environment({**SETTINGS, "state.backend.type": backend})
    env.enable_checkpointing(CheckpointConfig(interval=timedelta(0), storage="checkpoints"))
    of = TumblingEventTimeWindows if assigner == "tumbling" else EventTimeSessionWindows
    counts = (
        env.read_text(path, max_files_per_epoch=files_per_epoch)
        .map(timed)
        .assign_timestamps_and_watermarks(WatermarkStrategy.for_bounded_out_of_orderness(DELAY, lambda timed: timed[1]))
        .key_by(lambda timed: timed[0])
        .window(of(timedelta(seconds=seconds)))
        .aggregate(Count(), WithWindow())
        .uid("counts")
    )
    write(sink, counts)
    env.execute("windows")
    return {"epochs": [epoch for epoch in watch.epochs if epoch["records"]]}  # the last one only ends windows
