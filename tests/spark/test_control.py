"""What is asked of a job while Spark runs it: savepoints, stop, other parallelism. Output stays exact throughout."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import StreamExecutionEnvironment
from checkdam.checkpoint.settings import JobEnd
from checkdam.ids import JobId
from checkdam.runtime.job_control import JobControl, RunningJob, SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import EpochStats

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.runtime.job_result import JobResult

pytestmark = pytest.mark.spark

FILES = ["a b a", "c a", "b d e", "a f", "g a b", "h a"]
CANONICAL = SavepointFormat.CANONICAL


class Host:
    def __init__(self) -> None:
        self.started: list[RunningJob] = []
        self.ended: list[JobId] = []

    def job_started(self, job: RunningJob) -> None:
        self.started.append(job)

    def job_ended(self, job_id: JobId) -> None:
        self.ended.append(job_id)


class Counting:
    """Counts words, one file an epoch, into files; does something behind certain epochs."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.texts = jobs.texts(*FILES)
        self.out = jobs.tmp_path / "out"
        self.savepoints = str(jobs.tmp_path / "savepoints")
        self.host = Host()
        self.asked: list[Future[Any]] = []

    def run(
        self,
        environment: StreamExecutionEnvironment,
        behind: dict[int, Callable[[JobControl], Future[Any]]],
        *,
        is_endless: bool = False,
    ) -> JobResult:
        host = environment._launch.host = self.host

        def on_epoch(stats: EpochStats) -> None:
            if stats.epoch in behind:
                self.asked.append(behind.pop(stats.epoch)(host.started[-1].control))

        self.jobs.watcher.on_epoch = on_epoch
        if is_endless:
            rows = environment.read_stream("text", path=self.texts, maxFilesPerTrigger=1)
            lines = rows.map(lambda row: row.value, output_type=str)
        else:
            lines = environment.read_text(self.texts, max_files_per_epoch=1)
        words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
        counts = words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count")
        counts.sink_to_files(str(self.out)).uid("out")
        return environment.execute("control")

    def output(self) -> Counter[tuple[str, int]]:
        files = [file for file in self.out.glob("part-*") if file.is_file()]
        return Counter(tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines())

    @staticmethod
    def expected(files: list[str] = FILES) -> Counter[tuple[str, int]]:
        counted = Counter(" ".join(files).split())
        return Counter((word, n + 1) for word, count in counted.items() for n in range(count))


def test_a_job_stopped_with_a_savepoint_is_resumed_from_it_without_a_record_lost_or_repeated(jobs: Jobs) -> None:
    counting = Counting(jobs)
    stop = {3: lambda control: control.stop_with_savepoint(counting.savepoints, CANONICAL, drain=False)}

    stopped = counting.run(jobs.environment(2, jobs.checkpoints(None)), stop)
    published = counting.output()
    path = counting.asked[0].result(0)
    resumed = counting.run(jobs.environment(3, jobs.checkpoints(None), restore=path), {})

    assert stopped.end is JobEnd.FINISHED
    assert published == counting.expected(FILES[:3])
    assert [stats.epoch for stats in jobs.watcher.epochs] == [4, 5, 6]
    assert counting.output() == counting.expected()
    assert counting.host.ended == [stopped.job_id, resumed.job_id]


def test_a_stream_without_end_stops_and_goes_on_with_what_has_come_since(jobs: Jobs) -> None:
    counting = Counting(jobs)

    def stop(control: JobControl) -> Future[str]:
        return control.stop_with_savepoint(counting.savepoints, CANONICAL, drain=False)

    counting.run(jobs.environment(2, jobs.checkpoints(None)), {6: stop}, is_endless=True)
    published = counting.output()
    jobs.texts("a i", first=len(FILES))
    restore = counting.asked[0].result(0)
    counting.run(jobs.environment(2, jobs.checkpoints(None), restore=restore), {7: stop}, is_endless=True)

    assert published == counting.expected()
    assert [stats.epoch for stats in jobs.watcher.epochs] == [7]
    assert counting.output() == counting.expected([*FILES, "a i"])
    assert jobs.watcher.end is JobEnd.FINISHED


def test_a_running_job_goes_on_at_three_subtasks_and_then_at_one(jobs: Jobs) -> None:
    counting = Counting(jobs)
    rescales = {2: lambda control: control.rescale(3), 4: lambda control: control.rescale(1)}

    result = counting.run(jobs.environment(2, jobs.checkpoints(None)), rescales)

    assert [answer.exception(0) for answer in counting.asked] == [None, None]
    assert [len(pids) for pids in jobs.watcher.attempts] == [2, 3, 1]
    assert [stats.epoch for stats in jobs.watcher.epochs] == [1, 2, 3, 4, 5, 6]
    assert jobs.watcher.failures == []
    assert counting.output() == counting.expected()
    record = counting.host.started[-1].monitor.record()
    assert (result.end, record.status, record.parallelism) == (JobEnd.FINISHED, JobStatus.FINISHED, 1)


def test_a_savepoint_of_a_running_job_is_whole_and_leaves_the_job_alone(jobs: Jobs) -> None:
    counting = Counting(jobs)
    save = {2: lambda control: control.trigger_savepoint(counting.savepoints, CANONICAL)}

    counting.run(jobs.environment(2), save)  # there is no checkpoint storage
    output = counting.output()
    path = counting.asked[0].result(0)
    counting.run(jobs.environment(1, jobs.checkpoints(), restore=path), {})

    assert output == counting.expected()
    assert [stats.epoch for stats in jobs.watcher.epochs] == [3, 4, 5, 6]
    again = [("b", 2), ("d", 1), ("e", 1), ("a", 4), ("f", 1), ("g", 1), ("a", 5), ("b", 3), ("h", 1), ("a", 6)]
    assert counting.output() - output == Counter(again)
