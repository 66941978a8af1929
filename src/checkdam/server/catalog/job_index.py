"""Jobs that do not run in this process: archived ones, and those with only checkpoints left."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Final

import msgspec

from checkdam.checkpoint.checkpoint_store import NUMBER
from checkdam.checkpoint.completed import RETENTION_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import from_metadata, read_metadata
from checkdam.checkpoint.terms import Fence, fence_of, owner_of
from checkdam.clock import Clock, SystemClock, to_milliseconds
from checkdam.errors import CheckdamError, RestoreError, StorageError
from checkdam.ids import JobId, SubtaskIndex
from checkdam.processes import Owner
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_description import vertex_id_of_uid
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    JobSettings,
    OperatorCheckpoint,
    OperatorFigures,
    OperatorRecord,
    SnapshotKind,
    SubtaskCheckpoint,
)
from checkdam.server.catalog.archive import JobArchive
from checkdam.server.catalog.driver_answers import LiveStatus
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import below, open_storage

MOST_CHECKPOINTS: Final = 200
"""How many checkpoints of a job are read, newest first."""
_SHARE_OF_TIME = 20  # listing a storage may take at most a twentieth of the time
_FILE = re.compile(rf"(?P<job>[0-9a-f]{{32}})/(?:chk-(?P<id>{NUMBER})/_metadata|(?P<owner>_owner|_terms/[^/]+))")
_DRIVER_GONE = "the driver ended before the checkpoint completed"
_log = logging.getLogger(__name__)
_replace = msgspec.structs.replace


class JobIndex:
    """All jobs found in some checkpoint directories. Thread-safe.

    An answer may be as old as `lifetime`, or older where listing a storage is slow, so that polling clients do not keep
    the storage busy. If a directory cannot be listed, the failure is logged and its last known content is used. The
    same holds while a listing takes longer than `patience` (None: wait however long it takes).

    A job that has not ended properly runs if its driver is a living process of this machine. Otherwise it is SUSPENDED,
    unless `ask`, which gets the records of jobs that may be running, says how they are: processes of other machines
    can only be asked.
    """

    def __init__(
        self,
        archives: Sequence[str],
        *,
        lifetime: timedelta = timedelta(seconds=3),
        patience: timedelta | None = None,
        ask: Callable[[Sequence[JobRecord]], Mapping[str, LiveStatus]] = lambda records: {},
        clock: Clock | None = None,
    ) -> None:
        self._places = [_Place(uri) for uri in dict.fromkeys(archives)]
        self._lifetime = lifetime.total_seconds()
        self._patience = patience.total_seconds() if patience is not None else None
        self._ask = ask
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: Mapping[str, JobRecord] | None = None
        self._good_until = 0.0
        self._expired = 0  # number of calls of `expire`
        self._look: Future[Mapping[str, JobRecord]] | None = None  # in progress: at most one, as it may hang

    def records(self) -> Sequence[JobRecord]:
        return list(self._all().values())

    def record(self, job_id: str) -> JobRecord | None:
        return self._all().get(job_id)

    def expire(self) -> None:
        """Look at storage again with the next call. A listing in progress may have passed what has changed."""
        with self._lock:
            self._good_until = 0.0
            self._expired += 1

    def _all(self) -> Mapping[str, JobRecord]:
        with self._lock:
            known, look = self._known, self._look
            if known is not None and (look is not None or self._clock.monotonic() < self._good_until):
                return known  # fresh enough, or a listing is already in progress
            if look is None:
                look = self._look = Future()
                threading.Thread(target=self._list_all, args=[look], daemon=True, name="job-index").start()
        try:
            return look.result(self._patience)
        except TimeoutError:
            if look.done():
                raise  # raised by the listing itself
            return known or {}

    def _list_all(self, look: Future[Mapping[str, JobRecord]]) -> None:
        began = self._clock.monotonic()
        with self._lock:
            expired = self._expired
        try:
            found = {record.id: record for place in self._places for record in place.records()}
            open_ended = {record.id: record for place in self._places for record in place.open_ended}
            answers = self._ask(list(open_ended.values())) if open_ended else {}
            found |= {job_id: _answered(open_ended[job_id], status) for job_id, status in answers.items()}
        except BaseException as error:  # noqa: BLE001  re-raised in the waiting threads
            with self._lock:
                self._look = None
            look.set_exception(error)
            return
        now = self._clock.monotonic()
        with self._lock:
            self._known, self._look = found, None
            if self._expired == expired:
                self._good_until = now + max(self._lifetime, (now - began) * _SHARE_OF_TIME)
        look.set_result(found)


class _Place:
    """One checkpoint directory. Caches what it has read until the file changes."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._storage: Storage | None = None
        self._archive: JobArchive | None = None
        self._read: dict[str, tuple[FileStatus, CompletedCheckpoint | None]] = {}
        self._last: list[JobRecord] = []
        self.open_ended: list[JobRecord] = []  # as archived, of jobs that may be running

    def records(self) -> list[JobRecord]:
        try:
            self._last = self._look()
        except CheckdamError as error:
            _log.warning("jobs in %s cannot be listed: %s", self._uri, error)
        return self._last

    def _look(self) -> list[JobRecord]:
        if self._storage is None or self._archive is None:
            self._storage = open_storage(self._uri)
            self._archive = JobArchive(self._storage)
        files = self._storage.list("")
        archived = {record.id: record for record in self._archive.among(files)}
        jobs = _by_job(files)
        paths = {status.path for job in jobs.values() for status in job.metadata.values()}
        self._read = {path: read for path, read in self._read.items() if path in paths}
        records = []
        self.open_ended = []
        for job_id in sorted(archived.keys() | jobs.keys()):
            files_of_job = jobs.get(job_id) or _Files(JobId(job_id), {}, None)
            record = self._job(self._storage, job_id, files_of_job, archived.get(job_id))
            if record is not None:
                records.append(record)
        return records

    def _job(self, storage: Storage, job_id: str, files: _Files, archived: JobRecord | None) -> JobRecord | None:
        owner = _owner(storage, job_id) if files.owner is not None else None
        is_alive = owner is not None and owner.is_alive()
        since = to_milliseconds(files.owner.modified_at) if is_alive and files.owner is not None else None
        if archived is not None:
            if owner is not None and (is_alive or not owner.is_here()):
                self.open_ended.append(self._with_checkpoints(storage, archived, files, is_alive=True))
            return self._updated(storage, archived, files, since)
        found = self._found(storage, files, ())
        if not found:
            return None
        status = JobStatus.SUSPENDED if since is None else JobStatus.RUNNING
        return job_from_checkpoints(found, storage.uri, status, since)

    def _updated(self, storage: Storage, record: JobRecord, files: _Files, since: int | None) -> JobRecord:
        """Return an archived job as it is now, as far as storage tells."""
        record = self._with_checkpoints(storage, record, files, is_alive=since is not None)
        if since is not None:
            return _running(record, since)
        return _replace(_ended(record), slots=(), progress=None)

    def _with_checkpoints(self, storage: Storage, record: JobRecord, files: _Files, *, is_alive: bool) -> JobRecord:
        """Return an archived job updated from storage: which checkpoints are left, and which are new."""
        settled = {each.id for each in record.checkpoints if each.status is CheckpointStatus.COMPLETED}
        places = {operator.uid: operator.id for operator in record.operators if operator.uid is not None}
        newer = {f.checkpoint.checkpoint_id: f for f in self._found(storage, files, settled)}
        known = [each for each in record.checkpoints if each.id not in newer]
        checkpoints = [_as_stored(each, files, is_alive=is_alive) for each in known]
        checkpoints += [checkpoint_record(each, places) for each in newer.values()]
        return _replace(record, checkpoints=tuple(sorted(checkpoints, key=lambda each: each.id, reverse=True)))

    def _found(self, storage: Storage, files: _Files, but: set[int] | tuple[()]) -> list[Found]:
        """Return the job's readable, complete checkpoints, newest first, except those in `but`."""
        ids = sorted(files.metadata.keys() - set(but), reverse=True)[:MOST_CHECKPOINTS]
        fence = _fence(storage, files.job_id) if ids and files.owner is not None else None
        found = []
        for status in (files.metadata[each] for each in ids):
            checkpoint = self._checkpoint(storage, status)
            if checkpoint is not None and not (fence is not None and fence.excludes(checkpoint)):
                directory = below(storage.uri, status.path.rpartition("/")[0])
                found.append(Found(checkpoint, directory, status.size))
        return found

    def _checkpoint(self, storage: Storage, status: FileStatus) -> CompletedCheckpoint | None:
        known = self._read.get(status.path)
        if known is None or known[0] != status:
            try:
                data = read_metadata(storage, status.path)
            except FileNotFoundError:
                return None  # discarded after it was listed
            except (StorageError, RestoreError) as error:
                _log.warning("checkpoint skipped: %s", error)
                return None  # the next listing retries
            known = self._read[status.path] = (status, _decoded(data, below(storage.uri, status.path)))
        return known[1]


def _decoded(data: bytes, path: str) -> CompletedCheckpoint | None:
    try:
        return from_metadata(data, path)
    except RestoreError as error:
        _log.warning("checkpoint skipped: %s", error)
        return None


def _owner(storage: Storage, job_id: str) -> Owner | None:
    try:
        return owner_of(storage, JobId(job_id))
    except CheckdamError as error:
        _log.warning("job %s: its owner cannot be read: %s", job_id, error)
        return None


def _fence(storage: Storage, job_id: JobId) -> Fence | None:
    try:
        return fence_of(storage, job_id)
    except CheckdamError as error:
        _log.warning("job %s: its terms cannot be read: %s", job_id, error)
        return None


class _Files(msgspec.Struct):
    """The files in a job's directory that describe it: its checkpoints by id, and its owner."""

    job_id: JobId
    metadata: dict[int, FileStatus]
    owner: FileStatus | None


def _by_job(files: Sequence[FileStatus]) -> dict[str, _Files]:
    jobs: dict[str, _Files] = {}
    for status in files:
        match = _FILE.fullmatch(status.path)
        if match is None:
            continue
        job = jobs.setdefault(match["job"], _Files(JobId(match["job"]), {}, None))
        if match["owner"]:
            if job.owner is None or status.modified_at > job.owner.modified_at:
                job.owner = status
        else:
            job.metadata[int(match["id"])] = status
    return jobs


def _as_stored(checkpoint: CheckpointRecord, files: _Files, *, is_alive: bool) -> CheckpointRecord:
    if checkpoint.status is CheckpointStatus.IN_PROGRESS and not is_alive:
        return _replace(checkpoint, status=CheckpointStatus.FAILED, failure=_DRIVER_GONE)
    if checkpoint.status is CheckpointStatus.COMPLETED and not checkpoint.kind.is_savepoint:
        return _replace(checkpoint, is_discarded=checkpoint.id not in files.metadata)
    return checkpoint


def _running(record: JobRecord, since: int) -> JobRecord:
    """Return the record of a job that is running: as archived, or resumed since it ended."""
    if not record.status.has_ended:
        return record
    return _replace(record, status=JobStatus.RUNNING, timestamps={**record.timestamps, JobStatus.RUNNING: since})


def _answered(record: JobRecord, answer: LiveStatus) -> JobRecord:
    """Return the record of a job whose driver says how it is."""
    if answer.state is record.status:
        return record
    return _replace(
        record, status=answer.state, timestamps={**record.timestamps, answer.state: answer.last_modification}
    )


def _ended(record: JobRecord) -> JobRecord:
    """Return the record of a job that is not running. If it has no end, its driver was killed after its last event."""
    if record.status.has_ended:
        return record
    last = max(
        [
            *record.timestamps.values(),
            *(each.finished_at for each in record.checkpoints),
            *(each.ended_at for each in record.epochs),
        ],
        default=NEVER,
    )
    return _replace(record, status=JobStatus.SUSPENDED, timestamps={**record.timestamps, JobStatus.SUSPENDED: last})


class Found(msgspec.Struct, frozen=True):
    """One complete checkpoint on storage, its directory, and the size of its `_metadata`.

    Storage does not record the cost of writing it: sync time, async time and written bytes are 0 in its record.
    """

    checkpoint: CompletedCheckpoint
    path: str
    metadata_bytes: int


def job_from_checkpoints(found: Sequence[Found], storage: str, status: JobStatus, since: int | None) -> JobRecord:
    """Return the record of a job that has only checkpoints left, newest first; the newest one names its operators.

    The job entered its status with the newest checkpoint, unless `since` says when.
    """
    newest, oldest = found[0].checkpoint, found[-1].checkpoint
    operators = tuple(
        OperatorRecord(
            id=place,
            vertex_id=vertex_id_of_uid(entry.uid),
            uid=entry.uid,
            name=entry.name,
            kind="operator",
            parallelism=entry.parallelism,
            max_parallelism=entry.max_parallelism,
            level=1,
            is_stateful=True,
        )
        for place, entry in enumerate(newest.operators)
    )
    places = {operator.uid: operator.id for operator in operators if operator.uid is not None}
    records = tuple(checkpoint_record(each, places) for each in found)
    return JobRecord(
        id=newest.job_id,
        name=newest.job_name,
        status=status,
        timestamps={
            JobStatus.INITIALIZING: to_milliseconds(oldest.triggered_at),
            status: since if since is not None else to_milliseconds(newest.completed_at),
        },
        parallelism=newest.parallelism,
        max_parallelism=newest.max_parallelism,
        settings=_settings(newest, storage),
        operators=operators,
        figures=tuple(
            OperatorFigures(each.operator, state_bytes=sum(part.state_bytes for part in each.subtasks))
            for each in records[0].operators
        ),
        checkpoints=records,
        checkpoint_counts=CheckpointCounts(total=len(records), completed=len(records)),
        epoch=newest.epoch,
    )


def checkpoint_record(found: Found, places: Mapping[str, int]) -> CheckpointRecord:
    """Return the record of one checkpoint; `places` maps uid to operator, and operators not in it are left out."""
    checkpoint = found.checkpoint
    triggered, completed = to_milliseconds(checkpoint.triggered_at), to_milliseconds(checkpoint.completed_at)
    return CheckpointRecord(
        id=checkpoint.checkpoint_id,
        kind=SnapshotKind.SAVEPOINT if checkpoint.is_savepoint else SnapshotKind.CHECKPOINT,
        status=CheckpointStatus.COMPLETED,
        triggered_at=triggered,
        epoch=checkpoint.epoch,
        num_subtasks=sum(entry.parallelism for entry in checkpoint.operators),
        savepoint_format=checkpoint.savepoint_format.value if checkpoint.savepoint_format is not None else None,
        finished_at=completed,
        duration=float(completed - triggered),
        state_bytes=checkpoint.state_bytes,
        metadata_bytes=found.metadata_bytes,
        path=found.path,
        operators=tuple(
            OperatorCheckpoint(
                places[entry.uid],
                entry.parallelism,
                tuple(_subtask(entry, subtask, triggered, completed) for subtask in _named(entry)),
            )
            for entry in checkpoint.operators
            if entry.uid in places
        ),
    )


def _named(entry: OperatorEntry) -> list[SubtaskIndex]:
    """Return the subtasks that wrote something; not a range, because a forged file may claim any parallelism."""
    return sorted(entry.subtasks.keys() | entry.operator_states.keys() | entry.finished)


def _subtask(entry: OperatorEntry, subtask: SubtaskIndex, triggered: int, completed: int) -> SubtaskCheckpoint:
    keyed, operator = entry.subtasks.get(subtask), entry.operator_states.get(subtask)
    size = sum(file.size for file in keyed.files) if keyed is not None else 0
    if operator is not None:
        size += operator.content.size if isinstance(operator.content, StateFile) else len(operator.content)
    return SubtaskCheckpoint(subtask, completed, 0.0, 0.0, float(completed - triggered), 0, size)


def _settings(checkpoint: CompletedCheckpoint, storage: str) -> JobSettings:
    """Return the settings recorded in a checkpoint, with defaults for all others."""
    backends = {handle.backend for entry in checkpoint.operators for handle in entry.subtasks.values()}
    return JobSettings(
        mode=checkpoint.settings.get("mode", "exactly_once"),
        interval=NEVER,
        timeout=NEVER,
        min_pause=0,
        max_concurrent=1,
        tolerable_failures=0,
        retention=checkpoint.settings.get(RETENTION_SETTING, "retain_on_cancellation"),
        num_retained=1,
        state_backend=min(backends, default="hashmap"),
        storage=storage,
        savepoint_directory=None,
        restart_strategy="not known",
    )
