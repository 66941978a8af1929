"""The files of a slot's snapshots: in the job's directory, and copies of them on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from checkdam.runtime.slot.messages import RestorePoint, SlotSetup
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.local_copies import LocalCopies, LocallyCopiedStorage
from checkdam.storage.subtree import subtree

SHARED: Final = "shared"
"""Directory of state files in a job's directory."""


def own_files(setup: SlotSetup) -> tuple[Storage | None, LocalCopies | None]:
    """Open the job's own directory; None without checkpoints. With the local copies of its state files, if kept.

    Files that are on a local disk anyway are not copied.
    """
    if setup.storage is None:
        return None, None
    files = subtree(open_storage(setup.storage), setup.job_id)
    if setup.local_copies is None or urlsplit(files.uri).scheme == "file":
        return files, None
    copies = LocalCopies(setup.local_copies, SHARED)
    # An earlier slot may have left copies of a checkpoint that was never completed.
    copies.keep_only([] if not _resumes(setup) else [file.path for file in _restored_files(setup.restore)])
    return LocallyCopiedStorage(files, copies), copies


def files_to_restore(setup: SlotSetup, own: Storage | None) -> Storage | None:
    """Open the directory of the files to restore: the job's own if it continues after a checkpoint of its own."""
    restore = setup.restore
    if restore is None:
        return None
    return own if _resumes(setup) else subtree(open_storage(restore.storage), restore.directory)


def _resumes(setup: SlotSetup) -> bool:
    restore = setup.restore
    if restore is None or setup.storage is None or not restore.claim or restore.directory != setup.job_id:
        return False
    return open_storage(restore.storage).uri.rstrip("/") == open_storage(setup.storage).uri.rstrip("/")


def _restored_files(restore: RestorePoint | None) -> Iterator[StateFile]:
    if restore is None:
        return
    for keyed in restore.keyed.values():
        for handle in keyed:
            yield from handle.files
    for operator in restore.operator.values():
        yield from (part.content for part in operator if part is not None and isinstance(part.content, StateFile))
