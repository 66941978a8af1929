"""The job of Checkdam's windows in PyFlink. PyFlink's own interpreter runs it, so it imports nothing of Checkdam."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Duration, Encoder, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction, RuntimeContext
from pyflink.datastream.window import TumblingEventTimeWindows


class Count(AggregateFunction):  # type: ignore[misc]  # mypy does not follow pyflink
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[str, int], count: int) -> int:
        return count + 1

    def get_result(self, count: int) -> int:
        return count

    def merge(self, one: int, other: int) -> int:
        return one + other


class WithWindow(ProcessWindowFunction):  # type: ignore[misc]  # mypy does not follow pyflink
    """Emits the window with its count. Notes when each window's last result was, in a file of each subtask."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, ctx: RuntimeContext) -> None:
        self.ended_at: dict[int, float] = {}

    def process(self, word: str, ctx: Any, counts: Iterable[int]) -> Iterator[tuple[str, int, int]]:
        start = ctx.window().start
        self.ended_at[start] = time.perf_counter()
        for count in counts:
            yield word, start, count

    def clear(self, ctx: Any) -> None:
        pass

    def close(self) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.directory, suffix=".json", delete=False) as file:
            json.dump(self.ended_at, file)


class At(TimestampAssigner):  # type: ignore[misc]  # mypy does not follow pyflink
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def timed(line: str) -> tuple[str, int]:
    word, _, at = line.partition(" ")
    return word, int(at)


def run(*, settings: dict[str, str], seconds: int, source: str, output: str, ended: str) -> None:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    counts = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), source).build()
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(At())
    (
        env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
        .map(timed, output_type=pairs)
        .assign_timestamps_and_watermarks(watermarks)
        .key_by(lambda timed: timed[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(seconds)))
        .aggregate(Count(), WithWindow(ended), accumulator_type=Types.LONG(), output_type=counts)
        .sink_to(FileSink.for_row_format(output, Encoder.simple_string_encoder()).build())
    )
    env.execute("windows")


if __name__ == "__main__":
    run(**json.loads(Path(sys.argv[1]).read_text()))
