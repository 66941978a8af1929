"""Whole jobs on Spark: what goes in, through which graph, and exactly what comes out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from checkdam import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessContext,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import JobGraphError, UserFunctionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark

TEXT = ["to be or not to be", "that is the question", "to be"]


class Sale(NamedTuple):
    shop: str
    item: str
    amount: int


@dataclass(frozen=True)
class Reading:
    sensor: str
    value: float


def _running(words: list[str]) -> Counter[tuple[str, int]]:
    """What a running count emits: each word with 1, 2, … up to its total."""
    return Counter((word, n + 1) for word, total in Counter(words).items() for n in range(total))


def _final(values: list[tuple[str, int]]) -> dict[str, int]:
    return dict(values)


# -- word counts ------------------------------------------------------------------------------------------------


def test_words_of_a_collection_are_counted_and_the_last_checkpoint_is_kept(jobs: Jobs) -> None:
    env = jobs.environment(checkpoints=jobs.checkpoints())
    (
        env.from_collection(TEXT)
        .flat_map(str.split, output_type=str)
        .map(lambda word: (word, 1), output_type=tuple[str, int])
        .key_by(lambda pair: pair[0], key_type=str)
        .sum(1)
        .uid("wc-sum")
        .print()
    )

    result = env.execute("StreamWordCount")

    assert Counter(jobs.watcher.values) == _running(" ".join(TEXT).split())
    assert result.end is JobEnd.FINISHED
    assert result.last_checkpoint == jobs.watcher.checkpoints[-1].path
    assert (Path(result.last_checkpoint.removeprefix("file://")) / "_metadata").is_file()


def test_text_files_are_read_one_an_epoch_with_a_checkpoint_after_each(jobs: Jobs) -> None:
    texts = jobs.texts(*TEXT)

    result = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints(num_retained=2)), texts)

    assert _final(jobs.watcher.values) == Counter(" ".join(TEXT).split())
    assert [stats.records for stats in jobs.watcher.epochs] == [6, 4, 2]
    assert [stats.checkpoint_id for stats in jobs.watcher.checkpoints] == [1, 2, 3]
    kept = sorted(path.name for path in (jobs.tmp_path / "ck" / result.job_id).glob("chk-*"))
    assert kept == ["chk-2", "chk-3"]


def test_a_job_without_a_checkpoint_directory_runs_and_keeps_none(jobs: Jobs) -> None:
    result = jobs.word_count(jobs.environment(parallelism=1), jobs.texts(*TEXT))

    assert _final(jobs.watcher.values) == Counter(" ".join(TEXT).split())
    assert result.last_checkpoint is None


def test_a_session_that_was_there_outlives_a_job_of_another_thread(jobs: Jobs, spark: SparkSession) -> None:
    env = jobs.environment()
    env.from_collection(["a"]).print()

    with ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(env.execute).result()

    assert result.end is JobEnd.FINISHED
    assert jobs.watcher.shown == ["a"]
    assert spark.range(3).count() == 3


# -- records of every form ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [("a", 1), ("b", 2)],
        [1, -2, 2**62],
        ["one", "", "drei 水"],
        [Reading("x", 1.5), Reading("y", -0.0)],
        [Sale("s", "i", 3), Sale("t", "j", 4)],
        [[1, 2], {"mixed": "types"}, None],
    ],
    ids=["tuples", "ints", "strs", "dataclasses", "named tuples", "anything"],
)
def test_a_collection_arrives_as_what_it_was(jobs: Jobs, values: list[Any]) -> None:
    env = jobs.environment()
    env.from_collection(values).filter(lambda value: True).print()

    env.execute()

    assert Counter(jobs.watcher.shown) == Counter(map(str, values))


class CountWindowAverage(FlatMapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.sum = ctx.get_state(ValueStateDescriptor("average", tuple[int, int], default=(0, 0)))

    def flat_map(self, pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
        count, total = self.sum.value()
        count, total = count + 1, total + pair[1]
        if count >= 2:
            yield pair[0], total // count
            self.sum.clear()
        else:
            self.sum.update((count, total))


def test_keyed_state_in_a_function_averages_pairs_in_order(jobs: Jobs) -> None:
    env = jobs.environment()
    pairs = env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])
    pairs.key_by(lambda p: p[0]).flat_map(CountWindowAverage()).uid("average").print()

    env.execute()

    assert jobs.watcher.values == [(1, 4), (1, 5)]


# -- keys ---------------------------------------------------------------------------------------------------------

SALES = [Sale("x", "tea", 3), Sale("y", "tea", 5), Sale("x", "nut", 7), Sale("x", "tea", 1)]


@pytest.mark.parametrize(
    ("key", "key_type", "by"),
    [
        ("shop", None, lambda sale: sale.shop),
        (1, None, lambda sale: sale.item),
        (lambda sale: sale.shop, None, lambda sale: sale.shop),
        (lambda sale: (sale.shop, sale.item), None, lambda sale: (sale.shop, sale.item)),
        (lambda sale: sale.shop + sale.item, str, lambda sale: sale.shop + sale.item),
        (lambda sale: sale.amount % 2, int, lambda sale: sale.amount % 2),
    ],
    ids=["column name", "index", "lambda", "two fields", "computed str", "computed int"],
)
def test_records_are_keyed_by(jobs: Jobs, key: Any, key_type: Any, by: Any) -> None:
    env = jobs.environment()
    env.from_collection(SALES).key_by(key, key_type=key_type).sum("amount").uid("sum").print()

    env.execute()

    kept: dict[Any, Sale] = {}
    expected = []
    for sale in SALES:
        before = kept.get(by(sale))
        kept[by(sale)] = sale if before is None else before._replace(amount=before.amount + sale.amount)
        expected.append(str(kept[by(sale)]))
    assert Counter(jobs.watcher.shown) == Counter(expected)


def test_a_key_of_unknown_type_is_an_error_that_says_what_to_write(jobs: Jobs) -> None:
    numbers = jobs.environment().from_collection([1, 2, 3])

    with pytest.raises(JobGraphError, match=r"key_by\(…, key_type=str\)"):
        numbers.key_by(lambda n: n % 2)


# -- graphs -------------------------------------------------------------------------------------------------------


def _pairs(env: StreamExecutionEnvironment, *pairs: tuple[str, int]) -> Any:
    return env.from_collection(pairs)


def test_streams_of_different_levels_unite(jobs: Jobs) -> None:
    env = jobs.environment()
    summed = _pairs(env, ("a", 1), ("b", 2), ("a", 3)).key_by(0).sum(1).uid("first")  # a 1, b 2, a 4
    plain = _pairs(env, ("a", 100), ("c", 5)).map(lambda p: (p[0], p[1] * 10), output_type=tuple[str, int])
    united = plain.union(summed, _pairs(env, ("c", 7)))
    united.key_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("second").print()

    env.execute()

    final: dict[str, int] = {}
    for word, total in jobs.watcher.values:
        final[word] = max(total, final.get(word, 0))
    assert final == {"a": 1005, "b": 2, "c": 57}
    assert len(jobs.watcher.values) == 6


def test_levels_of_different_parallelism_follow_one_another(jobs: Jobs) -> None:
    env = jobs.environment(parallelism=2, checkpoints=jobs.checkpoints())
    words = env.read_text(jobs.texts(*TEXT), max_files_per_epoch=1).flat_map(str.split, output_type=str)
    counts = words.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("words").set_parallelism(1)
    lengths = counts.filter(lambda p: p[1] == 1).map(lambda p: (len(p[0]), 1), output_type=tuple[int, int])
    lengths.key_by(0).sum(1).uid("lengths").print().set_parallelism(1)

    env.execute()

    distinct = set(" ".join(TEXT).split())
    assert dict(jobs.watcher.values) == Counter(map(len, distinct))
    assert len(jobs.watcher.values) == len(distinct)


def test_one_stream_feeds_several_sinks_and_branches(jobs: Jobs) -> None:
    env = jobs.environment()
    words = env.from_collection(TEXT).flat_map(str.split, output_type=str)
    counts = words.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("words")
    counts.print()
    counts.sink_to_files(str(jobs.tmp_path / "counts"))
    epochs: list[tuple[int, list[tuple[Any, ...]]]] = []
    counts.sink_to_spark(lambda df, epoch: epochs.append((epoch, [tuple(row) for row in df.collect()])))
    words.map(lambda w: (w[0], 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("initials").print("initial")

    env.execute()

    all_words = " ".join(TEXT).split()
    shown = [line for line in jobs.watcher.lines if not line.startswith("initial")]
    assert len(shown) == len(all_words)
    files = (jobs.tmp_path / "counts").glob("part-*.json")
    written = [tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines()]
    assert Counter(written) == _running(all_words)
    assert [epoch for epoch, _ in epochs] == [0]
    assert Counter(epochs[0][1]) == _running(all_words)
    initials = [line.partition("> ")[2] for line in jobs.watcher.lines if line.startswith("initial")]
    assert Counter(initials) == Counter(map(str, _running([word[0] for word in all_words]).elements()))


def test_a_collection_and_files_run_in_one_job(jobs: Jobs) -> None:
    env = jobs.environment(checkpoints=jobs.checkpoints())
    lines = env.read_text(jobs.texts(*TEXT), max_files_per_epoch=2)
    both = lines.union(env.from_collection(["to sleep"])).flat_map(str.split, output_type=str)
    both.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count").print()

    env.execute()

    assert _final(jobs.watcher.values) == Counter([*" ".join(TEXT).split(), "to", "sleep"])
    assert [stats.epoch for stats in jobs.watcher.epochs] == [0, 1, 2]


# -- aggregates ---------------------------------------------------------------------------------------------------


def test_integers_themselves_are_summed_and_compared(jobs: Jobs) -> None:
    numbers = [5, 3, 8, -1, 4, 9]
    env = jobs.environment(parallelism=1)
    odd_or_even = env.from_collection(numbers).key_by(lambda n: n % 2, key_type=int)
    odd_or_even.sum().uid("sum").print("sum")
    odd_or_even.min().uid("min").print("min")
    odd_or_even.max().uid("max").print("max")

    env.execute()

    got = {how: [line for line in jobs.watcher.lines if line.startswith(how)] for how in ("sum", "min", "max")}
    assert got == {
        "sum": [f"sum> {n}" for n in (5, 8, 8, 7, 12, 16)],
        "min": [f"min> {n}" for n in (5, 3, 8, -1, 4, -1)],
        "max": [f"max> {n}" for n in (5, 5, 8, 5, 8, 9)],
    }


def test_floats_add_up_as_they_do_record_by_record(jobs: Jobs) -> None:
    amounts = [0.1, 1e16, 0.2, -1e16, 0.3, 1e-9] * 5
    env = jobs.environment()
    env.from_collection([("k", amount) for amount in amounts]).key_by(0).sum(1).uid("sum").print()

    env.execute()

    expected, total = [], None
    for amount in amounts:
        total = amount if total is None else total + amount
        expected.append(("k", total))
    assert jobs.watcher.values == expected


def test_reduce_keeps_named_tuples(jobs: Jobs) -> None:
    def larger(a: Sale, b: Sale) -> Sale:
        return Sale(a.shop, max(a.item, b.item), a.amount * b.amount)

    env = jobs.environment()
    env.from_collection(SALES).key_by("shop").reduce(larger).uid("reduce").print()

    env.execute()

    assert Counter(jobs.watcher.shown) == Counter(
        map(str, [Sale("x", "tea", 3), Sale("y", "tea", 5), Sale("x", "tea", 21), Sale("x", "tea", 21)])
    )


# -- functions with a life ----------------------------------------------------------------------------------------


class Numbered(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: str, ctx: ProcessContext[str]) -> Iterator[tuple[str, int, str]]:
        self.count.update(self.count.value() + 1)
        yield ctx.current_key, self.count.value(), value


def test_process_element_sees_its_key_and_that_keys_state_across_epochs(jobs: Jobs) -> None:
    env = jobs.environment()
    lines = env.read_text(jobs.texts("ant\nbee\nasp", "boa\nape", "bat"), max_files_per_epoch=1)
    lines.key_by(lambda line: line[0], key_type=str).process(Numbered()).uid("number").print()

    env.execute()

    assert sorted(jobs.watcher.values) == [
        ("a", 1, "ant"),
        ("a", 2, "asp"),
        ("a", 3, "ape"),
        ("b", 1, "bee"),
        ("b", 2, "boa"),
        ("b", 3, "bat"),
    ]


class Witnessed(MapFunction):
    """Writes down when it is opened and closed; refuses "bad"."""

    def __init__(self, log: str) -> None:
        self.log = log

    def _write(self, what: str) -> None:
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"{what}\n")

    def open(self, ctx: RuntimeContext) -> None:
        self.me = f"{ctx.operator_name} {ctx.subtask_index}/{ctx.parallelism}"
        self._write(f"open {self.me}")

    def map(self, value: str) -> str:
        if value == "bad":
            raise ValueError("refused")
        return value.upper()

    def close(self) -> None:
        self._write(f"close {self.me}")


def test_a_function_is_opened_and_closed_once_a_slot_however_many_epochs(jobs: Jobs) -> None:
    log = jobs.tmp_path / "log"
    env = jobs.environment()
    lines = env.read_text(jobs.texts("a\nb", "c", "d"), max_files_per_epoch=1)
    lines.map(Witnessed(str(log)), output_type=str).name("witness").print()

    env.execute()

    assert sorted(jobs.watcher.shown) == ["A", "B", "C", "D"]
    calls = log.read_text().splitlines()
    assert sorted(calls[:2]) == ["open witness 0/2", "open witness 1/2"]
    assert sorted(calls[2:]) == ["close witness 0/2", "close witness 1/2"]


def test_a_function_is_closed_once_also_after_a_failure(jobs: Jobs) -> None:
    log = jobs.tmp_path / "log"
    env = jobs.environment()
    env.from_collection(["good", "bad"]).map(Witnessed(str(log)), output_type=str).name("witness").print()

    with pytest.raises(UserFunctionError, match="refused"):
        env.execute()

    assert Counter(log.read_text().splitlines()) == Counter(
        ["open witness 0/2", "open witness 1/2", "close witness 0/2", "close witness 1/2"]
    )


def test_local_properties_of_the_program_hold_in_every_epoch(jobs: Jobs, spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[int, str | None]] = []
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\ny\n")

    def note(rows: Any, epoch: int) -> None:
        seen.append((epoch, spark.sparkContext.getLocalProperty("spark.scheduler.pool")))

    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        env = jobs.environment()
        env.from_collection(["a", "b"]).sink_to_spark(note)
        env.read_text(str(tmp_path / "in")).sink_to_spark(note)
        env.execute("properties")
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)

    assert {epoch for epoch, _ in seen} >= {0, 1}
    assert {pool for _, pool in seen} == {"mine"}
