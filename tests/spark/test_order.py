"""Order within a key on Spark: sequence numbers through every kind of edge, behind every kind of source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from checkdam import (
    BroadcastProcessFunction,
    DataStream,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SourceFunction,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Jobs, LineServer

pytestmark = pytest.mark.spark

KEYS = "abcde"
NUMBERS = 120
RULES = MapStateDescriptor("rules", str, int)


class Step(NamedTuple):
    key: str
    number: int


ASIDE = OutputTag("aside", Step)


def steps(prefix: str) -> list[Step]:
    """Every key's numbers in order, the keys in turn."""
    return [Step(prefix + key, number) for number in range(NUMBERS) for key in KEYS]


def lines(prefix: str) -> list[str]:
    return [f"{step.key} {step.number}" for step in steps(prefix)]


def parsed(line: str) -> Step:
    key, number = line.split()
    return Step(key, int(number))


class Through(ProcessFunction):
    """Hands records on, to the main output and aside."""

    def process_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        ctx.output(ASIDE, value)
        yield value


class ThroughRules(BroadcastProcessFunction):
    """Hands records on, once they have waited for the rules of the epoch."""

    def process_broadcast_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        yield from ()

    def process_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        yield value


class ThroughKeyed(KeyedProcessFunction):
    def process_element(self, value: Step, ctx: Any) -> Iterator[Step]:
        yield value


class Own(SourceFunction):
    """Each subtask brings the numbers of keys of its own."""

    def run(self, ctx: Any) -> Iterator[Step]:
        yield from steps(f"own{ctx.subtask_index}-")


class InOrder(KeyedProcessFunction):
    """Tells of each number that is not the next of its key, and of the last one."""

    def open(self, ctx: RuntimeContext) -> None:
        self.due = ctx.get_state(ValueStateDescriptor("due", int, default=0))

    def process_element(self, value: Step, ctx: Any) -> Iterator[tuple[str, str]]:
        if value.number != self.due.value():
            yield value.key, f"{value.number} instead of {self.due.value()}"
        elif value.number == NUMBERS - 1:
            yield value.key, "complete"
        self.due.update(value.number + 1)


class Subtask(ProcessFunction):
    """Gives its number, once."""

    def open(self, ctx: RuntimeContext) -> None:
        self.number: int | None = ctx.subtask_index

    def process_element(self, value: Step, ctx: Any) -> Iterator[tuple[str, str]]:
        number, self.number = self.number, None
        if number is not None:
            yield f"subtask {number}", "complete"


class Checked:
    """Streams whose keys are to be in order at their end."""

    def __init__(self) -> None:
        self.expected: set[str] = set()
        self._number = 0

    def check(self, stream: DataStream[Any], *prefixes: str) -> None:
        """Expect the numbers of each key in order behind this stream, under names that no other branch has."""
        self._number += 1
        branch = f"{self._number}-"
        self.expected |= {branch + prefix + key for prefix in prefixes for key in KEYS}
        named = stream.map(lambda step: Step(branch + step.key, step.number), output_type=Step)
        named.key_by(lambda step: step.key).process(InOrder()).uid(f"order-{self._number}").print()


def every_edge(checked: Checked, s: DataStream[Any], prefix: str, other: int) -> None:
    """Branches over every way that records take from one operator to the next; `other` is another parallelism."""
    uid = iter(f"{prefix}-{number}" for number in range(100))
    rules = s.filter(lambda step: step.number < 3)
    through = s.process(Through())
    for branch in (
        s,
        through,
        through.get_side_output(ASIDE),
        through.process(Through()).process(Through()).set_parallelism(other),
        through.process(Through()).set_parallelism(1).process(Through()),
        s.connect(rules.broadcast(RULES)).process(ThroughRules()).uid(next(uid)),
        through.connect(through.broadcast(RULES)).process(ThroughRules()).uid(next(uid)),
        s.key_by(lambda step: step.key).process(ThroughKeyed()).uid(next(uid)).process(Through()),
        s.key_by(lambda step: step.key * 2, key_type=str).process(ThroughKeyed()).uid(next(uid)),
    ):
        checked.check(branch, prefix)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Let Spark hand over few records at once, so that every edge sees many batches."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    usual = spark.conf.get(setting)
    assert usual is not None
    spark.conf.set(setting, "50")
    yield
    spark.conf.set(setting, usual)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_every_key_sees_its_records_in_order(
    jobs: Jobs, small_batches: None, line_server: LineServer, parallelism: int
) -> None:
    texts = jobs.texts(*("\n".join(lines(f"text{number}-")) for number in range(3)))
    jsons = jobs.texts("\n".join(json.dumps(step._asdict()) for step in steps("json-")), directory="json")
    env, checked = jobs.environment(parallelism), Checked()
    collection = env.from_collection(steps("collection-"))
    text = env.read_text(texts).map(parsed)
    stream = env.read_stream("json", schema="key string, number bigint", path=jsons).map(lambda row: Step(*row))
    own = env.add_source(Own(), output_type=Step).uid("own")
    with line_server(*lines("socket-")) as port:
        socket = env.socket_text_stream("localhost", port).map(parsed)
        every_edge(checked, collection, "collection-", other=parallelism % 3 + 1)
        for source, prefixes in (
            (text, ["text0-", "text1-", "text2-"]),
            (stream, ["json-"]),
            (socket, ["socket-"]),
            (own, [f"own{subtask}-" for subtask in range(parallelism)]),
        ):
            checked.check(source, *prefixes)
            checked.check(source.process(Through()), *prefixes)
        later = collection.key_by(lambda step: step.key).process(ThroughKeyed()).uid("later")
        united = text.union(later).process(Through())  # what is read must pass a level that is not for it
        checked.check(united, "text0-", "text1-", "text2-", "collection-")
        collection.rebalance().process(Subtask()).print()
        checked.expected |= {f"subtask {number}" for number in range(parallelism)}

        def cancel_when_complete(printed: list[str]) -> None:
            if len(jobs.watcher.lines) >= len(checked.expected):
                jobs.cancel()

        jobs.watcher.on_printed = cancel_when_complete
        env.execute()

    assert sorted(jobs.watcher.values) == sorted((key, "complete") for key in checked.expected)
