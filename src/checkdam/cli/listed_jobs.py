"""The known jobs with their checkpoints and savepoints, from servers or from storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from checkdam.checkpoint.checkpoint_store import CheckpointStore, load_checkpoint
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.savepoints import FoundSavepoint, list_savepoints
from checkdam.cli.remote import Remote, RemoteJob
from checkdam.clock import SystemClock, to_milliseconds
from checkdam.config import CHECKPOINT_DIR, SAVEPOINT_DIR
from checkdam.errors import CheckpointNotFoundError, RestoreError, ServerUnreachableError, StorageError
from checkdam.ids import JobId
from checkdam.runtime.monitor.job_records import CheckpointRecord, JobRecord
from checkdam.server.catalog import registry
from checkdam.server.catalog.driver_answers import DriverAnswers, LiveStatus, Place, live_statuses
from checkdam.server.catalog.job_index import JobIndex
from checkdam.server.flink_api.job_list import job_overview
from checkdam.storage.filesystem import open_storage


class ListedSnapshot(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint that a job can start from, or the reason why it cannot be used."""

    job: str
    name: str
    id: int
    path: str
    completed: int  # milliseconds since 1970
    size: int
    epoch: int | None = None
    format: str | None = None  # of a savepoint
    exists: bool = True
    damage: str | None = None


class ListedJob(Protocol):
    @property
    def overview(self) -> dict[str, Any]:
        """The overview as in GET /jobs/overview."""

    @property
    def where(self) -> str:
        """The server that serves the job, or the directory in which it was found."""

    def checkpoints(self) -> list[ListedSnapshot]: ...

    def savepoints(self) -> list[ListedSnapshot]: ...


@dataclass(frozen=True)
class ServedJob:
    job: RemoteJob

    @property
    def overview(self) -> dict[str, Any]:
        return self.job.overview

    @property
    def where(self) -> str:
        return self.job.client.url

    def checkpoints(self) -> list[ListedSnapshot]:
        known = self.job.client.get(self.job.path("snapshots"))["snapshots"]
        return [
            ListedSnapshot(
                job=self.job.id,
                name=self.job.name,
                id=int(str(each["ref"]).removeprefix("chk-")),
                path=each["path"],
                completed=each["completed"],
                size=each["state_size"],
                epoch=each["epoch"],
            )
            for each in known
            if str(each["ref"]).startswith("chk-")
        ]

    def savepoints(self) -> list[ListedSnapshot]:
        return [
            ListedSnapshot(
                job=self.job.id,
                name=self.job.name,
                id=each["id"],
                path=each["path"],
                completed=each["completed_timestamp"],
                size=each["state_size"],
                epoch=each.get("epoch"),
                format=each["format"],
                exists=each["exists"],
            )
            for each in self.job.client.get(self.job.path("savepoints"))["savepoints"]
        ]


@dataclass(frozen=True)
class StoredJob:
    record: JobRecord
    directory: str

    @property
    def overview(self) -> dict[str, Any]:
        now = to_milliseconds(SystemClock().now())
        overview: dict[str, Any] = msgspec.to_builtins(job_overview(self.record, now))
        return overview

    @property
    def where(self) -> str:
        return self.directory

    def checkpoints(self) -> list[ListedSnapshot]:
        store = CheckpointStore(open_storage(self.directory), JobId(self.record.id))
        return [self._checkpoint(store, number) for number in reversed(store.completed())]

    def _checkpoint(self, store: CheckpointStore, number: Any) -> ListedSnapshot:
        path = store.checkpoint_uri(number)
        try:
            return _snapshot(store.load(number), path)
        except RestoreError as error:
            return ListedSnapshot(self.record.id, self.record.name, number, path, 0, 0, damage=error.message)

    def savepoints(self) -> list[ListedSnapshot]:
        return [self._savepoint(each, each.path) for each in self.record.savepoints if each.path is not None]

    def _savepoint(self, remembered: CheckpointRecord, path: str) -> ListedSnapshot:
        """Return the savepoint as found on storage: it may have been disposed of, or damaged."""
        try:
            return _snapshot(load_checkpoint(path)[0], path)
        except RestoreError as error:
            return ListedSnapshot(
                job=self.record.id,
                name=self.record.name,
                id=remembered.id,
                path=path,
                completed=remembered.finished_at,
                size=remembered.state_bytes,
                epoch=remembered.epoch,
                format=remembered.savepoint_format,
                exists=not isinstance(error, CheckpointNotFoundError),
                damage=error.message,
            )


def known_jobs(remote: Remote, directory: str | None) -> list[ListedJob]:
    """Return the jobs of `directory` if one is given; else those of the servers and of the configured directory.

    Raises:
        ServerUnreachableError: the requested server does not answer.
    """
    if directory is not None:
        check_directory(directory)
        return list(_stored(directory, remote))
    jobs: list[ListedJob] = []
    try:
        jobs += [ServedJob(job) for job in remote.jobs()]
    except ServerUnreachableError:
        if remote.address is not None:
            raise
    configured = remote.configuration.get(CHECKPOINT_DIR) if remote.address is None else None
    if configured is not None:
        served = {job.overview["jid"] for job in jobs}
        jobs += [job for job in _stored(configured, remote) if job.record.id not in served]
    return jobs


def check_directory(directory: str) -> None:
    """Raise StorageError if the directory does not exist: a misspelt path would look like a place without jobs."""
    if not open_storage(directory).list(""):
        raise StorageError(f'there is nothing in "{directory}"', hint="Name a directory that holds checkpoints.")


def found_savepoints(remote: Remote, directory: str | None) -> list[ListedSnapshot]:
    """Return the savepoints in a directory, of any job."""
    place = directory or (remote.configuration.get(SAVEPOINT_DIR) if remote.address is None else None)
    return [_found(each) for each in list_savepoints(place)] if place is not None else []


def _stored(directory: str, remote: Remote) -> Sequence[StoredJob]:
    uri = open_storage(directory).uri
    return [StoredJob(record, uri) for record in JobIndex([directory], ask=partial(_ask, remote)).records()]


def _ask(remote: Remote, records: Sequence[JobRecord]) -> Mapping[str, LiveStatus]:
    """Ask the drivers that records name; a token is only sent to a server of this user, which the registry names."""
    tokens = {server.url: server.token for server in registry.servers(remote.registry_directory)}
    places = {each.id: Place(each.address, tokens.get(each.address)) for each in records if each.address}
    return live_statuses(DriverAnswers(), places)


def _found(savepoint: FoundSavepoint) -> ListedSnapshot:
    if savepoint.checkpoint is not None:
        return _snapshot(savepoint.checkpoint, savepoint.path)
    at = to_milliseconds(savepoint.modified_at)
    return ListedSnapshot("", "", 0, savepoint.path, at, 0, damage=str(savepoint.outcome))


def _snapshot(checkpoint: CompletedCheckpoint, path: str) -> ListedSnapshot:
    return ListedSnapshot(
        job=checkpoint.job_id,
        name=checkpoint.job_name,
        id=checkpoint.checkpoint_id,
        path=path,
        completed=to_milliseconds(checkpoint.completed_at),
        size=checkpoint.state_bytes,
        epoch=checkpoint.epoch,
        format=checkpoint.savepoint_format,
    )
