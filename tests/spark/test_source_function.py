"""Source functions on Spark: in slots, pulled by epochs of their own, exactly once over a failover."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.test_control import Host

from checkdam import FixedDelayRestart
from checkdam.checkpoint.settings import JobEnd
from checkdam.graph.functions import CheckpointedFunction, SourceFunction
from checkdam.runtime.driver import attempt
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.state_reader import Savepoint

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark

PATIENCE = 60.0


class Numbers(SourceFunction, CheckpointedFunction):
    """The numbers below a limit, dealt out to the subtasks."""

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
            yield str((self.following - self.step) % 10), 1


def test_a_job_of_source_functions_alone_runs_to_its_end_and_counts_once_over_a_lost_slot(jobs: Jobs) -> None:
    limit = 250_000  # more than two subtasks give in one epoch
    environment = jobs.environment(2, jobs.checkpoints())
    environment.set_restart_strategy(FixedDelayRestart(attempts=2, delay=timedelta(0)))
    numbers = environment.add_source(Numbers(limit), output_type=tuple[str, int]).uid("numbers")
    counted = numbers.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("sum")
    largest: dict[str, int] = {}
    counted.filter(lambda pair: pair[1] % 1000 == 0).print()
    pids: list[Sequence[int]] = []
    jobs.watcher.on_slots = pids.append

    def kill_once(_: object) -> None:
        if len(pids) == 1:
            os.kill(pids[0][1], signal.SIGKILL)

    jobs.watcher.on_checkpoint = kill_once
    environment.execute()

    for key, count in jobs.watcher.values:
        largest[key] = max(count, largest.get(key, 0))
    assert largest == {str(digit): limit // 10 for digit in range(10)}
    assert len(pids) == 2
    assert len(jobs.watcher.epochs) > 2


def test_a_source_function_beside_a_spark_source_brings_all_its_records(jobs: Jobs) -> None:
    texts = jobs.texts("x\n", "x y\n")
    environment = jobs.environment(2, jobs.checkpoints())
    words = environment.read_text(texts, max_files_per_epoch=1).flat_map(str.split, output_type=str)
    pairs = words.map(lambda word: (word, 1), output_type=tuple[str, int])
    numbers = environment.add_source(Numbers(1000), output_type=tuple[str, int]).uid("numbers")
    pairs.union(numbers).key_by(lambda pair: pair[0], key_type=str).sum(1).uid("sum").print()

    environment.execute()

    expected = Counter([("x", 1), ("x", 2), ("y", 1)])
    expected.update((str(digit), count) for digit in range(10) for count in range(1, 101))
    assert Counter(jobs.watcher.values) == expected


def test_every_epoch_without_records_visits_the_slots_also_of_a_job_with_one_level(jobs: Jobs) -> None:
    environment = jobs.environment(1, jobs.checkpoints())
    numbers = environment.add_source(Numbers(120_000), output_type=tuple[str, int]).uid("numbers")
    numbers.map(lambda pair: pair[0], output_type=str).filter(lambda digit: digit == "7").print()

    environment.execute()

    assert len(jobs.watcher.lines) == 12_000
    assert sum(stats.records for stats in jobs.watcher.epochs) == 120_000
    assert len(jobs.watcher.epochs) > 2


class Bell(SourceFunction, CheckpointedFunction):
    """Numbers: three at once, then one for each line that comes through a pipe. Only the first subtask has any."""

    def __init__(self, pipe: str) -> None:
        self.pipe = pipe

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.following = sum(self.kept.get())

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])

    def run(self, ctx: Any) -> Iterator[tuple[str, int]]:
        if ctx.subtask_index > 0:
            return
        while self.following < 3:
            self.following += 1
            yield f"at once {self.following}", 1
        while True:
            self.following += 1  # counts with the next record, and not with a checkpoint before it
            with open(self.pipe) as lines:  # waits for somebody to open the other end
                yield f"{lines.read().strip()} {self.following}", 1


def test_a_job_goes_on_while_a_source_function_waits_and_cancel_does_not_wait_for_it(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = jobs.tmp_path / "bell"
    os.mkfifo(pipe)
    # So rarely that only a signal can bring an epoch.
    rarely: dict[str, object] = {"heartbeat.interval": "5 min", "heartbeat.timeout": "10 min"}
    environment = jobs.environment(2, jobs.checkpoints(None), settings=rarely)
    numbers = environment.add_source(Bell(str(pipe)), output_type=tuple[str, int]).uid("bell")
    numbers.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("sum").map(lambda pair: pair[0], str).print()
    host = environment._launch.host = Host()
    printed, paths = threading.Semaphore(0), list[str]()
    monkeypatch.setattr(attempt, "_BREAK_OFF_SECONDS", 3600.0)  # no slot is killed because its source does not end
    jobs.watcher.on_printed = lambda lines: printed.release(len(lines))

    def use() -> None:
        try:
            assert all(printed.acquire(timeout=PATIENCE) for _ in range(3))
            control = host.started[0].control
            control.trigger_checkpoint().result(PATIENCE)
            savepoints = str(jobs.tmp_path / "savepoints")
            paths.append(control.trigger_savepoint(savepoints, SavepointFormat.CANONICAL).result(PATIENCE))
            pipe.write_text("rung\n")
            assert printed.acquire(timeout=PATIENCE)
        finally:
            jobs.cancel()

    using = threading.Thread(target=use, daemon=True)
    using.start()
    environment.execute()
    using.join(PATIENCE)

    assert jobs.watcher.end is JobEnd.CANCELLED
    assert sorted(jobs.watcher.shown) == ["at once 1", "at once 2", "at once 3", "rung 4"]
    assert [each.kind for each in jobs.watcher.checkpoints] == [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT]
    assert dict(Savepoint.load(paths[0]).operator_state("bell", "next")) == {0: 3, 1: 0}
