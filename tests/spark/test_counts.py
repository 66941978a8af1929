"""What a job on Spark tells of its operators: also of those that Spark runs, and after a failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from checkdam import StreamExecutionEnvironment
from checkdam.graph.levels import JobPlan, plan_job
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.source_side import source_side_counts

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark
PATIENCE_SECONDS = 60.0


def _out(plan: JobPlan, epochs: list[EpochStats]) -> dict[str, list[tuple[int, int]]]:
    """By name, the records into and out of each operator of the source side, epoch by epoch."""
    told: dict[str, list[tuple[int, int]]] = {op.name: [] for op in plan.source_side}
    for stats in epochs:
        counts = source_side_counts(plan, stats)
        for op in plan.source_side:
            own = [each for of, each in counts.items() if of[0] == op.id]
            told[op.name].append((sum(each.records_in for each in own), sum(each.records_out for each in own)))
    return told


def _plan(environment: StreamExecutionEnvironment) -> JobPlan:
    """Of what the environment holds until it is executed."""
    return plan_job("x", environment._operators, parallelism=2, max_parallelism=None)


def test_python_on_the_source_side_counts_what_every_epoch_brought(jobs: Jobs) -> None:
    environment = jobs.environment()

    lines = environment.read_text(jobs.texts("to be\nor not\n", "to be\n"), max_files_per_epoch=1)
    words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
    words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count").print()
    plan = _plan(environment)

    environment.execute("word count")

    told = _out(plan, jobs.watcher.epochs)
    assert list(told.values()) == [[(0, 2), (0, 1)], [(2, 4), (1, 2)], [(4, 4), (2, 2)]]
    assert [sum(n.records for r in e.reports for n in r.received.values()) for e in jobs.watcher.epochs] == [4, 2]
    assert all(report.memory > 0 for stats in jobs.watcher.epochs for report in stats.reports)


def test_columns_that_spark_alone_moves_are_counted_behind_the_exchange(jobs: Jobs) -> None:
    environment = jobs.environment()
    pairs = environment.from_collection([("a", 1), ("b", 2), ("a", 3)], tuple[str, int])
    pairs.key_by(0, key_type=str).sum(1).uid("sum").print()
    plan = _plan(environment)

    environment.execute("sums")

    told = _out(plan, jobs.watcher.epochs)
    assert list(told.values()) == [[(0, 3)]]
    assert not jobs.watcher.epochs[0].source_side


def test_the_work_of_each_partition_counts_for_its_subtask(jobs: Jobs) -> None:
    environment = jobs.environment()
    lines = environment.read_text(jobs.texts("a\nb\n", "c\n", "d\n"))
    lines.map(str.upper, str).key_by(lambda line: line, key_type=str).reduce(lambda a, b: a).uid("r").print()

    environment.execute("lines")

    [stats] = [each for each in jobs.watcher.epochs if each.source_side]
    by_subtask: dict[int, int] = {}
    for (_, subtask), counts in stats.source_side.items():
        by_subtask[subtask] = max(by_subtask.get(subtask, 0), counts.records_out)
    assert sum(by_subtask.values()) == 4
    assert set(by_subtask) == {0, 1}  # three partitions, two subtasks


@contextmanager
def _talking() -> Iterator[int]:
    """The port of a server that says a line every now and then."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                while not over.wait(0.2):
                    connection.sendall(b"word\n")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            over.set()
    thread.join(PATIENCE_SECONDS)


def test_a_source_whose_offsets_count_records_tells_what_it_has_not_read(jobs: Jobs) -> None:
    """A socket's offsets count lines, and a micro-batch takes all of them; Kafka, which is not here, reports alike."""
    seen: list[int] = []
    told = threading.Event()

    def sources_seen(pending: Mapping[int, int]) -> None:
        seen.extend(pending.values())
        if seen:
            told.set()

    environment = jobs.environment()
    jobs.watcher.sources_seen = sources_seen  # type: ignore[method-assign]
    with _talking() as port:
        words = environment.socket_text_stream("127.0.0.1", port).map(lambda word: (word, 1), tuple[str, int])
        words.key_by(0, key_type=str).sum(1).uid("s").print()

        job = environment.execute_async("words")
        is_told = told.wait(PATIENCE_SECONDS)
        job.cancel()
        job.wait(PATIENCE_SECONDS)

    assert is_told
    assert set(seen) == {0}
