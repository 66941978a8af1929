"""Metrics of user functions, from `ctx.metrics` to the record of the job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.monitor.watched import watch

from checkdam import (
    AsyncFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessContext,
    ProcessWindowFunction,
    RuntimeContext,
    SinkContext,
    SinkFunction,
    SourceContext,
    SourceFunction,
    StreamExecutionEnvironment,
    UserFunctionError,
)
from checkdam.api.streams import DataStream
from checkdam.graph.metrics import MOST_METRICS, OF_EVERY_OPERATOR, HistogramStatistics
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.server.flink_api.operator_metrics import OF_OPERATORS
from checkdam.testing import FunctionHarness, MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Step, Trouble, kill_slot


class Measured(KeyedProcessFunction):
    """Has a metric of every kind."""

    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.metrics.counter("seen")
        self.lengths = ctx.metrics.add_group("words").histogram("length")
        self.events = ctx.get_metrics_group().meter("events")
        self.longest = ""
        ctx.metrics.gauge("longest", lambda: self.longest)

    def process_element(self, value: str, ctx: ProcessContext[str]) -> None:
        self.seen.inc()
        self.lengths.update(len(value))
        self.events.mark_event(2)
        self.longest = max(self.longest, value, key=len)


def test_a_test_sees_what_a_function_measured() -> None:
    with FunctionHarness(Measured(), str, key=lambda word: word[0], key_type=str, parallelism=2) as harness:
        harness.send("a", "abc", "abcde")

        told = [harness.metrics(subtask) for subtask in range(2)]

    [one] = [each for each in told if each["seen"]]
    assert (one["seen"], one["events"], one["longest"]) == (3, 6, "abcde")
    assert isinstance(one["words.length"], HistogramStatistics)
    assert (one["words.length"].count, one["words.length"].max) == (3, 5.0)


class Calls(AsyncFunction):
    async def open(self, ctx: RuntimeContext) -> None:
        self.calls = ctx.metrics.counter("calls")

    async def async_invoke(self, value: int) -> int:
        self.calls.inc()
        return value


class Numbers(SourceFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.yielded = ctx.metrics.counter("yielded")

    def run(self, ctx: SourceContext) -> Any:
        for number in range(3):
            self.yielded.inc()
            yield number


class Mapped(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.mapped = ctx.metrics.counter("mapped")

    def map(self, value: int) -> int:
        self.mapped.inc()
        return value


class Sunk(SinkFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.sunk = ctx.metrics.counter("sunk")

    def invoke(self, value: int, ctx: SinkContext) -> None:
        self.sunk.inc()


def test_asynchronous_functions_and_sources_have_metrics() -> None:
    with FunctionHarness(Calls(), int) as calls, FunctionHarness(Numbers(), output_type=int) as numbers:
        calls.send(1, 2)
        numbers.read()

        assert (calls.metrics(), numbers.metrics()) == ({"calls": 2}, {"yielded": 3})


def test_a_function_that_measures_runs_in_a_slot_wherever_it_stands() -> None:
    """Before the first key_by, too: what Spark runs itself has no open(), so it cannot ask for metrics."""

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.map(Mapped(), int).add_sink(Sunk())

    job = LocalJob(build, [[1, 2], [3]], MemoryStorage(), record_type=int, parallelism=1)
    monitor = watch(job)
    job.run()

    assert _user(monitor, "map") == [{"mapped": 3}]
    assert _user(monitor, "Sunk") == [{"sunk": 3}]


class Counted(ProcessWindowFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.windows = ctx.metrics.counter("windows")

    def process(self, key: str, ctx: Any, elements: Any) -> Any:
        self.windows.inc()
        yield key


def test_a_window_function_has_metrics() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        windows = stream.key_by(lambda word: word, str).count_window(1)
        windows.process(Counted(), str).name("windows").uid("w").print()

    job = LocalJob(build, [["a", "b"]], MemoryStorage(), record_type=str, parallelism=1)
    monitor = watch(job)
    job.run()

    assert _user(monitor, "windows") == [{"windows": 2}]


def _measured_job(storage: MemoryStorage, *troubles: Trouble) -> LocalJob:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(lambda word: word, str).process(Measured(), str).name("measured").uid("m").print()

    epochs = [["a", "bb"], ["a", "ccc"], ["a"]]
    return LocalJob(build, epochs, storage, record_type=str, parallelism=1, troubles=list(troubles))


def _user(monitor: JobMonitor, name: str) -> list[dict[str, Any]]:
    record = monitor.record()
    operator = next(each for each in record.operators if each.name == name)
    figures = next(each for each in record.figures if each.operator == operator.id)
    return [each.user for each in figures.subtasks]


def test_the_values_travel_with_the_epochs() -> None:
    job = _measured_job(MemoryStorage())
    monitor = watch(job)

    job.run()

    [told] = _user(monitor, "measured")
    assert (told["seen"], told["longest"], told["words.length"].count) == (5, "ccc", 5)
    assert (told["events"].count, told["events"].rate > 0) == (10, True)


def test_after_a_failover_counters_begin_again() -> None:
    job = _measured_job(MemoryStorage(), Trouble(Step.EPOCH_DONE, kill_slot(), number=2))
    monitor = watch(job)

    job.run()

    [told] = _user(monitor, "measured")
    assert monitor.record().restarts == 1
    assert told["seen"] < 5


class TooMany(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.group = ctx.metrics

    def map(self, value: int) -> int:
        self.group.counter(f"record-{value}")
        return value


def test_a_metric_for_every_record_fails_with_a_reason() -> None:
    with FunctionHarness(TooMany(), int) as harness, pytest.raises(UserFunctionError, match="one too many"):
        harness.send(*range(MOST_METRICS + 1))


def test_no_metric_of_a_function_hides_one_that_every_operator_has() -> None:
    assert set(OF_OPERATORS) <= OF_EVERY_OPERATOR
