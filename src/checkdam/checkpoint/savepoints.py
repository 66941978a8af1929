"""Savepoints on storage: atomic creation, lookup, and disposal that touches nothing else.

    <target>/savepoint-<first 6 digits of the job id>-<12 random ones>/_metadata    written last
                                                                      <file> …      all that it refers to, by name

A savepoint can be moved or copied as a directory, anywhere. It has no owner: no job deletes it by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote, urlsplit

from checkdam.checkpoint.checkpoint_store import METADATA, missing_file, place_of
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.metadata_file import from_metadata, read_metadata, to_metadata
from checkdam.checkpoint.terms import OWNER, TERMS
from checkdam.errors import (
    CheckpointNotFoundError,
    RestoreError,
    SavepointError,
    StateNotRestorableError,
    StorageError,
)
from checkdam.ids import JobId
from checkdam.state.snapshot_handles import SavepointFormat, SavepointTarget
from checkdam.storage.contract import Storage, create_once
from checkdam.storage.filesystem import below, last_name, open_storage, parent
from checkdam.storage.names import TEMPORARY_PREFIX

_TRIES = 3
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_OF_A_JOB = re.compile(r"chk-\d+|shared|taskowned|_terms")
_CHECKPOINT_METADATA = re.compile(rf"(?:.*/)?chk-\d+/{METADATA}")


class SavepointDirectory:
    """A savepoint in progress. The slots write its state files; `complete` makes it a savepoint."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @classmethod
    def prepare(cls, target: str, job_id: JobId, *, name: str | None = None) -> SavepointDirectory:
        """Choose an unused directory below `target`, and check that it can be written.

        Leaves nothing behind on failure. `name` sets the name of the directory if it must have a certain one.

        Raises:
            SavepointError: `target` is no place for savepoints, or the directory exists already.
            StorageError: it cannot be written; says why.
            ConfigError: no storage has such a URI.
        """
        if not target.strip():
            raise SavepointError(
                "no directory for the savepoint is given", hint="Name one, or set state.savepoints.dir."
            )
        if name is not None and (not name or "/" in name or name in (".", "..")):
            raise SavepointError(f'"{name}" is not the name of a directory', hint="Leave it out to get a fresh one.")
        place = open_storage(target)
        _refuse_place_of_a_job(place)
        chosen = name or f"savepoint-{job_id[:6]}-{secrets.token_hex(6)}"
        storage = open_storage(below(place.uri, chosen))
        if storage.list("") or _exists(storage):
            raise SavepointError(
                f'"{shown(storage.uri)}" exists; a savepoint never replaces anything', hint="Choose another directory."
            )
        try:
            storage.check_writable()
        except StorageError as refusal:
            with contextlib.suppress(StorageError):
                storage.delete_directory("")
            raise SavepointError(
                f'no savepoint can be written to "{shown(place.uri)}": {refusal.message}', hint=refusal.hint
            ) from refusal
        return cls(storage)

    @property
    def uri(self) -> str:
        """The URI of the savepoint's own directory."""
        return self._storage.uri

    def target(self, format: SavepointFormat) -> SavepointTarget:
        """Return the target that slots need to write their part."""
        return SavepointTarget(self.uri, format)

    def complete(self, checkpoint: CompletedCheckpoint) -> tuple[str, int]:
        """Complete the savepoint once every state file exists; return its path and the bytes of `_metadata`.

        After an error it may or may not be complete: call `abandon`.
        """
        if not checkpoint.is_savepoint:
            raise ValueError(f"checkpoint {checkpoint.checkpoint_id} is not marked as a savepoint")
        reason = missing_file(self._storage, "", checkpoint.files())
        if reason is not None:
            raise StorageError(f"the savepoint is not complete: its {reason}")
        data = to_metadata(checkpoint)
        try:
            create_once(self._storage, METADATA, data)
        except FileExistsError as error:
            raise StorageError(f'"{shown(self.uri)}" is a savepoint already, which is never replaced') from error
        return shown(self.uri), len(data)

    def abandon(self) -> None:
        """Remove all of it; `_metadata` first, so that a crash half way leaves no damaged savepoint.

        The slots were notified of the abort before, and remove what they write from then on.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                self._storage.delete(METADATA)
                self._storage.delete_directory("")
            except StorageError:
                if not tries_left:
                    raise
            else:
                return


def _refuse_place_of_a_job(place: Storage) -> None:
    """Refuse a place where a job sweeps or deletes: inside its directory, or inside another snapshot."""
    above, below_it = place.uri, ""
    while name := last_name(above):
        if _JOB_ID.fullmatch(name) and (not below_it or _OF_A_JOB.fullmatch(below_it) or _is_owned(above)):
            raise SavepointError(
                f'"{shown(place.uri)}" looks like the directory of job {name}, which clears it up',
                hint="Choose a directory beside it, or state.savepoints.dir.",
            )
        above, below_it = parent(above), name
    if place.status(METADATA) is not None:
        raise SavepointError(
            f'"{shown(place.uri)}" is a checkpoint or savepoint itself', hint="Choose the directory above it."
        )


def _is_owned(directory: str) -> bool:
    place = open_storage(directory)
    return bool(place.list(TERMS)) or place.status(OWNER) is not None


# ---------------------------------------------------------------------------------------------- disposing


def load_savepoint(path: str) -> CompletedCheckpoint:
    """Load the savepoint at a path.

    Raises:
        CheckpointNotFoundError: there is none.
        SavepointError: it is a checkpoint.
        CheckpointDamagedError, FormatTooNewError, StateNotRestorableError: as `from_metadata`.
    """
    place = place_of(path)
    try:
        data = read_metadata(place, METADATA)
    except FileNotFoundError as error:
        raise CheckpointNotFoundError(
            f'there is no savepoint in "{path}"',
            hint="Give the directory of a savepoint, which holds a file _metadata.",
        ) from error
    checkpoint = from_metadata(data, below(shown(place.uri), METADATA))
    if not checkpoint.is_savepoint:
        raise SavepointError(
            f'"{path}" is checkpoint {checkpoint.checkpoint_id} of job {checkpoint.job_id}, not a savepoint',
            hint="Its job deletes it when it is no longer retained.",
        )
    return checkpoint


def dispose(path: str) -> None:
    """Delete a savepoint: the files that its intact `_metadata` names, temporary ones, and an empty directory.

    Keeps all other files in the directory. Deletes `_metadata` last, so that a failed disposal can be repeated.

    Raises:
        CheckpointNotFoundError, SavepointError, RestoreError: as `load_savepoint`; nothing was deleted.
        StorageError: it was deleted in part.
    """
    checkpoint = load_savepoint(path)
    storage = place_of(path)
    names = sorted(file.path for file in checkpoint.files())
    temporary = [
        status.path
        for status in storage.list("")
        if "/" not in status.path and status.path.startswith(TEMPORARY_PREFIX)
    ]
    for name in (*names, *temporary, METADATA):
        storage.delete(name)
    _remove_if_empty(storage)


def _remove_if_empty(storage: Storage) -> None:
    local = _local_path(storage)
    if local is not None:
        # Must not delete files added meanwhile, nor a link to a directory.
        try:
            os.rmdir(local)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise StorageError(f'cannot delete "{local}": {error.strerror}') from error
    elif not storage.list(""):
        storage.delete_directory("")


def _exists(storage: Storage) -> bool:
    """Return whether the directory exists, even if empty, as far as the storage has directories."""
    local = _local_path(storage)
    return local is not None and os.path.lexists(local)


def _local_path(storage: Storage) -> str | None:
    parts = urlsplit(storage.uri)
    return unquote(parts.path) if parts.scheme == "file" else None


def shown(uri: str) -> str:
    """Return a URI as users write it: a local one as a plain path."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


# ---------------------------------------------------------------------------------------------- finding


@dataclass(frozen=True)
class FoundSavepoint:
    """A directory that holds a savepoint, with the result of reading its `_metadata`."""

    path: str
    modified_at: datetime
    outcome: CompletedCheckpoint | RestoreError

    @property
    def checkpoint(self) -> CompletedCheckpoint | None:
        return self.outcome if isinstance(self.outcome, CompletedCheckpoint) else None

    @property
    def completed_at(self) -> datetime:
        """The completion time; for an unreadable one, the modification time of its file."""
        return self.modified_at if self.checkpoint is None else self.checkpoint.completed_at


def list_savepoints(directory: str) -> list[FoundSavepoint]:
    """Return the savepoints in a directory and below, the one completed last first; excludes Flink's own.

    Lists an unreadable one with the reason.
    """
    storage = open_storage(directory)
    found = []
    for status in storage.list(""):
        if status.path.rpartition("/")[2] != METADATA or _CHECKPOINT_METADATA.fullmatch(status.path):
            continue
        outcome: CompletedCheckpoint | RestoreError
        try:
            outcome = from_metadata(read_metadata(storage, status.path), below(shown(storage.uri), status.path))
        except FileNotFoundError:
            continue  # disposed of meanwhile
        except StateNotRestorableError:
            continue
        except RestoreError as reason:
            outcome = reason
        if isinstance(outcome, RestoreError) or outcome.is_savepoint:
            path = shown(below(storage.uri, status.path).removesuffix(f"/{METADATA}"))
            found.append(FoundSavepoint(path, status.modified_at, outcome))
    return sorted(found, key=lambda each: (each.completed_at, each.path), reverse=True)
