"""The events of a running job, and the listeners that receive them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from checkdam.checkpoint.settings import JobEnd
from checkdam.connectors.contract import Withdrawn
from checkdam.errors import CheckdamError
from checkdam.graph.levels import JobPlan
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import SlotRecord, SnapshotKind
from checkdam.runtime.restart import Restart
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts
from checkdam.state.snapshot_handles import SlotSnapshot
from checkdam.state.state_count import StateCount

_NAMED = 10  # number of files that a warning names


@dataclass(frozen=True)
class EpochStats:
    """One epoch, all slots together; `reports` has each slot's own report."""

    epoch: Epoch
    records: int  # that entered the slots
    seconds: float
    held: StateCount = field(default_factory=StateCount)  # in keyed state, by all operators together
    reports: Sequence[EpochReport] = ()
    source_side: Mapping[tuple[int, int], OperatorCounts] = field(default_factory=dict)
    """Counts of operators upstream of the first exchange, by subtask; those without Python work are left out."""


@dataclass(frozen=True)
class CheckpointTriggered:
    """A barrier was sent, or has waited too long for the end of an epoch. `at` is when it was due; None: now."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    kind: SnapshotKind
    savepoint_format: str | None = None
    is_full: bool = False
    at: datetime | None = None


@dataclass(frozen=True)
class CheckpointStats:
    """One completed checkpoint."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    path: str
    seconds: float  # from the trigger to the last acknowledgement, in whole milliseconds
    sync_seconds: float  # of the slowest slot
    async_seconds: float
    state_bytes: int  # of all files the checkpoint refers to
    new_bytes: int  # of those written for this one
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    metadata_bytes: int = 0


class JobListener:
    """Receives every event and does nothing; override what you need. Calls come from the job's own threads."""

    def job_started(self, job_id: JobId, name: str, slots: int) -> None: ...

    def settings_without_effect(self, keys: Sequence[str], reason: str) -> None:
        """Handle that these settings have no effect, for this reason; called before the job starts."""

    def taken_over(self, owner: str) -> None:
        """Handle that the job was taken from a driver that may still run; that driver stops when it notices."""

    def status_changed(self, status: JobStatus) -> None:
        """Handle that the job has entered this status; the last call comes before `job_ended`."""

    def progressed(self, what: str | None) -> None:
        """Handle the start of a long step ("restoring", "savepoint 12: 1 of 2 slots"), or with None its end."""

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        """Handle the start of an attempt's slots, given by subtask."""

    def nothing_to_resume(self, reason: CheckdamError) -> None:
        """Handle that the job starts from scratch: it was to resume from its newest checkpoint, but has none."""

    def restored(self, path: str, epoch: Epoch) -> None: ...

    def checkpoint_skipped(self, path: str, reason: CheckdamError) -> None:
        """Handle that a damaged checkpoint was skipped for an older one."""

    def checkpoint_dropped(self, path: str) -> None:
        """Handle the removal of a checkpoint that does not count: the job had been taken from its driver without it."""

    def output_withdrawn(self, uid: OperatorUid, withdrawn: Withdrawn) -> None:
        """Handle that a sink's output was withdrawn from readers, since the job resumes from an older checkpoint."""

    def output_missing(self, path: str, files: Sequence[str]) -> None:
        """Handle that files covered by the checkpoint at `path` are gone: removed by a reader, or lost."""

    def epoch_ended(self, stats: EpochStats) -> None: ...

    def sources_seen(self, pending: Mapping[int, int]) -> None:
        """Handle how many records each source, by operator, has not read yet; one that does not tell is left out."""

    def printed(self, lines: list[str]) -> None:
        """Handle output of `print()` sinks."""

    def checkpoint_triggered(self, trigger: CheckpointTriggered) -> None: ...

    def checkpoint_acknowledged(self, snapshot: SlotSnapshot, at: datetime) -> None:
        """Handle that one slot has written its part; the snapshot includes the cost of each operator."""

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        """Handle that a checkpoint or savepoint is complete and its output, where it publishes any, published."""

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None: ...

    def checkpoints_discarded(self, checkpoint_ids: Sequence[CheckpointId]) -> None:
        """Handle that retention has removed these older checkpoints."""

    def rescaling(self, parallelism: int) -> None:
        """Handle that the job is about to resume at this parallelism."""

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        """Handle the end of a rescale: the job runs at this parallelism, or as before because of `failure`."""

    def replanned(self, plan: JobPlan) -> None:
        """Handle the new plan of a job that is being rescaled, valid from the next attempt on."""

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        """Handle that the job has failed and waits for its restart."""

    def failed(self, failure: CheckdamError) -> None:
        """Handle a failure that no restart will cure; the job ends next."""

    def last_checkpoint_missed(self, reason: str) -> None:
        """Handle that the job is suspended without a checkpoint of everything it has done, for this reason."""

    def checkpoints_deleted(self, checkpoint_ids: Sequence[CheckpointId], place: str, retention: str) -> None:
        """Handle that the job has ended and its checkpoints are deleted according to the retention."""

    def left_behind(self, reason: CheckdamError) -> None:
        """Handle that the job has ended, but something it should have removed is still there."""

    def checkpoints_unknown(self, reason: CheckdamError) -> None:
        """Handle that the job ends next with its last checkpoint unknown: there may be one to resume from."""

    def drained(self, savepoint: str) -> None:
        """Handle that the job ends next with this savepoint, taken after event time had ended for every operator."""

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None: ...


EVENTS: Final = tuple(name for name in vars(JobListener) if not name.startswith("_"))


def told_without_effect(keys: Sequence[str], reason: str) -> str:
    have = "has" if len(keys) == 1 else "have"
    return f"{_named(keys)} {have} no effect: {reason}"


def told_skipped(path: str, reason: CheckdamError) -> str:
    return (
        f"checkpoint {path} is passed over for an older one: {reason.message}; all that came since the older one is"
        " processed again: part files published since are withdrawn first, other output is repeated"
    )


def told_dropped(path: str) -> str:
    return (
        f"checkpoint {path} is removed: the job was taken over and has gone on without it, because it was completed too"
        " late or was not there then"
    )


def told_withdrawn(uid: OperatorUid, withdrawn: Withdrawn) -> str:
    text = f'sink "{uid}": {len(withdrawn.moved)} published files are withdrawn, now in {withdrawn.place}'
    if withdrawn.gone:
        text += f"; no longer there, so that their records are seen again: {_named(withdrawn.gone)}"
    return text


def told_missing(path: str, files: Sequence[str]) -> str:
    return f"output that {path} covers is not there; unless a reader has taken it, it is lost: {_named(files)}"


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return f"{', '.join(files[:_NAMED])}{more}"


class PrintingListener(JobListener):
    """Prints the output of `print()` sinks, and problems to standard error: for a job run as a plain Python program."""

    _is_unknown = False  # whether it is unknown if a checkpoint is left

    def printed(self, lines: list[str]) -> None:
        print("\n".join(lines), flush=True)  # noqa: T201  printing is the purpose of the sink

    def settings_without_effect(self, keys: Sequence[str], reason: str) -> None:
        sys.stderr.write(f"note: {told_without_effect(keys, reason)}\n")

    def nothing_to_resume(self, reason: CheckdamError) -> None:
        sys.stderr.write(f"{reason.message}: starting anew\n")

    def taken_over(self, owner: str) -> None:
        sys.stderr.write(f"warning: the job is taken over from {owner}, which may still run\n")

    def checkpoint_skipped(self, path: str, reason: CheckdamError) -> None:
        sys.stderr.write(f"warning: {told_skipped(path, reason)}\n")

    def checkpoint_dropped(self, path: str) -> None:
        sys.stderr.write(f"warning: {told_dropped(path)}\n")

    def output_withdrawn(self, uid: OperatorUid, withdrawn: Withdrawn) -> None:
        sys.stderr.write(f"warning: {told_withdrawn(uid, withdrawn)}\n")

    def output_missing(self, path: str, files: Sequence[str]) -> None:
        sys.stderr.write(f"warning: {told_missing(path, files)}\n")

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        sys.stderr.write(f"warning: checkpoint {checkpoint_id} failed: {reason}\n")

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        sys.stderr.write(f"warning: restarting in {restart.delay.total_seconds():.1f} s ({restart.which}): {failure}\n")

    def last_checkpoint_missed(self, reason: str) -> None:
        sys.stderr.write(f"warning: no last checkpoint was taken: {reason}\n")

    def checkpoints_deleted(self, checkpoint_ids: Sequence[CheckpointId], place: str, retention: str) -> None:
        sys.stderr.write(f"{len(checkpoint_ids)} checkpoint(s) in {place} deleted (retention {retention})\n")

    def checkpoints_unknown(self, reason: CheckdamError) -> None:
        self._is_unknown = True
        sys.stderr.write(f"warning: whether a checkpoint is left could not be seen: {reason}\n")

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        if end is JobEnd.SUSPENDED and self._is_unknown:
            sys.stderr.write("suspended\n")
        elif end is JobEnd.SUSPENDED:
            kept = f"at {last_checkpoint}" if last_checkpoint else "with no checkpoint to resume from"
            sys.stderr.write(f"suspended {kept}\n")
