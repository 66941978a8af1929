"""Small programs for jobs without Spark: timers of event time, and a source function that keeps its position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.functions import CheckpointedFunction, KeyedProcessFunction, SourceFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.testing.local_job import LocalJob


class Alarm(KeyedProcessFunction):
    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        ctx.timer_service.register_event_time_timer(value[1] + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f"{ctx.current_key}@{timestamp}"


def alarms(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    """Print each key with the time of its timer, which is due 1000 after the record's timestamp."""
    timed = stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda value: value[1]))
    timed.key_by(0, key_type=str).process(Alarm(), output_type=str).uid("alarm").print()


class Numbers(SourceFunction, CheckpointedFunction):
    """The numbers below a limit, dealt out to the subtasks; `next` numbers are kept as operator state."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.restored = list(self.kept.get()) if ctx.is_restored else None

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])

    def open(self, ctx: Any) -> None:
        self.step = ctx.parallelism
        self.following = ctx.subtask_index if self.restored is None else self.restored[0]

    def run(self, ctx: Any) -> Iterator[tuple[str, int]]:
        while self.following < self.limit:
            self.following += self.step
            yield str(self.following - self.step), 1


def shown(*jobs: LocalJob) -> Counter[str]:
    """Return what print() sinks of these jobs have shown, without the number of the subtask."""
    return Counter(line.rpartition("> ")[2] for job in jobs for line in job.heard.printed_lines)
