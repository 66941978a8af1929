"""Removes what attempts and whole jobs leave behind, according to retention."""

from __future__ import annotations

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointConfig, JobEnd, keeps_checkpoints
from checkdam.checkpoint.terms import Term
from checkdam.errors import RestoreError, StorageError
from checkdam.ids import CheckpointId, JobId
from checkdam.runtime.driver.outputs import Outputs
from checkdam.runtime.driver.restore import Restored, newest_first
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.slot.slot_files import SHARED
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import below

_TRIES = 3


class Remains:
    """Cleans up a job's checkpoints and staged output. Never touches savepoints."""

    def __init__(
        self,
        job_id: JobId,
        checkpoints: CheckpointConfig,
        storage: Storage | None,
        outputs: Outputs,
        store: CheckpointStore | None = None,
        term: Term | None = None,
    ) -> None:
        self._job_id = job_id
        self._checkpoints = checkpoints
        self._storage = storage
        self._outputs = outputs
        self._store = store
        self._term = term

    def sweep(self) -> list[Restored]:
        """Remove what earlier attempts left unfinished. Return the job's remaining checkpoints.

        While the newest checkpoint is damaged or missing, no state file is deleted: the user may repair it until the
        job has resumed from an older one.
        """
        store = self._store
        if store is None:
            return []
        kept = self._whole()
        whole = [each.checkpoint for each in kept]
        newest = whole[0].checkpoint_id if whole else CheckpointId(0)
        is_damaged = max(store.completed(), default=0) > newest or self._outputs.has_published_after(newest)
        store.sweep(whole, in_flight=[f"{SHARED}/"] if is_damaged else ())
        return kept

    def _whole(self) -> list[Restored]:
        """Return the job's checkpoints that can be restored, newest first."""
        if self._store is None or self._storage is None:
            return []
        return list(newest_first(self._store, self._storage, self._job_id, JobListener()))

    def clean_up(
        self, end: JobEnd, listener: JobListener, *, is_exhausted: bool, keeps_all: bool = False
    ) -> str | None:
        """Delete everything that retention does not keep; with `keeps_all` keep checkpoints in any case.

        `is_exhausted`: the job has finished because its input is exhausted, not because it was stopped.

        The job has ended already, so errors are reported to the listener, not raised: a raised error would suggest that
        the job has to run again.

        Raises:
            FencedError: another driver has taken the job and owns its files.
        """
        deleted: list[CheckpointId] = []
        for tries_left in reversed(range(_TRIES)):
            try:
                last = self._tidy(end, deleted, listener, is_exhausted=is_exhausted, keeps_all=keeps_all)
            except (StorageError, RestoreError) as reason:
                if not tries_left:
                    listener.left_behind(reason)
                    listener.checkpoints_unknown(reason)
            else:
                if deleted and self._storage is not None:
                    place = below(self._storage.uri, self._job_id)
                    listener.checkpoints_deleted(deleted, place, self._checkpoints.retention.name)
                return last
        return None

    def _tidy(
        self,
        end: JobEnd,
        deleted: list[CheckpointId],
        listener: JobListener,
        *,
        is_exhausted: bool,
        keeps_all: bool,
    ) -> str | None:
        """Remove what is no longer needed; idempotent. Adds checkpoints that retention does not keep to `deleted`."""
        if self._term is not None and not self._term.has_begun:
            if end is JobEnd.FAILED:  # it refused to resume from what is there: everything stays
                return self._leave()
            self._term.begin()
        kept = self.sweep()
        is_kept = keeps_all or keeps_checkpoints(self._checkpoints.retention, end)
        is_left_to_resume = end is JobEnd.FAILED and is_kept  # which publishes what the newest one covers
        if end is not JobEnd.FINISHED and not is_left_to_resume and kept:
            # The job may have ended between a checkpoint and the publishing of its output.
            self._outputs.publish_again(kept[0], listener)
        if not is_left_to_resume:
            self._outputs.close(is_exhausted=is_exhausted)
        store = self._store
        if store is None:
            return None
        if is_kept:
            superfluous = [each.checkpoint.checkpoint_id for each in kept[self._checkpoints.num_retained :]]
        else:
            if self._term is not None and kept:
                self._term.announce_deletion()
            superfluous, kept = store.completed(), []
            deleted += [each for each in superfluous if each not in deleted]
        store.check()
        for checkpoint_id in sorted(superfluous):
            store.discard(checkpoint_id)
        is_resumable = bool(store.completed()) or (is_kept and self._outputs.has_published_after(CheckpointId(0)))
        if not is_resumable:
            store.sweep([])
            store.remove_directories()
        elif superfluous:
            self.sweep()
        self._outputs.keep_history(is_resumable=is_resumable)
        if self._term is not None:
            self._term.let_go()
        if not is_resumable:
            store.remove_empty_directories()
        return kept[0].path if kept else None

    def _leave(self) -> str | None:
        """Leave the job as it was found."""
        kept = self._whole()
        if self._term is not None:
            self._term.let_go()
        return kept[0].path if kept else None
