"""A savepoint that was deleted is known no more, and storage is not asked about it all the time."""

from __future__ import annotations

import threading
from datetime import timedelta

import msgspec
from tests.unit.server.made_jobs import RECORD, SAVEPOINT

from checkdam.errors import StorageError
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.catalog.savepoint_files import SavepointFiles
from checkdam.storage.contract import FileStatus
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.mounts import mount


class Asked(MemoryStorage):
    """Counts how often somebody looks, and may hang or refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_broken = False

    def status(self, path: str) -> FileStatus | None:
        self.looks += 1
        self.may_answer.wait(10)
        if self.is_broken:
            raise StorageError("no answer")
        return super().status(path)


def _record(storage: MemoryStorage) -> JobRecord:
    storage.write("savepoint-a/_metadata", b"")
    savepoint = msgspec.structs.replace(SAVEPOINT, path=f"{mount(storage)}/savepoint-a")
    return msgspec.structs.replace(RECORD, savepoints=(savepoint,), checkpoints=())


def test_storage_is_looked_at_once_in_a_while() -> None:
    storage, clock = Asked(), ManualClock()
    files, record = SavepointFiles(clock), _record(storage)
    for _ in range(3):
        assert files.as_stored(record) is record
    assert storage.looks == 1

    storage.delete("savepoint-a/_metadata")
    clock.advance(2)

    assert files.as_stored(record).savepoints == ()
    assert storage.looks == 2


def test_after_a_deletion_storage_is_looked_at_again() -> None:
    storage = Asked()
    files, record = SavepointFiles(ManualClock()), _record(storage)
    files.as_stored(record)
    storage.delete("savepoint-a/_metadata")

    files.expire()

    assert files.as_stored(record).savepoints == ()


def test_what_storage_does_not_answer_for_stays() -> None:
    storage, clock = Asked(), ManualClock()
    files, record = SavepointFiles(clock, timedelta(milliseconds=10)), _record(storage)
    storage.may_answer.clear()

    assert files.as_stored(record) is record
    assert files.as_stored(record) is record
    assert storage.looks == 1  # it hangs: nobody looks twice

    storage.may_answer.set()
    storage.is_broken = True
    clock.advance(60)
    assert files.as_stored(record) is record
