"""The job of Checkdam's running counts in PyFlink. PyFlink's interpreter runs it, so it imports nothing of Checkdam."""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

_RECORDS_PER_ENTRY = 1_000


class Count(KeyedProcessFunction):  # type: ignore[misc]  # mypy does not follow pyflink
    """One read and one write of state for each record.

    Writes at which time each thousand was reached, in a file of each subtask: the number and the nanoseconds.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.unwritten = 0
        self.entries = tempfile.NamedTemporaryFile(dir=self.directory, delete=False)  # noqa: SIM115  closed by close()

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.unwritten += 1
        if self.unwritten == _RECORDS_PER_ENTRY:
            self.write_entry()
        yield value, count

    def write_entry(self) -> None:
        self.entries.write(struct.pack(">qq", self.unwritten, time.perf_counter_ns()))
        self.unwritten = 0

    def close(self) -> None:
        self.write_entry()
        self.entries.close()


def run(*, settings: dict[str, str], source: str, times: str) -> None:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), source).build()
    discarding = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink
    (
        env.from_source(lines, WatermarkStrategy.no_watermarks(), "words")
        .key_by(lambda word: word, key_type=Types.STRING())
        .process(Count(times), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .sink_to(Sink(discarding()))
    )
    env.execute("running count")


if __name__ == "__main__":
    run(**json.loads(Path(sys.argv[1]).read_text()))
