"""Which checkpoint a job starts from, and whether it fits the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.store import CheckpointStore, find_latest, load_checkpoint, verify_files
from checkdam.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    JobGraphError,
    StateNotRestorableError,
)
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator
from checkdam.ids import JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.completion import assigner_names
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
        """What the slots need of it; each takes what belongs to its subtasks."""
        operators = self.checkpoint.operators
        return RestorePoint(
            directory=self.directory,
            storage=self.storage,
            keyed={entry.uid: tuple(entry.subtasks.values()) for entry in operators if entry.subtasks},
            claim=self.claim,
            operator={
                entry.uid: tuple(entry.operator_states.get(subtask) for subtask in _subtasks(entry))
                for entry in operators
                if entry.operator_states
            },
            finished={
                entry.uid: tuple(subtask in entry.finished for subtask in _subtasks(entry))
                for entry in operators
                if entry.finished
            },
        )

    def event_time(self, plan: JobPlan) -> dict[int, int]:
        """The largest timestamp that each assigner of the plan had seen, by its id there."""
        seen = self.checkpoint.event_time
        return {op: seen[name] for op, name in assigner_names(plan).items() if name in seen}

    def watermarks(self, plan: JobPlan) -> dict[int, int]:
        """How far event time had come for each operator of the plan, by its id there."""
        reached = self.checkpoint.watermarks
        return {op.id: reached[op.uid] for op in plan.operators if op.uid is not None and op.uid in reached}

    def committables(self, uid: OperatorUid) -> tuple[bytes, ...]:
        return next((entry.committables for entry in self.checkpoint.operators if entry.uid == uid), ())


def _subtasks(entry: OperatorEntry) -> list[SubtaskIndex]:
    return [SubtaskIndex(index) for index in range(entry.parallelism)]


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
    known = {operator.uid: operator for operator in plan.operators if operator.uid is not None}
    for entry in restored.checkpoint.operators:
        operator = known.get(entry.uid)
        if operator is None:
            if not entry.is_empty and not allow_non_restored_state:
                raise StateNotRestorableError(
                    f'checkpoint "{restored.path}" holds state of operator "{entry.uid}", which the job does not have',
                    hint=f'Give one operator uid="{entry.uid}", or restore with --allow-non-restored-state.',
                )
        elif entry.subtasks and entry.max_parallelism != plan.key_groups_of(operator.id):
            raise StateNotRestorableError(
                f'checkpoint "{restored.path}" has max parallelism {entry.max_parallelism} for operator "{entry.uid}", '
                f"the job {plan.key_groups_of(operator.id)}",
                hint=f"Max parallelism is fixed at the first checkpoint: leave it unset or "
                f"set it to {entry.max_parallelism}.",
            )


def max_parallelism_for(restored: Restored | None, asked: int | None, parallelism: int) -> int | None:
    """The number of key groups: what the job asks for, else what its checkpoint was written with."""
    if restored is None or asked is not None:
        return asked
    fixed = restored.checkpoint.max_parallelism
    if parallelism > fixed:
        raise _too_wide(parallelism, fixed, "the checkpoint")
    return fixed


def keep_max_parallelism(
    operators: Sequence[Operator], restored: Restored | None, asked: int | None, parallelism: int
) -> list[Operator]:
    """The operators, each with the number of key groups its keyed state was written with, unless the job sets one.

    `asked` and `parallelism` are those of the job as a whole.
    """
    if restored is None or asked is not None:
        return list(operators)
    fixed = {entry.uid: entry.max_parallelism for entry in restored.checkpoint.operators if entry.subtasks}
    kept = []
    for operator in operators:
        groups = fixed.get(operator.uid) if operator.uid is not None else None
        if groups is None or operator.max_parallelism is not None:
            kept.append(operator)
            continue
        width = operator.parallelism or parallelism
        if width > groups:
            raise _too_wide(width, groups, f'operator "{operator.uid}" in the checkpoint')
        kept.append(replace(operator, max_parallelism=groups))
    return kept


def _too_wide(parallelism: int, fixed: int, whose: str) -> JobGraphError:
    return JobGraphError(
        f"parallelism {parallelism} is above the max parallelism {fixed} of {whose}",
        hint=f"Run with -p {fixed} or less; max parallelism is fixed at the first checkpoint.",
    )
