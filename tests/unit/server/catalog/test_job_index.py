"""What the index promises: every job that storage tells of, as it stands, without asking storage all the time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from tests.support.word_count import UID, WordCount
from tests.unit.runtime.monitor.watched import watch
from tests.unit.server.records import job

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.checkpoint.terms import OWNER
from checkdam.errors import StorageError
from checkdam.ids import JobId
from checkdam.processes import Owner, this_process
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import CheckpointStatus, JobRecord
from checkdam.server.catalog.archive import JobArchive
from checkdam.server.catalog.driver_answers import LiveStatus
from checkdam.server.catalog.job_index import JobIndex
from checkdam.storage.contract import FileStatus
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import JOB_ID
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.mounts import mount

GONE = Owner(this_process().machine, 2**22 + 1, "1")


def _index(storage: MemoryStorage, clock: ManualClock | None = None) -> JobIndex:
    return JobIndex([mount(storage)], clock=clock or ManualClock())


def _ran(archived: bool = True) -> tuple[MemoryStorage, JobRecord]:
    """A job that has run to its end, and what was known of it then."""
    storage = MemoryStorage()
    local = WordCount([["a", "b"], ["a"]], storage=storage).job()
    monitor = watch(local)
    local.run()
    if archived:
        JobArchive(storage).save(monitor.record())
    return storage, monitor.record()


def _own(storage: MemoryStorage, owner: Owner) -> None:
    storage.write(f"{JOB_ID}/{OWNER}", msgspec.json.encode(owner))


def test_a_job_that_only_left_checkpoints_is_suspended_with_what_they_tell() -> None:
    storage, before = _ran(archived=False)

    [found] = _index(storage).records()

    assert (found.id, found.name, found.status) == (JOB_ID, "local job", JobStatus.SUSPENDED)
    assert found.started_at > 0
    assert [(each.uid, each.parallelism) for each in found.operators] == [(UID, 2), ("out", 2)]
    assert found.operators[0].vertex_id == next(each.vertex_id for each in before.operators if each.uid == UID)
    newest = before.checkpoints[0]
    [checkpoint] = found.checkpoints
    assert (checkpoint.id, checkpoint.epoch, checkpoint.status) == (newest.id, newest.epoch, CheckpointStatus.COMPLETED)
    assert checkpoint.path is not None
    assert checkpoint.path.endswith(f"/{JOB_ID}/chk-{newest.id}")
    assert open_storage(checkpoint.path).status("_metadata") is not None
    assert checkpoint.state_bytes == newest.state_bytes > 0
    assert not checkpoint.is_discarded
    assert found.figures[0].state_bytes > 0


def test_a_job_whose_driver_lives_is_running() -> None:
    storage, _ = _ran(archived=False)
    _own(storage, this_process())

    assert [each.status for each in _index(storage).records()] == [JobStatus.RUNNING]


def test_an_archived_job_that_ended_stays_as_it_ended() -> None:
    storage, before = _ran()

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert (found.status, found.timestamps) == (JobStatus.FINISHED, before.timestamps)
    assert found.operators == before.operators
    assert found.epochs == before.epochs


def test_an_archived_job_whose_driver_was_killed_is_suspended() -> None:
    storage, before = _ran()
    JobArchive(storage).save(msgspec.structs.replace(before, status=JobStatus.RUNNING))
    _own(storage, GONE)

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert (found.status, found.slots, found.progress) == (JobStatus.SUSPENDED, (), None)
    assert found.timestamps[JobStatus.SUSPENDED] >= before.epochs[-1].ended_at


def test_an_archived_job_that_was_suspended_ended_when_it_says() -> None:
    storage, before = _ran()
    suspended = {**before.timestamps, JobStatus.SUSPENDED: before.epochs[0].ended_at}  # later ones are another driver's
    JobArchive(storage).save(msgspec.structs.replace(before, status=JobStatus.SUSPENDED, timestamps=suspended))

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert (found.status, found.ended_at) == (JobStatus.SUSPENDED, before.epochs[0].ended_at)


def test_an_ended_job_that_somebody_took_up_again_is_running() -> None:
    storage, before = _ran()
    JobArchive(storage).save(msgspec.structs.replace(before, status=JobStatus.FAILED))
    _own(storage, this_process())

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert found.status is JobStatus.RUNNING


ELSEWHERE = Owner("another machine", 7, "1")


def _asked(storage: MemoryStorage, state: JobStatus | None) -> tuple[JobRecord | None, list[str]]:
    """What the index says of the job if its driver answers like this, and which jobs were asked about."""
    asked: list[str] = []

    def ask(records: Sequence[JobRecord]) -> dict[str, LiveStatus]:
        asked.extend(record.id for record in records)
        return {} if state is None else {JOB_ID: LiveStatus(JOB_ID, state, 1_700_000_000_000)}

    return JobIndex([mount(storage)], ask=ask, clock=ManualClock()).record(JOB_ID), asked


def test_a_job_on_another_machine_runs_if_its_driver_says_so() -> None:
    storage, before = _ran()
    pending = msgspec.structs.replace(before.checkpoints[0], id=77, status=CheckpointStatus.IN_PROGRESS)
    running = msgspec.structs.replace(before, status=JobStatus.RUNNING, checkpoints=(pending, *before.checkpoints))
    JobArchive(storage).save(running)
    _own(storage, ELSEWHERE)

    answered, asked = _asked(storage, JobStatus.RUNNING)
    silent, _ = _asked(storage, None)

    assert asked == [JOB_ID]
    assert answered is not None
    assert silent is not None
    assert (answered.status, silent.status) == (JobStatus.RUNNING, JobStatus.SUSPENDED)
    assert answered.timestamps == before.timestamps
    assert [each.status for each in (answered.checkpoints[0], silent.checkpoints[0])] == [
        CheckpointStatus.IN_PROGRESS,
        CheckpointStatus.FAILED,
    ]


def test_the_answer_of_a_driver_counts_more_than_its_record() -> None:
    storage, before = _ran()
    JobArchive(storage).save(msgspec.structs.replace(before, status=JobStatus.CREATED))
    _own(storage, this_process())

    found, _ = _asked(storage, JobStatus.RESTARTING)

    assert found is not None
    assert (found.status, found.timestamps[JobStatus.RESTARTING]) == (JobStatus.RESTARTING, 1_700_000_000_000)


def test_a_driver_that_is_known_to_be_dead_is_not_asked() -> None:
    storage, before = _ran()
    JobArchive(storage).save(msgspec.structs.replace(before, status=JobStatus.RUNNING))
    _own(storage, GONE)

    assert _asked(storage, JobStatus.RUNNING)[1] == []


def test_checkpoints_that_came_or_went_since_the_archive_are_told() -> None:
    storage, before = _ran()
    newest, older = before.checkpoints[:2]
    JobArchive(storage).save(msgspec.structs.replace(before, checkpoints=(older,)))

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert [(each.id, each.is_discarded) for each in found.checkpoints] == [(newest.id, False), (older.id, True)]
    assert found.checkpoints[0].operators[0].operator == next(op.id for op in before.operators if op.uid == UID)


def test_what_was_in_progress_when_the_driver_was_killed_has_failed() -> None:
    storage, before = _ran()
    under_way = msgspec.structs.replace(before.checkpoints[0], id=99, status=CheckpointStatus.IN_PROGRESS)
    unfinished = msgspec.structs.replace(before, status=JobStatus.RUNNING, checkpoints=(under_way,))
    JobArchive(storage).save(unfinished)

    found = _index(storage).record(JOB_ID)

    assert found is not None
    assert (found.checkpoints[0].id, found.checkpoints[0].status) == (99, CheckpointStatus.FAILED)


def test_a_damaged_checkpoint_is_logged_and_hides_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    storage, _ = _ran()
    storage.write(f"{'b' * 32}/chk-1/_metadata", b"not whole")

    with caplog.at_level(logging.WARNING):
        found = _index(storage).records()

    assert [each.id for each in found] == [JOB_ID]
    assert "skipped" in caplog.text


def test_an_unusable_directory_is_logged_and_hides_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    storage, _ = _ran()

    with caplog.at_level(logging.WARNING):
        found = JobIndex(["nonsense://x", mount(storage)]).records()

    assert [each.id for each in found] == [JOB_ID]
    assert "nonsense://x" in caplog.text


class Counting(MemoryStorage):
    listed = 0

    def list(self, directory: str) -> list[FileStatus]:
        self.listed += 1
        return super().list(directory)


def test_storage_is_listed_once_in_a_while_however_often_somebody_asks() -> None:
    storage, clock = Counting(), ManualClock()
    JobArchive(storage).save(job())
    index = JobIndex([mount(storage)], lifetime=timedelta(seconds=3), clock=clock)
    for _ in range(50):
        index.records()
    first = storage.listed
    JobArchive(storage).save(job(id="b" * 32))
    unchanged = len(index.records())

    clock.advance(3)

    assert (first, unchanged) == (1, 1)
    assert len(index.records()) == 2
    assert storage.listed == 2


def test_a_job_that_nobody_knows_has_no_record() -> None:
    assert _index(MemoryStorage()).record("c" * 32) is None


class Hanging(Counting):
    """Hangs in every listing while the gate is closed."""

    gate = threading.Event()

    def list(self, directory: str) -> list[FileStatus]:
        found = super().list(directory)
        self.gate.wait(60)
        return found


@pytest.mark.parametrize("is_known", [False, True])
def test_a_storage_that_hangs_is_asked_once_and_what_is_known_is_told(is_known: bool) -> None:
    storage, clock = Hanging(), ManualClock()
    JobArchive(storage).save(job())
    index = JobIndex([mount(storage)], patience=timedelta(milliseconds=10), clock=clock)
    if is_known:
        Hanging.gate.set()
        assert len(index.records()) == 1
        clock.advance(60)
    Hanging.gate.clear()
    listed = storage.listed
    before = threading.active_count()

    found = [len(index.records()) for _ in range(5)]

    assert (found, storage.listed - listed) == ([1 if is_known else 0] * 5, 1)
    assert threading.active_count() - before <= 1
    Hanging.gate.set()
    looking = [thread for thread in threading.enumerate() if thread.name == "job-index"]
    for thread in looking:
        thread.join(60)
    assert len(index.records()) == 1


class Late(MemoryStorage):
    """Once something happens after storage was listed and before the listing is answered."""

    happens: Callable[[], None] | None = None

    def list(self, directory: str) -> list[FileStatus]:
        found = super().list(directory)
        if self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return found


def test_what_has_changed_during_a_listing_is_looked_for_with_the_next_call() -> None:
    storage = Late()
    JobArchive(storage).save(job())
    index = _index(storage)

    def end_another() -> None:
        JobArchive(storage).save(job(id="b" * 32))
        index.expire()

    storage.happens = end_another

    assert [len(index.records()), len(index.records())] == [1, 2]


def test_an_owner_that_cannot_be_read_hides_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = _ran()
    _own(storage, this_process())
    read = storage.read

    def unwilling(path: str) -> bytes:
        if path.endswith(OWNER):
            raise StorageError(f"{path}: permission denied")
        return read(path)

    monkeypatch.setattr(storage, "read", unwilling)

    assert [each.id for each in _index(storage).records()] == [JOB_ID]


def test_an_entry_without_any_time_hides_no_other() -> None:
    storage, _ = _ran()
    JobArchive(storage).save(job(timestamps={}, checkpoints=()))

    found = {each.id: each for each in _index(storage).records()}

    assert set(found) == {JOB_ID, job().id}
    assert found[job().id].status is JobStatus.SUSPENDED


def test_a_checkpoint_that_claims_many_subtasks_takes_no_memory_for_them() -> None:
    storage, _ = _ran(archived=False)
    store = CheckpointStore(storage, JobId(JOB_ID))
    newest = store.load(store.completed()[-1])
    entries = tuple(replace(entry, parallelism=32768, max_parallelism=32768) for entry in newest.operators)
    path = f"{JOB_ID}/chk-{newest.checkpoint_id}/_metadata"
    storage.write(path, to_metadata(replace(newest, operators=entries)))

    [found] = _index(storage).records()

    assert [len(operator.subtasks) for operator in found.checkpoints[0].operators] == [2, 0]
