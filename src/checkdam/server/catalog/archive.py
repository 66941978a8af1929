"""The archive of jobs next to their checkpoints: each job's record as it was last saved.

    <checkpoints dir>/_jobs/<job id>.json

An entry is a JobRecord as JSON, written atomically. Readers do not trust it: an entry that is damaged, too large or
written by a newer Checkdam is skipped and logged, and never prevents the others from being listed.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Final

import msgspec

from checkdam.checkpoint.settings import JobEnd
from checkdam.clock import Clock, SystemClock
from checkdam.errors import CheckdamError, FencedError, StorageError
from checkdam.ids import CheckpointId, JobId
from checkdam.runtime.job_control import WatchedJob
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats, JobListener
from checkdam.runtime.monitor.job_records import CheckpointRecord, JobRecord
from checkdam.runtime.restart import Restart
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import open_storage

DIRECTORY: Final = "_jobs"
FORMAT: Final = 1
MOST_BYTES: Final = 32 << 20
"""Larger entries are not read: no entry that Checkdam writes comes close to this size."""
MOST_ENTRIES: Final = 1000
"""How many entries are read, newest first."""
MOST_BYTES_TOGETHER: Final = 256 << 20
"""Limit on the size of all entries read, because they stay in memory, usually the driver's; older jobs are left out."""
MOST_DETAILS: Final = 20_000
"""How many subtask details of checkpoints an entry holds; older checkpoints are kept without them."""
FRESH_FOR: Final = timedelta(seconds=10)
"""How far the entry of a running job may fall behind; what matters to others, such as its status, is saved at once."""
_SHARE_OF_TIME = 20  # saving takes at most a twentieth of the time, however slow the storage is
_PATIENCE_SECONDS = 5.0
_ENTRY = re.compile(rf"{DIRECTORY}/(?P<id>[0-9a-f]{{32}})\.json")

_log = logging.getLogger(__name__)


class _Format(msgspec.Struct):
    format: int = FORMAT


_decode_format = msgspec.json.Decoder(_Format).decode
_decode_record = msgspec.json.Decoder(JobRecord).decode


class JobArchive:
    """The entries of one checkpoint directory. Thread-safe, and safe alongside other processes."""

    def __init__(self, storage: str | Storage) -> None:
        self._storage = open_storage(storage) if isinstance(storage, str) else storage
        self._read: dict[str, tuple[FileStatus, JobRecord | None]] = {}  # by path; None: unusable
        self._fitted = -1  # how many entries the last listing accepted

    @property
    def uri(self) -> str:
        return self._storage.uri

    def save(self, record: JobRecord) -> None:
        """Save the job's current record, replacing an earlier one. Raise StorageError."""
        self._storage.write(_path(record.id), msgspec.json.encode(_shortened(record)))

    def among(self, files: Sequence[FileStatus]) -> list[JobRecord]:
        """Return the jobs among these files of the storage; files that are not entries are skipped."""
        entries = [status for status in files if _ENTRY.fullmatch(status.path)]
        entries.sort(key=lambda status: status.modified_at, reverse=True)
        found_in_all, entries = len(entries), _fitting(entries)
        if found_in_all > len(entries) != self._fitted:
            _log.warning("archive %s: %d older jobs left out", self.uri, found_in_all - len(entries))
        self._fitted = len(entries)
        paths = {status.path for status in entries}
        self._read = {path: read for path, read in list(self._read.items()) if path in paths}
        found = [self._entry(status) for status in entries]
        return [record for record in found if record is not None]

    def _entry(self, status: FileStatus) -> JobRecord | None:
        """Return an entry, reading it only if it changed since the last time."""
        known = self._read.get(status.path)
        if known is None or known[0] != status:
            try:
                record = self._decoded(status)
            except FileNotFoundError:
                return None  # removed after it was listed
            except StorageError as error:
                _log.warning("archive entry %s skipped: %s", status.path, error)
                return None  # the next listing retries
            known = self._read[status.path] = (status, record)
        return known[1]

    def _decoded(self, status: FileStatus) -> JobRecord | None:
        try:
            return _record_of(status, self._storage)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            _log.warning("archive entry %s of %s skipped: %s", status.path, self.uri, error)
            return None


def _fitting(newest_first: Sequence[FileStatus]) -> list[FileStatus]:
    """Return as many entries as may be held in memory at once. One that is too large is not read and takes no space."""
    sizes = accumulate(status.size if status.size <= MOST_BYTES else 0 for status in newest_first[:MOST_ENTRIES])
    return [status for status, size in zip(newest_first, sizes, strict=False) if size <= MOST_BYTES_TOGETHER]


def _record_of(status: FileStatus, storage: Storage) -> JobRecord:
    """Read the record of an entry. Raise ValueError if it is invalid."""
    if status.size > MOST_BYTES:
        raise ValueError(f"it is too large: {status.size} bytes")
    data = storage.read(status.path)
    version = _decode_format(data).format
    if version > FORMAT:
        raise ValueError(f"a newer Checkdam wrote it, in format {version}")
    record = _decode_record(data)
    if _path(record.id) != status.path:
        raise ValueError(f"it describes job {record.id}")
    return record


def _path(job_id: str) -> str:
    return f"{DIRECTORY}/{job_id}.json"


def _shortened(record: JobRecord) -> JobRecord:
    """Return the record without the details of older checkpoints if there are too many to write on every save."""
    left = MOST_DETAILS
    checkpoints: list[CheckpointRecord] = []
    for each in record.checkpoints:
        left -= sum(len(operator.subtasks) for operator in each.operators)
        checkpoints.append(each if left >= 0 else msgspec.structs.replace(each, operators=()))
    return record if left >= 0 else msgspec.structs.replace(record, checkpoints=tuple(checkpoints))


class ArchivingListener(JobListener):
    """Keeps the entry of a running job fresh: a change of status is saved at once, epochs and checkpoints soon.

    It saves in its own thread, so a slow or broken storage never delays the job: it only costs the job's entry in the
    list and a log line. Only the end of the job waits, briefly. Register it after the monitor, whose record it saves.
    """

    def __init__(self, archive: JobArchive, monitor: WatchedJob, clock: Clock | None = None) -> None:
        self._archive = archive
        self._monitor = monitor
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._asked = self._done = 0  # number of saves requested; number of those already covered
        self._is_behind = False  # something has happened since the last save that can wait until `_due_at`
        self._due_at = self._clock.monotonic() + FRESH_FOR.total_seconds()
        self._thread: threading.Thread | None = None
        self._is_replaced = False  # another driver owns the entry now

    def job_started(self, job_id: JobId, name: str, slots: int) -> None:
        self.save_now()

    def status_changed(self, status: JobStatus) -> None:
        self.save_now()

    def epoch_ended(self, stats: EpochStats) -> None:
        self.save_soon()

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        self.save_now()

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        if stats.kind.is_savepoint:
            self.save_now()
        else:
            self.save_soon()

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        self.save_soon()

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        self.save_now()

    def failed(self, failure: CheckdamError) -> None:
        self._is_replaced = isinstance(failure, FencedError)

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        self.save_now()
        if not self.settle():
            _log.warning("archive %s: the end of the job is not saved yet", self._archive.uri)

    def save_now(self) -> None:
        """Save without delay, in the background."""
        with self._changed:
            if not self._is_replaced:
                self._asked += 1
                self._wake()

    def save_soon(self) -> None:
        """Save within `FRESH_FOR`, together with what happens until then."""
        with self._changed:
            if not self._is_replaced and not self._is_behind:
                self._is_behind = True
                self._wake()

    def time_passed(self) -> None:
        """Check again whether a save is due, after the clock moved."""
        with self._changed:
            self._changed.notify_all()

    def settle(self, timeout: timedelta = timedelta(seconds=_PATIENCE_SECONDS)) -> bool:
        """Wait until all saves requested with `save_now` have succeeded or failed; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= self._asked, timeout.total_seconds())

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="archive")
            self._thread.start()
        else:
            self._changed.notify_all()

    def _work(self) -> None:
        while (covered := self._next_save()) is not None:
            began = self._clock.monotonic()
            self._save()
            took = self._clock.monotonic() - began
            with self._changed:
                self._due_at = began + took + max(FRESH_FOR.total_seconds(), took * _SHARE_OF_TIME)
                self._done = covered
                self._changed.notify_all()

    def _next_save(self) -> int | None:
        """Wait until a save is due and return which requests it covers; None if there is nothing to save."""
        with self._changed:
            while self._done >= self._asked:
                if not self._is_behind:
                    self._thread = None
                    return None
                left = self._due_at - self._clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._is_behind = False
            return self._asked

    def _save(self) -> None:
        if self._is_replaced:
            return
        try:
            self._archive.save(self._monitor.record())
        except Exception as error:  # noqa: BLE001  background thread: a failure here must not affect the job
            _log.warning("archive %s: the job is not saved: %s", self._archive.uri, error)


def archiving(storage: str | None, monitor: WatchedJob) -> ArchivingListener | None:
    """Return a listener that archives a job next to its checkpoints; None if the job has no checkpoint directory."""
    return None if storage is None else ArchivingListener(JobArchive(storage), monitor)
