"""Completed checkpoints on storage: atomic writes, lookup and cleanup.

<job-id>/chk-<n>/_metadata    the checkpoint; without this file there is none
<job-id>/shared/<file>        state files, referred to by one or more checkpoints
<job-id>/taskowned/           exists for tools that know Flink's layout; nothing is written to it
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.metadata_file import from_metadata, read_metadata, to_metadata
from checkdam.checkpoint.terms import TERMS, Fence, Term, fence_of
from checkdam.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    RestoreError,
    StateNotRestorableError,
    StorageError,
    StorageUncertainError,
)
from checkdam.ids import CheckpointId, JobId
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import FileStatus, Storage, create_once
from checkdam.storage.filesystem import below, last_name, open_storage, parent
from checkdam.storage.names import TEMPORARY_PREFIX

METADATA = "_metadata"
TASK_OWNED = "taskowned"
_SHARED = "shared"
NUMBER = r"(?:0|[1-9][0-9]{0,17})"
"""Matches a checkpoint number as Checkdam writes it: another spelling of the same number is another file."""
_CHECKPOINT = re.compile(rf"chk-({NUMBER})/")
_COMPLETE = re.compile(rf"(?:(?P<above>.*)/)?chk-(?P<id>{NUMBER})/_metadata")
_RESTORABLE = re.compile(rf"(?:.*/)?(?:chk-{NUMBER}|savepoint-[^/]+)/_metadata")
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_LISTED = 5
LOOKS = 20
"""How often to search again for checkpoints while a running job replaces them."""


class CheckpointStore:
    """The checkpoints of one job. Only one process at a time writes to it: the job's driver, identified by its `term`.

    Files that were listed before `check` passed may be deleted after it: they cannot belong to a later driver, because
    names are never reused and a later driver starts with ids above all that it finds.
    """

    def __init__(
        self,
        storage: Storage,
        job_id: JobId,
        term: Term | None = None,
        *,
        dropped: Callable[[str], None] = lambda path: None,  # called with each late checkpoint that is removed
    ) -> None:
        self._storage = storage
        self._job_id = job_id
        self._term = term
        self._dropped = dropped
        self.metadata_bytes = 0  # of the checkpoint written last

    @property
    def uri(self) -> str:
        """The job's directory."""
        return below(self._storage.uri, self._job_id)

    def checkpoint_uri(self, checkpoint_id: CheckpointId) -> str:
        return below(self.uri, f"chk-{checkpoint_id}")

    def make_directories(self) -> None:
        """Create the directories that Flink creates for a job, if the storage has directories."""
        self._storage.make_directory(f"{self._job_id}/{TASK_OWNED}")

    def remove_directories(self) -> None:
        """Remove the directories of `make_directories` with their content."""
        self._storage.delete_directory(f"{self._job_id}/{TASK_OWNED}")

    def remove_empty_directories(self) -> None:
        """Remove the job's directory and those in it as far as they are empty and the storage can do so safely."""
        with contextlib.suppress(StorageError):  # nothing is lost with them, and nothing depends on them
            for directory in (_SHARED, TERMS):
                self._storage.delete_empty_directory(f"{self._job_id}/{directory}")
            self._storage.delete_empty_directory(self._job_id)

    def check(self) -> None:
        """Raise FencedError if another driver has taken over the job."""
        if self._term is not None:
            self._term.check()

    def write(self, checkpoint: CompletedCheckpoint) -> str:
        """Complete the checkpoint by writing its metadata, and return its path; its state files must exist already.

        Call `check` before publishing any of its output: another driver may have taken over the job meanwhile without
        seeing this checkpoint. After StorageUncertainError it may be complete, so its state files must stay.

        Raises:
            FencedError: another driver has taken over the job; nothing was written.
            StorageError: it is not complete; also if a checkpoint of this id exists.
        """
        if checkpoint.job_id != self._job_id:
            raise ValueError(f"checkpoint of job {checkpoint.job_id} in the store of job {self._job_id}")
        data = to_metadata(checkpoint)
        self.check()
        path = self._metadata_path(checkpoint.checkpoint_id)
        if self._term is not None:
            self._term.wrote(checkpoint.checkpoint_id, data)
        try:
            create_once(self._storage, path, data)
        except FileExistsError:
            self._remove_late(checkpoint)
            try:
                create_once(self._storage, path, data)
            except FileExistsError as error:
                raise self._exists(checkpoint.checkpoint_id) from error
        self.metadata_bytes = len(data)
        return self.checkpoint_uri(checkpoint.checkpoint_id)

    def _remove_late(self, wanted: CompletedCheckpoint) -> None:
        """Remove the `_metadata` of an earlier term at the path where a checkpoint is to be written.

        A replaced driver wrote it after this driver had determined the next free id.
        """
        try:
            found = self.load(wanted.checkpoint_id)
        except CheckpointNotFoundError:
            return
        except RestoreError as error:
            raise self._exists(wanted.checkpoint_id) from error
        self.check()  # after the read: a driver that takes over later finds the id taken, or the file gone
        if found.term == wanted.term:  # written by this driver, unless it was copied
            raise StorageUncertainError(str(self._exists(wanted.checkpoint_id)))
        if found.term > wanted.term:
            raise self._exists(wanted.checkpoint_id)
        self._storage.delete(self._metadata_path(wanted.checkpoint_id))
        self._dropped(self.checkpoint_uri(wanted.checkpoint_id))

    def _exists(self, checkpoint_id: CheckpointId) -> StorageError:
        return StorageError(f'"{self.checkpoint_uri(checkpoint_id)}" exists already, and is never replaced')

    def load(self, checkpoint_id: CheckpointId) -> CompletedCheckpoint:
        """Load a checkpoint; errors name its file.

        Raises:
            CheckpointNotFoundError: it does not exist, or was never completed.
            CheckpointDamagedError: its `_metadata` is damaged, or is that of a savepoint.
            FormatTooNewError: a newer Checkdam wrote it.
        """
        path = below(self.checkpoint_uri(checkpoint_id), METADATA)
        try:
            data = read_metadata(self._storage, self._metadata_path(checkpoint_id))
        except FileNotFoundError as error:
            complete = [self.checkpoint_uri(other) for other in _complete_ids(self._paths())]
            raise _not_found(self.checkpoint_uri(checkpoint_id), complete) from error
        checkpoint = from_metadata(data, path)
        if (checkpoint.checkpoint_id, checkpoint.job_id) != (checkpoint_id, self._job_id):
            raise CheckpointDamagedError(
                f'"{path}" is checkpoint {checkpoint.checkpoint_id} of job {checkpoint.job_id}: it was moved or copied',
                hint="Move its directory back, or restore it by its path, with -s.",
            )
        if checkpoint.is_savepoint:
            raise CheckpointDamagedError(
                f'"{path}" is a savepoint, and not one of the checkpoints among which it lies',
                hint="Move its directory elsewhere, and restore it by its path.",
            )
        return checkpoint

    def completed(self) -> list[CheckpointId]:
        """Return the checkpoints that have a `_metadata`, readable or not, newest last.

        Excludes checkpoints that a replaced driver completed too late: their output was never published.
        """
        return self._counting(self._paths())[0]

    def _counting(self, paths: Collection[str]) -> tuple[list[CheckpointId], list[CheckpointId]]:
        """Split the complete checkpoints among these paths into valid ones and late ones of a replaced driver."""
        complete = _complete_ids(paths)
        fence = self._term.fence if self._term is not None else None
        if fence is None and complete and any(path.startswith(f"{TERMS}/") for path in paths):
            fence = fence_of(self._storage, self._job_id)
        if fence is None:
            return complete, []
        late = [each for each in complete if self._is_late(each, fence)]
        return [each for each in complete if each not in late], late

    def _is_late(self, checkpoint_id: CheckpointId, fence: Fence) -> bool:
        try:
            return fence.excludes(self.load(checkpoint_id))
        except RestoreError:
            return False  # its term is unknown; loading it reports the problem

    def has(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether the checkpoint has a `_metadata`."""
        return self._storage.status(self._metadata_path(checkpoint_id)) is not None

    def next_checkpoint_id(self) -> CheckpointId:
        """Return one more than any id in the directory, including those of unfinished checkpoints."""
        used = (int(match[1]) for path in self._paths() if (match := _CHECKPOINT.match(path)))
        return CheckpointId(max(used, default=0) + 1)

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Remove a checkpoint. Its files in `shared` stay until `sweep`: others may need them. Call `check` first.

        Deletes `_metadata` first: a crash half way leaves an incomplete checkpoint, not a damaged one.
        """
        self._storage.delete(self._metadata_path(checkpoint_id))
        self._storage.delete_directory(f"{self._job_id}/chk-{checkpoint_id}")
        if self._term is not None:
            self._term.discarded(checkpoint_id)

    def delete_files(self, files: Iterable[StateFile]) -> None:
        """Remove state files that no checkpoint refers to any more. Call `check` first."""
        for file in files:
            self._storage.delete(f"{self._job_id}/{file.path}")

    def verify(self, checkpoint: CompletedCheckpoint) -> None:
        """Raise CheckpointDamagedError unless every state file exists with its recorded size."""
        verify_files(self._storage, self._job_id, checkpoint)

    def missing(self, files: Iterable[StateFile]) -> str | None:
        """Describe the first state file that is missing or has the wrong size; return None if all are intact."""
        return missing_file(self._storage, self._job_id, files)

    def sweep(self, keep: Iterable[CompletedCheckpoint], in_flight: Collection[str] = ()) -> list[str]:
        """Remove files that no checkpoint needs, and return them, relative to the job's directory.

        Removes directories of checkpoints that were never completed, or completed too late by a replaced driver;
        temporary files; and shared files to which neither a checkpoint of `keep` nor any other complete one refers.
        Files that begin with an entry of `in_flight` stay, under their temporary names too. To remove a complete
        checkpoint, discard it first.
        """
        kept = {checkpoint.checkpoint_id: checkpoint for checkpoint in keep}
        referenced = {file.path for checkpoint in kept.values() for file in checkpoint.files()}
        paths = self._paths()
        counting, late = self._counting(paths)
        shared_is_known = True
        for checkpoint_id in counting:
            if checkpoint_id in kept:
                continue
            try:
                referenced |= {file.path for file in self.load(checkpoint_id).files()}
            except (CheckpointDamagedError, CheckpointNotFoundError):
                continue  # it cannot be restored: no file is kept for it
            except RestoreError:
                shared_is_known = False  # intact, but only the version that wrote it knows its files
        paths = [path for path in paths if path not in {f"chk-{each}/{METADATA}" for each in late}]
        garbage = _garbage(paths, referenced, tuple(in_flight), shared_is_known=shared_is_known)
        garbage += [f"chk-{each}/" for each in late if f"chk-{each}/" not in garbage]
        if garbage:
            self.check()  # after the listing: it contains no file of a later driver
        for path in garbage:
            if path.endswith("/"):
                self._storage.delete_directory(f"{self._job_id}/{path.rstrip('/')}")
            else:
                self._storage.delete(f"{self._job_id}/{path}")
        for checkpoint_id in late:
            self._dropped(self.checkpoint_uri(checkpoint_id))
        return [path.rstrip("/") for path in garbage]

    def _metadata_path(self, checkpoint_id: CheckpointId) -> str:
        return f"{self._job_id}/chk-{checkpoint_id}/{METADATA}"

    def _paths(self) -> list[str]:
        above = len(self._job_id) + 1
        return [status.path[above:] for status in self._storage.list(self._job_id)]


def verify_files(storage: Storage, job_directory: str, checkpoint: CompletedCheckpoint) -> None:
    """Raise CheckpointDamagedError unless every state file exists with its recorded size.

    `job_directory` is relative to the storage: "" for a storage opened at the job's directory.
    """
    reason = missing_file(storage, job_directory, checkpoint.files())
    if reason is not None:
        raise CheckpointDamagedError(
            f"checkpoint {checkpoint.checkpoint_id} is damaged: its {reason}", hint="Use another checkpoint of the job."
        )


def missing_file(storage: Storage, job_directory: str, files: Iterable[StateFile]) -> str | None:
    """Describe the first file that is missing or has the wrong size; return None if all are intact.

    Lists each directory once, regardless of the number of files.
    """
    wanted = {f"{job_directory}/{file.path}" if job_directory else file.path: file.size for file in files}
    found: dict[str, int] = {}
    for directory in {path.rpartition("/")[0] for path in wanted}:
        found.update((status.path, status.size) for status in storage.list(directory))
    for path, size in sorted(wanted.items()):
        if found.get(path) != size:
            what = f"has {found[path]} bytes instead of {size}" if path in found else "is gone"
            return f'state file "{below(storage.uri, path)}" {what}'
    return None


def _complete_ids(paths: Iterable[str]) -> list[CheckpointId]:
    found = (_COMPLETE.fullmatch(path) for path in paths)
    return sorted(CheckpointId(int(match["id"])) for match in found if match and not match["above"])


def _garbage(
    paths: Collection[str], referenced: Collection[str], in_flight: tuple[str, ...], *, shared_is_known: bool
) -> list[str]:
    """Return a job's files that are not needed any more; a directory to remove as a whole ends in "/"."""

    def is_needed(path: str) -> bool:
        return path in referenced or bool(_COMPLETE.fullmatch(path)) or _final_path(path).startswith(in_flight)

    busy = {match[0] for path in paths if (match := _CHECKPOINT.match(path)) and is_needed(path)}
    garbage: dict[str, None] = {}
    for path in paths:
        checkpoint = _CHECKPOINT.match(path)
        if is_needed(path) or path.startswith(f"{TERMS}/"):
            continue
        if checkpoint and checkpoint[0] not in busy:
            garbage[checkpoint[0]] = None
        elif _is_temporary(path) or (path.startswith(f"{_SHARED}/") and shared_is_known):
            garbage[path] = None
    return list(garbage)


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def _final_path(path: str) -> str:
    """Return the final path of a temporary file; any other path unchanged."""
    if not _is_temporary(path):
        return path
    directory, slash, name = path.rpartition("/")
    return directory + slash + name.removeprefix(TEMPORARY_PREFIX).rpartition("-")[0]


# ---------------------------------------------------------------------------------------------- finding


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that has a `_metadata`, with the result of reading it."""

    job_id: JobId
    checkpoint_id: CheckpointId
    outcome: CompletedCheckpoint | RestoreError


def find_latest(storage: Storage, job_name: str) -> list[FoundCheckpoint]:
    """Return the checkpoints to resume a job of this name from, the one completed last first.

    Includes unreadable ones at their position in time, unless the other checkpoints of the same job id have another
    name, so that the caller can warn and fall back to the next. Excludes Flink's own checkpoints.

    Raises:
        StorageError: a running job replaced its checkpoints faster than they could be read.
    """
    for _ in range(LOOKS):
        by_job, have_gone = _by_job(storage, job_name)
        if not have_gone:
            break
    else:
        raise changing(storage.uri)
    candidates = [candidate for found in by_job.values() for candidate in _dated(found, job_name)]
    candidates.sort(key=lambda candidate: (candidate[1], candidate[0].checkpoint_id), reverse=True)
    return [found for found, _ in candidates]


def changing(place: str) -> StorageError:
    return StorageError(
        f'the checkpoints in "{place}" change faster than they can be read', hint="Stop the job that writes them first."
    )


def _by_job(storage: Storage, job_name: str) -> tuple[dict[str, list[tuple[FoundCheckpoint, datetime]]], bool]:
    """Return the valid checkpoints by job, with the modification times of their files; and whether one disappeared.

    Skips a job with checkpoints of other names only, before reading its terms.
    """
    by_job: dict[str, list[tuple[FoundCheckpoint, datetime]]] = {}
    for status in storage.list(""):
        match = _COMPLETE.fullmatch(status.path)
        if match and match["above"] and "/" not in match["above"]:
            found = _read_outcome(storage, JobId(match["above"]), CheckpointId(int(match["id"])))
            by_job.setdefault(found.job_id, []).append((found, status.modified_at))
    have_gone = any(isinstance(each.outcome, CheckpointNotFoundError) for job in by_job.values() for each, _ in job)
    return {
        job_id: _counting(entries, fence_of(storage, JobId(job_id)))
        for job_id, entries in by_job.items()
        if _may_be_named(entries, job_name)
    }, have_gone


def _may_be_named(found: list[tuple[FoundCheckpoint, datetime]], job_name: str) -> bool:
    names = {entry.outcome.job_name for entry, _ in found if isinstance(entry.outcome, CompletedCheckpoint)}
    return not names or job_name in names


def _counting(
    found: list[tuple[FoundCheckpoint, datetime]], fence: Fence | None
) -> list[tuple[FoundCheckpoint, datetime]]:
    """Drop Flink's checkpoints, deleted ones, and those that a replaced driver completed too late."""
    return [
        (entry, modified_at)
        for entry, modified_at in found
        if not isinstance(entry.outcome, StateNotRestorableError | CheckpointNotFoundError)
        and not _is_excluded(entry.outcome, fence)
    ]


def _is_excluded(outcome: CompletedCheckpoint | RestoreError, fence: Fence | None) -> bool:
    return fence is not None and isinstance(outcome, CompletedCheckpoint) and fence.excludes(outcome)


def _read_outcome(storage: Storage, job_id: JobId, checkpoint_id: CheckpointId) -> FoundCheckpoint:
    try:
        return FoundCheckpoint(job_id, checkpoint_id, CheckpointStore(storage, job_id).load(checkpoint_id))
    except RestoreError as error:
        return FoundCheckpoint(job_id, checkpoint_id, error)


def _dated(found: list[tuple[FoundCheckpoint, datetime]], job_name: str) -> Iterator[tuple[FoundCheckpoint, datetime]]:
    """Yield the checkpoints of one job id that may belong to `job_name`, each with its completion time.

    For an unreadable one that is the modification time of its file, but not later than that of the checkpoint after
    it.
    """
    latest: datetime | None = None
    for entry, modified_at in sorted(found, key=lambda item: item[0].checkpoint_id, reverse=True):
        read = entry.outcome if isinstance(entry.outcome, CompletedCheckpoint) else None
        completed_at = read.completed_at if read else modified_at
        latest = completed_at if latest is None else min(latest, completed_at)
        if read is None or read.job_name == job_name:
            yield entry, latest


def load_checkpoint(path_or_uri: str) -> tuple[CompletedCheckpoint, str]:
    """Load the checkpoint or savepoint at a directory or `_metadata` that a user names; return it with its base URI.

    The paths of its state files are relative to that URI: the job's directory, or that of the savepoint.

    Raises:
        CheckpointNotFoundError: there is none, or a replaced driver completed it too late; the hint lists complete
            ones nearby.
        CheckpointDamagedError, FormatTooNewError, StateNotRestorableError: as `from_metadata`.
    """
    place = place_of(path_or_uri)
    if place.status(METADATA) is None:
        raise _not_found(path_or_uri, _complete_near(place))
    checkpoint = from_metadata(read_metadata(place, METADATA), below(place.uri, METADATA))
    if checkpoint.is_savepoint:
        return checkpoint, place.uri
    job_directory = parent(place.uri)
    if last_name(job_directory) == checkpoint.job_id:
        fence = fence_of(open_storage(parent(job_directory)), checkpoint.job_id)
        if fence is not None and fence.excludes(checkpoint):
            raise CheckpointNotFoundError(
                f'"{path_or_uri}" is no checkpoint of job {checkpoint.job_id}: the driver that wrote it had been'
                " replaced, and its output was never published",
                hint="Use another checkpoint of the job, or --resume latest.",
            )
    return checkpoint, job_directory


def place_of(path_or_uri: str) -> Storage:
    """Return the directory that a user names by itself or by its `_metadata`."""
    place = open_storage(path_or_uri)
    return open_storage(parent(place.uri)) if last_name(place.uri) == METADATA else place


def _complete_near(place: Storage) -> list[str]:
    """Return complete checkpoints that a user may have meant: below the place, else beside it, else of other jobs.

    Searches a parent only if it looks like a job's directory: any other may be the root of a large disk.
    """
    job_directory = open_storage(parent(place.uri))
    searched = [place] if last_name(place.uri) else []
    if _JOB_ID.fullmatch(last_name(job_directory.uri)):
        searched += [job_directory, open_storage(parent(job_directory.uri))]
    for storage in searched:
        try:
            files = storage.list("")
        except StorageError:
            continue  # only the hint is lost; the error being raised is the important one
        complete = sorted((status for status in files if _RESTORABLE.fullmatch(status.path)), key=_age)
        if complete:
            return [below(storage.uri, status.path.removesuffix(f"/{METADATA}")) for status in complete]
    return []


def _age(status: FileStatus) -> tuple[datetime, str]:
    return status.modified_at, status.path


def _not_found(place: str, complete: list[str]) -> CheckpointNotFoundError:
    hint = "Give the directory of a completed checkpoint or a savepoint, which holds a file _metadata."
    if complete:
        hint = f"Complete ones near it, newest first: {', '.join(complete[: -_LISTED - 1 : -1])}."
    return CheckpointNotFoundError(f'there is no completed checkpoint or savepoint in "{place}"', hint=hint)
