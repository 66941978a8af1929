"""Finds the checkpoint a job starts from, and checks that it fits the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from checkdam.checkpoint.checkpoint_store import (
    LOOKS,
    CheckpointStore,
    changing,
    find_latest,
    load_checkpoint,
    verify_files,
)
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.savepoints import dispose, shown
from checkdam.checkpoint.settings import RestoreMode
from checkdam.checkpoint.terms import is_running, owner_of
from checkdam.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    JobGraphError,
    StateNotRestorableError,
)
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator
from checkdam.ids import JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.checkpoint_assembly import assigner_names
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.slot.messages import RestorePoint
from checkdam.runtime.source_position import SourceChoices, encode_position, restored_position
from checkdam.runtime.spark.offsets import check_files
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import last_name, open_storage, parent


@dataclass(frozen=True)
class Restored:
    """A checkpoint to start from, and the place of its files."""

    checkpoint: CompletedCheckpoint
    storage: str
    directory: str  # the job's directory in that storage
    claim: bool  # whether the job continues the one that wrote it, in the same storage
    owned_savepoint: str | None = None
    """The path of a savepoint that the job owns, and deletes once it has a checkpoint of its own."""

    @property
    def path(self) -> str:
        place = f"{self.storage.rstrip('/')}/{self.directory}".rstrip("/")
        return place if self.checkpoint.is_savepoint else f"{place}/chk-{self.checkpoint.checkpoint_id}"

    def point(self) -> RestorePoint:
        """Return the part that the slots need; each takes what belongs to its subtasks."""
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
        """Return the largest timestamp that each assigner of the plan had seen, by its id there."""
        seen = self.checkpoint.event_time
        return {op: seen[name] for op, name in assigner_names(plan).items() if name in seen}

    def watermarks(self, plan: JobPlan) -> dict[int, int]:
        """Return the watermark of each operator of the plan, by its id there."""
        reached = self.checkpoint.watermarks
        return {op.id: reached[op.uid] for op in plan.operators if op.uid is not None and op.uid in reached}

    def with_sources(self, plan: JobPlan, choices: SourceChoices) -> Restored:
        """Return the same checkpoint with its source positions matched to the sources of the plan.

        Raises:
            StateNotRestorableError, CheckpointDamagedError, FormatTooNewError, JobGraphError: as `restored_position`.
        """
        checkpoint = self.checkpoint
        holding = choices.for_checkpoint(checkpoint.checkpoint_id)
        position = restored_position(checkpoint.source_position, checkpoint.epoch, plan, holding)
        check_files(position)
        return replace(self, checkpoint=replace(checkpoint, source_position=encode_position(position)))

    def committables(self, uid: OperatorUid) -> tuple[bytes, ...]:
        return next((entry.committables for entry in self.checkpoint.operators if entry.uid == uid), ())


def _subtasks(entry: OperatorEntry) -> list[SubtaskIndex]:
    return [SubtaskIndex(index) for index in range(entry.parallelism)]


def from_path(path: str, mode: RestoreMode = RestoreMode.NO_CLAIM, *, take_over: bool = False) -> Restored:
    """Open the checkpoint or savepoint at a user's path. Unless claimed it remains the user's, and is only read.

    With `take_over` a checkpoint may be claimed also while its job runs.

    A claimed checkpoint is the last of its job, which resumes under its own id; so it must be in the job's checkpoint
    storage. A claimed savepoint still starts a new job, and becomes its `owned_savepoint`.

    Raises:
        CheckpointNotFoundError, CheckpointDamagedError, FormatTooNewError, StateNotRestorableError: it cannot be used,
            or not claimed.
    """
    checkpoint, directory = load_checkpoint(path)
    verify_files(open_storage(directory), "", checkpoint)
    if mode is RestoreMode.NO_CLAIM:
        return Restored(checkpoint, directory, "", claim=False)
    if checkpoint.is_savepoint:
        return Restored(checkpoint, directory, "", claim=False, owned_savepoint=directory)
    return _claimed(checkpoint, directory, take_over=take_over)


def _claimed(checkpoint: CompletedCheckpoint, job_directory: str, *, take_over: bool) -> Restored:
    job_id = checkpoint.job_id
    if last_name(job_directory) != job_id:
        raise StateNotRestorableError(
            f"checkpoint {checkpoint.checkpoint_id} of job {job_id} cannot be claimed: it lies in"
            f' "{shown(job_directory)}", which is not the directory of that job',
            hint="Restore it with no_claim, which starts a new job from it.",
        )
    storage = open_storage(parent(job_directory))
    owner = owner_of(storage, job_id)
    if owner is not None and is_running(owner) and not take_over:
        raise StateNotRestorableError(
            f"checkpoint {checkpoint.checkpoint_id} of job {job_id} cannot be claimed: the job is running, in process"
            f" {owner.pid}",
            hint="Stop it first, or add --take-over if it hangs, or restore with no_claim, which starts a new job"
            " from it.",
        )
    store = CheckpointStore(storage, job_id)
    for newer in reversed(store.completed()):
        if newer <= checkpoint.checkpoint_id:
            break
        try:
            store.verify(store.load(newer))
        except (CheckpointDamagedError, CheckpointNotFoundError):
            continue  # no job could resume from it
        raise StateNotRestorableError(
            f"checkpoint {checkpoint.checkpoint_id} of job {job_id} cannot be claimed: checkpoint {newer} is newer, and"
            " what came between would be lost",
            hint="Go on with --resume latest, or restore this one with no_claim, which starts a new job from it.",
        )
    return Restored(checkpoint, storage.uri, job_id, claim=True)


def claimed_storage(restored: Restored, configured: str | None) -> str:
    """Return the storage of a job that resumes from a claimed checkpoint: the checkpoint's own.

    Raises:
        StateNotRestorableError: the settings name another storage.
    """
    if configured is not None and open_storage(configured).uri.rstrip("/") != restored.storage.rstrip("/"):
        raise StateNotRestorableError(
            f'"{shown(restored.path)}" cannot be claimed: the job keeps its checkpoints in "{configured}"',
            hint=f'Set state.checkpoints.dir to "{shown(restored.storage)}", or restore with no_claim.',
        )
    return restored.storage


def give_up_savepoint(restored: Restored | None) -> None:
    """Delete the savepoint that the job owns, if any, now that it has a checkpoint of its own.

    Idempotent: may be called again after an error, and when the savepoint is gone.
    """
    if restored is None or restored.owned_savepoint is None:
        return
    with suppress(CheckpointNotFoundError):
        dispose(restored.owned_savepoint)


def find_job(storage: Storage, job_name: str) -> JobId:
    """Find the job that wrote the newest checkpoint under this name.

    Raises:
        CheckpointNotFoundError: no job has completed one; a checkpoint that cannot be read counts as completed.
    """
    found = find_latest(storage, job_name)
    if not found:
        raise CheckpointNotFoundError(
            f'no checkpoint of job "{job_name}" in {storage.uri}',
            hint="Start the job without --resume, or set state.checkpoints.dir to where its checkpoints are.",
        )
    return found[0].job_id


def newest_first(store: CheckpointStore, storage: Storage, job_id: JobId, listener: JobListener) -> Iterator[Restored]:
    """Yield the job's own intact checkpoints, newest first; report and skip damaged ones.

    Raises:
        StorageError: a driver that still runs replaced all of them before they could be read.
    """
    for _ in range(LOOKS):
        has_found = have_gone = False
        for checkpoint_id in reversed(store.completed()):
            try:
                checkpoint = store.load(checkpoint_id)
                store.verify(checkpoint)
            except (CheckpointDamagedError, CheckpointNotFoundError) as reason:
                if not store.has(checkpoint_id):  # discarded since it was listed
                    have_gone = True
                    continue
                listener.checkpoint_skipped(store.checkpoint_uri(checkpoint_id), reason)
                continue
            has_found = True
            yield Restored(checkpoint, storage.uri, job_id, claim=True)
        if has_found or not have_gone:
            return
    raise changing(store.uri)


def check_fit(restored: Restored, plan: JobPlan, choices: SourceChoices) -> None:
    """Refuse, before anything runs, state and source positions that do not fit this job."""
    restored.with_sources(plan, choices)
    known = {operator.uid: operator for operator in plan.operators if operator.uid is not None}
    for entry in restored.checkpoint.operators:
        operator = known.get(entry.uid)
        if operator is None:
            if not entry.is_empty and not choices.allow_non_restored_state:
                raise StateNotRestorableError(
                    f'"{restored.path}" holds state of operator "{entry.uid}", which the job does not have',
                    hint=f'Give one operator uid="{entry.uid}", or restore with --allow-non-restored-state.',
                )
        elif entry.subtasks and entry.max_parallelism != plan.key_groups_of(operator.id):
            raise StateNotRestorableError(
                f'"{restored.path}" has max parallelism {entry.max_parallelism} for operator "{entry.uid}", '
                f"the job {plan.key_groups_of(operator.id)}",
                hint=f"Max parallelism is fixed at the first checkpoint: leave it unset or "
                f"set it to {entry.max_parallelism}.",
            )


def max_parallelism_for(restored: Restored | None, asked: int | None, parallelism: int) -> int | None:
    """Return the number of key groups: the one the job sets, else the one its checkpoint was written with."""
    if restored is None or asked is not None:
        return asked
    fixed = restored.checkpoint.max_parallelism
    if parallelism > fixed:
        raise _too_wide(parallelism, fixed, "the checkpoint")
    return fixed


def keep_max_parallelism(
    operators: Sequence[Operator], restored: Restored | None, asked: int | None, parallelism: int
) -> list[Operator]:
    """Return the operators, each with the key groups its keyed state was written with, unless the job sets a number.

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
