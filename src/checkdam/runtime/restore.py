"""Which checkpoint a job starts from, and whether it fits the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.store import CheckpointStore, find_latest, load_checkpoint, verify_files
from checkdam.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    JobGraphError,
    StateNotRestorableError,
)
from checkdam.graph.levels import JobPlan
from checkdam.ids import JobId, OperatorUid
from checkdam.runtime.events import JobListener
from checkdam.runtime.slot.messages import RestorePoint
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage

LATEST = "latest"


@dataclass(frozen=True)
class Restored:
    """A checkpoint to start from, and where its files are."""

    checkpoint: CompletedCheckpoint
    storage: str
    directory: str  # the job's directory in that storage
    claim: bool

    @property
    def path(self) -> str:
        job = f"{self.storage.rstrip('/')}/{self.directory}".rstrip("/")
        return f"{job}/chk-{self.checkpoint.checkpoint_id}"

    def point(self) -> RestorePoint:
        keyed = {entry.uid: tuple(entry.subtasks.values()) for entry in self.checkpoint.operators if entry.subtasks}
        return RestorePoint(directory=self.directory, storage=self.storage, keyed=keyed, claim=self.claim)

    def committables(self, uid: OperatorUid) -> tuple[bytes, ...]:
        return next((entry.committables for entry in self.checkpoint.operators if entry.uid == uid), ())


def from_path(path: str) -> Restored:
    """The checkpoint a user names; its files stay theirs."""
    checkpoint, job_directory = load_checkpoint(path)
    verify_files(open_storage(job_directory), "", checkpoint)
    return Restored(checkpoint, job_directory, "", claim=False)


def find_job(storage: Storage, job_name: str) -> JobId:
    """The job that wrote the newest checkpoint under this name."""
    found = find_latest(storage, job_name)
    if not found:
        raise CheckpointNotFoundError(
            f'no checkpoint of job "{job_name}" in {storage.uri}',
            hint="Start the job without --resume, or set state.checkpoints.dir to where its checkpoints are.",
        )
    return found[0].job_id


def newest_first(store: CheckpointStore, storage: Storage, job_id: JobId, listener: JobListener) -> Iterator[Restored]:
    """The job's own checkpoints that are whole, newest first; damaged ones are reported and passed over."""
    for checkpoint_id in reversed(store.completed()):
        try:
            checkpoint = store.load(checkpoint_id)
            store.verify(checkpoint)
        except (CheckpointDamagedError, CheckpointNotFoundError) as reason:
            listener.checkpoint_skipped(store.checkpoint_uri(checkpoint_id), reason)
            continue
        yield Restored(checkpoint, storage.uri, job_id, claim=True)


def check_fit(restored: Restored, plan: JobPlan, *, allow_non_restored_state: bool) -> None:
    """Refuse, before anything runs, state that this job has no place for."""
    checkpoint = restored.checkpoint
    if checkpoint.max_parallelism != plan.max_parallelism:
        raise StateNotRestorableError(
            f'checkpoint "{restored.path}" has max parallelism {checkpoint.max_parallelism}, '
            f"the job {plan.max_parallelism}",
            hint=f"Max parallelism is fixed at the first checkpoint: leave it unset or "
            f"set it to {checkpoint.max_parallelism}.",
        )
    known = {operator.uid for operator in plan.operators if operator.uid is not None}
    for entry in checkpoint.operators:
        holds_something = bool(entry.subtasks or entry.committables)
        if entry.uid not in known and holds_something and not allow_non_restored_state:
            raise StateNotRestorableError(
                f'checkpoint "{restored.path}" holds state of operator "{entry.uid}", which the job does not have',
                hint=f'Give one operator uid="{entry.uid}", or restore with --allow-non-restored-state.',
            )


def max_parallelism_for(restored: Restored | None, asked: int | None, parallelism: int) -> int | None:
    """The number of key groups: what the job asks for, else what its checkpoint was written with."""
    if restored is None or asked is not None:
        return asked
    fixed = restored.checkpoint.max_parallelism
    if parallelism > fixed:
        raise JobGraphError(
            f"parallelism {parallelism} is above the max parallelism {fixed} of the checkpoint",
            hint=f"Run with -p {fixed} or less; max parallelism is fixed at the first checkpoint.",
        )
    return fixed
