"""The common part of every backend's pending snapshots: written at most once, and nothing is left of a failed one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Literal

import xxhash

from checkdam.backends.contract import StoreOwner
from checkdam.backends.state_file import FileInfo, StateInfo
from checkdam.errors import CheckpointDeclinedError, StorageError
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import Storage
from checkdam.types.type_text import text_of


class AbortableSnapshot:
    """A snapshot that is not written yet. Its files are named by owner, checkpoint and attempt."""

    def __init__(self, owner: StoreOwner, checkpoint_id: CheckpointId) -> None:
        self._owner = owner
        self._checkpoint_id = checkpoint_id
        digest = xxhash.xxh3_128_hexdigest(owner.uid.encode())
        self._file_stem = f"{digest}-{owner.subtask}-{checkpoint_id}-{owner.attempt}"
        self._new_files: list[StateFile] = []
        self._lock = threading.Lock()
        self._is_aborted = False

    @property
    def new_files(self) -> tuple[StateFile, ...]:
        return tuple(self._new_files)

    def abort(self) -> None:
        """Refuse to be written from now on, and release the state."""
        with self._lock:
            self._is_aborted = True
            self._release()

    def _release(self) -> None:
        """Release the state that is not written; called with the lock held."""
        raise NotImplementedError

    def _refuse_if_aborted(self) -> None:
        if self._is_aborted:
            raise CheckpointDeclinedError(
                f'checkpoint {self._checkpoint_id} was aborted before operator "{self._owner.uid}" wrote its state'
            )

    @contextlib.contextmanager
    def _removed_on_failure(self, storage: Storage, attempted: list[str]) -> Iterator[None]:
        """Delete the attempted files if the block fails."""
        try:
            yield
        except BaseException:
            self._new_files.clear()
            for path in attempted:
                with contextlib.suppress(StorageError):  # the first error is the one to report; a sweep finds the file
                    storage.delete(path)
            raise

    def _file_info(self, kind: Literal["base", "delta"], states: list[StateInfo]) -> FileInfo:
        owner = self._owner
        return FileInfo(
            kind=kind,
            uid=owner.uid,
            subtask=owner.subtask,
            checkpoint_id=self._checkpoint_id,
            max_parallelism=owner.max_parallelism,
            key_type=text_of(owner.key_type),
            states=states,
        )
