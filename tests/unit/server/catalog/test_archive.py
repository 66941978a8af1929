"""What the archive promises: what was saved is found again, and nothing bad in it harms anybody."""

from __future__ import annotations

import logging
import math
import threading
from datetime import timedelta

import msgspec
import pytest
from tests.support.waiting import poll
from tests.unit.server.records import JOB_ID, checkpoint, job

from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import FencedError, JobFailedError
from checkdam.graph.metrics import MetricGroup, OperatorMetrics
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats
from checkdam.runtime.monitor.job_records import JobRecord, OperatorFigures, SnapshotKind, SubtaskFigures
from checkdam.runtime.restart import Restart
from checkdam.server.catalog import archive as archive_module
from checkdam.server.catalog.archive import ArchivingListener, JobArchive
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage
from checkdam.testing.manual_clock import ManualClock

ENTRY = f"_jobs/{JOB_ID}.json"


class Monitor:
    def __init__(self) -> None:
        self.now = job()
        self.asked = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def record(self) -> JobRecord:
        self.asked.set()
        self.may_go_on.wait(10)
        return self.now

    def figure_history(self) -> tuple[()]:
        return ()


def _savepoint(kind: SnapshotKind) -> CheckpointStats:
    return CheckpointStats(CheckpointId(1), Epoch(1), "file:///x", 0.1, 0.0, 0.0, 0, 0, kind=kind)


def _all(archive: JobArchive, storage: MemoryStorage) -> list[JobRecord]:
    return archive.among(storage.list("_jobs"))


def _saved(storage: MemoryStorage) -> JobRecord | None:
    return next((each for each in _all(JobArchive(storage), storage) if each.id == JOB_ID), None)


def test_a_saved_job_comes_back_as_it_was() -> None:
    storage = MemoryStorage()
    JobArchive(storage).save(job())

    assert _saved(storage) == job()
    assert _all(JobArchive(storage), storage) == [job()]


def test_a_job_with_metrics_that_are_not_finite_comes_back() -> None:
    metrics = OperatorMetrics("count")
    group = MetricGroup(metrics)
    group.gauge("ratio", lambda: math.nan)
    group.gauge("limit", lambda: math.inf)
    group.counter("weight").inc(math.inf)  # type: ignore[arg-type]
    group.meter("events").mark_event(math.inf)  # type: ignore[arg-type]
    for value in (math.nan, -math.inf, 1e308, -1e308):
        group.histogram("sizes").update(value)
    figures = OperatorFigures(1, (SubtaskFigures(0, user=dict(metrics.read())),))
    record = msgspec.structs.replace(job(), figures=(figures,))
    storage = MemoryStorage()

    JobArchive(storage).save(record)

    assert _saved(storage) == record


def test_saving_again_replaces_what_was_saved_also_for_one_who_has_read_it() -> None:
    storage = MemoryStorage()
    archive, reader = JobArchive(storage), JobArchive(storage)
    archive.save(job())
    _all(reader, storage)

    archive.save(job(status=JobStatus.FINISHED, restarts=12))

    assert [(each.status, each.restarts) for each in _all(reader, storage)] == [(JobStatus.FINISHED, 12)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"id": 7}',
        b'"text"',
        msgspec.json.encode(job(id="d" * 32)),
        msgspec.json.encode({**msgspec.to_builtins(job()), "format": 2}),
    ],
    ids=["empty", "cut off", "not text", "deep", "no record", "other JSON", "another job's", "newer"],
)
def test_an_entry_that_cannot_be_used_is_logged_and_the_others_are_listed(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    archive = JobArchive(storage)
    archive.save(job(id="b" * 32))
    storage.write(ENTRY, content)

    with caplog.at_level(logging.WARNING):
        found = _all(archive, storage)

    assert [each.id for each in found] == ["b" * 32]
    assert ENTRY in caplog.text


def test_a_field_of_a_later_version_is_passed_over() -> None:
    storage = MemoryStorage()
    storage.write(ENTRY, msgspec.json.encode({**msgspec.to_builtins(job()), "added later": 1}))

    assert _saved(storage) == job()


def test_a_huge_entry_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    JobArchive(storage).save(job())
    monkeypatch.setattr(archive_module, "MOST_BYTES", 100)

    assert _all(JobArchive(storage), storage) == []


def test_details_of_older_checkpoints_are_left_out_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    monkeypatch.setattr(archive_module, "MOST_DETAILS", 4)
    history = tuple(checkpoint(number) for number in (4, 3, 2, 1))

    JobArchive(storage).save(job(checkpoints=history))

    [saved] = _all(JobArchive(storage), storage)
    assert [(each.id, bool(each.operators)) for each in saved.checkpoints] == [
        (4, True),
        (3, True),
        (2, False),
        (1, False),
    ]


# ---------------------------------------------------------------------------------------------- while a job runs


def test_a_job_is_saved_at_its_start_and_its_end() -> None:
    storage, monitor = MemoryStorage(), Monitor()
    listener = ArchivingListener(JobArchive(storage), monitor)
    listener.job_started(JobId(JOB_ID), "word count", 2)
    assert listener.settle()
    at_start = _saved(storage)
    monitor.now = job(status=JobStatus.FINISHED)

    listener.job_ended(JobEnd.FINISHED, None)

    at_end = _saved(storage)
    assert at_start is not None
    assert at_start.status is JobStatus.RUNNING
    assert at_end is not None
    assert at_end.status is JobStatus.FINISHED


def test_status_restarts_savepoints_and_rescales_are_saved_at_once_and_the_rest_is_not() -> None:
    monitor = Monitor()
    listener = ArchivingListener(JobArchive(MemoryStorage()), monitor, ManualClock())

    def saves(event: object) -> bool:
        monitor.asked.clear()
        assert callable(event)
        event()
        assert listener.settle()
        return monitor.asked.is_set()

    assert saves(lambda: listener.status_changed(JobStatus.RUNNING))
    assert saves(lambda: listener.restarting(JobFailedError("x"), Restart(timedelta(0))))
    assert saves(lambda: listener.rescaled(4, None))
    assert saves(lambda: listener.checkpoint_completed(_savepoint(SnapshotKind.SAVEPOINT)))
    assert not saves(lambda: listener.checkpoint_completed(_savepoint(SnapshotKind.CHECKPOINT)))
    assert not saves(lambda: listener.epoch_ended(EpochStats(Epoch(1), 1, 0.1)))


def test_the_entry_of_a_job_that_runs_on_falls_ten_seconds_behind_at_most() -> None:
    storage, monitor, clock = MemoryStorage(), Monitor(), ManualClock()
    listener = ArchivingListener(JobArchive(storage), monitor, clock)
    clock.on_advance = listener.time_passed
    listener.job_started(JobId(JOB_ID), "word count", 2)
    assert listener.settle()
    monitor.asked.clear()
    monitor.now = job(epoch=77)
    for _ in range(3):
        listener.epoch_ended(EpochStats(Epoch(77), 1, 0.1))
        clock.advance(3)
    assert not monitor.asked.is_set()

    clock.advance(1)

    poll(lambda: (saved := _saved(storage)) is not None and saved.epoch == 77)


def test_a_slow_storage_is_written_to_a_twentieth_of_the_time_at_most() -> None:
    class SlowStorage(MemoryStorage):
        def write(self, path: str, data: bytes) -> None:
            clock.advance(2)
            super().write(path, data)

    clock, monitor = ManualClock(), Monitor()
    listener = ArchivingListener(JobArchive(SlowStorage()), monitor, clock)
    listener.status_changed(JobStatus.RUNNING)
    assert listener.settle()
    clock.on_advance = listener.time_passed
    monitor.asked.clear()
    listener.epoch_ended(EpochStats(Epoch(1), 1, 0.1))

    clock.advance(39)
    assert not monitor.asked.wait(0.05)
    clock.advance(1)

    assert monitor.asked.wait(10)


def test_a_slow_storage_keeps_the_job_waiting_for_nothing() -> None:
    monitor = Monitor()
    monitor.may_go_on.clear()
    listener = ArchivingListener(JobArchive(MemoryStorage()), monitor)

    for _ in range(100):
        listener.restarting(JobFailedError("x"), Restart(timedelta(0)))

    assert not listener.settle(timedelta(0))
    monitor.may_go_on.set()
    assert listener.settle()


def test_a_broken_storage_costs_a_log_only(caplog: pytest.LogCaptureFixture) -> None:
    listener = ArchivingListener(JobArchive(FaultyStorage(MemoryStorage(), at=0, fault=Fault.REFUSED)), Monitor())

    with caplog.at_level(logging.WARNING):
        listener.job_ended(JobEnd.FINISHED, None)

    assert "the job is not saved" in caplog.text


def test_more_than_fits_in_memory_is_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    archive = JobArchive(storage)
    for digit in "abc":
        archive.save(job(id=digit * 32))
    size = len(msgspec.json.encode(job()))
    monkeypatch.setattr("checkdam.server.catalog.archive.MOST_BYTES_TOGETHER", 2 * size)

    found = [_all(archive, storage), _all(archive, storage)]

    assert [len(each) for each in found] == [2, 2]
    assert caplog.text.count("1 older jobs left out") == 1


def test_a_driver_that_was_replaced_leaves_the_entry_to_its_successor() -> None:
    storage, monitor = MemoryStorage(), Monitor()
    listener = ArchivingListener(JobArchive(storage), monitor)
    JobArchive(storage).save(job(restarts=7))  # the successor's
    listener.epoch_ended(EpochStats(Epoch(1), 1, 0.1))

    listener.failed(FencedError("another driver has the job"))
    listener.job_ended(JobEnd.SUSPENDED, None)

    assert listener.settle()
    assert [each.restarts for each in _all(JobArchive(storage), storage)] == [7]
