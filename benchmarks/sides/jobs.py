"""Checkdam's side: a job as a user would write it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from checkdam import (
    BatchContext,
    CheckpointConfig,
    DataStream,
    DiscardingSink,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapState,
    MapStateDescriptor,
    ProcessContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueState,
    ValueStateDescriptor,
)
from checkdam.api.launch import Launch, set_launch
from checkdam.config import Configuration
from checkdam.ids import Epoch
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats, JobListener

SETTINGS = {"spark.master": "local[2]", "parallelism.default": 2}


class Count(KeyedProcessFunction):
    """Counts the records of each key: one read and one write per record."""

    count: ValueState[int]

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[tuple[str, int]]:
        count = self.count.value() + 1
        self.count.update(count)
        yield value, count


class CountEntries(KeyedProcessFunction):
    """Counts within each key, from lines of a word and an entry: one entry is read and written per record."""

    counts: MapState[str, int]

    def open(self, ctx: RuntimeContext) -> None:
        self.counts = ctx.get_map_state(MapStateDescriptor("counts", str, int))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[tuple[str, int]]:
        entry = value.partition(" ")[2]
        count = self.counts.get(entry, 0) + 1
        self.counts[entry] = count
        yield value, count


class CountColumns(KeyedBatchFunction[tuple[str, int]]):
    """The same as `Count`, on columns."""

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        count = ctx.get_column_state("count", int)
        running = batch.running_count(before=count.values)
        count.write(batch.last(running))
        return batch.records.column("value"), running


class Watch(JobListener):
    """Records the time of each event."""

    def __init__(self) -> None:
        self.restored_at: float | None = None
        self.epochs: list[dict[str, float]] = []
        self.checkpoints: list[dict[str, Any]] = []

    def restored(self, path: str, epoch: Epoch) -> None:
        self.restored_at = time.perf_counter()

    def epoch_ended(self, stats: EpochStats) -> None:
        self.epochs.append({"ended_at": time.perf_counter(), "records": stats.records, "keys": stats.held.entries})

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        self.checkpoints.append(
            {
                "epoch": stats.epoch,
                "path": stats.path,
                "seconds": stats.seconds,
                "sync_seconds": stats.sync_seconds,
                "async_seconds": stats.async_seconds,
                "bytes": stats.new_bytes + (Path(stats.path.removeprefix("file://")) / "_metadata").stat().st_size,
            }
        )


def run(
    *,
    operator: str,
    sink: str,
    path: str,
    files_per_epoch: int,
    backend: str = "hashmap",
    checkpoints: str | None = None,
    checkpoint_seconds: int = 0,
    restore_from: str | None = None,
) -> dict[str, Any]:
    """Count the words in `path`; `checkpoints` is the directory of checkpoints, None takes none.

    There is one after every epoch, unless `checkpoint_seconds` sets an interval.
    """
    watch = Watch()
    set_launch(Launch(Configuration.load(None), restore_path=restore_from, listener=watch))
    env = StreamExecutionEnvironment.get_execution_environment({**SETTINGS, "state.backend.type": backend})
    if checkpoints is not None:
        env.enable_checkpointing(CheckpointConfig(interval=timedelta(seconds=checkpoint_seconds), storage=checkpoints))
    words = env.read_text(path, max_files_per_epoch=files_per_epoch)
    write(sink, _counted(operator, words))
    env.execute("benchmark")
    return {"epochs": watch.epochs, "checkpoints": watch.checkpoints, "restored_at": watch.restored_at}


def _counted(operator: str, words: DataStream[Any]) -> DataStream[Any]:
    if operator == "sum":
        return words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1).uid("count")
    if operator == "process_batch":
        return words.key_by(lambda word: word).process_batch(CountColumns()).uid("count")
    if operator == "map":
        keyed = words.key_by(lambda line: line.partition(" ")[0], key_type=str)
        return keyed.process(CountEntries(), output_type=tuple[str, int]).uid("count")
    return words.key_by(lambda word: word).process(Count(), output_type=tuple[str, int]).uid("count")


def write(sink: str, counts: DataStream[Any]) -> None:
    if sink == "noop":
        counts.sink_to_spark(lambda rows, epoch: rows.write.format("noop").mode("overwrite").save())
    elif sink == "discard":
        counts.add_sink(DiscardingSink()).uid("output")
    else:
        counts.sink_to_files(os.path.abspath("output"), format=sink).uid("output")
