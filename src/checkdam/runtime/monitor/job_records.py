"""The record of a job, running or ended, as plain data: used by REST, the page and the archive.

Instants are milliseconds since 1970, durations milliseconds, as on Flink's wire; -1 means that it has not happened.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from checkdam.graph.metrics import MetricValue
from checkdam.runtime.job_status import JobStatus

NEVER = -1


class SnapshotKind(StrEnum):
    """Why a snapshot was taken; Flink's names."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    SYNC_SAVEPOINT = "SYNC_SAVEPOINT"  # the job stops with it

    @property
    def is_savepoint(self) -> bool:
        return self is not SnapshotKind.CHECKPOINT


class CheckpointStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SlotRecord(msgspec.Struct, frozen=True):
    """The process of one slot in the current attempt."""

    subtask: int
    host: str
    location: str  # the address it listens on
    pid: int
    started_at: int
    memory: int = NEVER  # resident bytes, as of its last report


class InputRecord(msgspec.Struct, frozen=True):
    """One edge of the graph, seen from its target."""

    operator: int
    ship_strategy: str  # Flink's words: FORWARD, HASH, BROADCAST, RESCALE, REBALANCE


class OperatorRecord(msgspec.Struct, frozen=True):
    """One operator of the plan; a vertex on Flink's wire."""

    id: int  # its place in the plan
    vertex_id: str  # 32 hex digits; derived from the uid, if any, so that it stays the same
    uid: str | None
    name: str
    kind: str  # a word for people: "source", "map", "keyed process", "sum", "sink", …
    parallelism: int
    max_parallelism: int
    level: int  # 0: runs in Spark before the first exchange
    inputs: tuple[InputRecord, ...] = ()
    is_stateful: bool = False
    is_named: bool = False  # the user has chosen the name; else the uid tells more
    is_fixed: bool = False  # its parallelism is not the job's, and stays when the job is rescaled

    @property
    def is_source(self) -> bool:
        return self.kind == "source"

    @property
    def is_assigner(self) -> bool:
        """Whether it assigns timestamps, so that its watermark is its own."""
        return self.kind.endswith("timestamps")


class SubtaskFigures(msgspec.Struct, frozen=True):
    """The figures of one subtask of one operator in the current attempt: as in Flink, counts restart with it."""

    subtask: int
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0  # in total
    busy_ratio: float = 0.0  # of the last epochs: the share of wall time it was busy
    watermark: int | None = None
    entries: int = 0  # held in keyed state; an estimate if `is_estimated`
    records_in_per_second: float = 0.0  # this and the following: over the last seconds, idle ones included
    records_out_per_second: float = 0.0
    bytes_in_per_second: float = 0.0
    bytes_out_per_second: float = 0.0
    late_records_dropped: int | None = None  # None for an operator that drops none
    user: dict[str, MetricValue] = {}  # the metrics of the user's function, by name
    is_busy_known: bool = True  # False for Spark's own work
    pending_records: int | None = None  # of a source: not read yet; None where it does not tell
    emitted_at: int = NEVER  # of a source: the end of the last epoch with records
    keys: int | None = None  # in keyed state; None: not counted
    is_estimated: bool = False  # keys and entries


class OperatorFigures(msgspec.Struct, frozen=True):
    """The figures of one operator; `state_bytes` is as of the last completed checkpoint."""

    operator: int
    subtasks: tuple[SubtaskFigures, ...] = ()
    state_bytes: int = 0


class EpochRecord(msgspec.Struct, frozen=True):
    """One epoch, for plots over time."""

    epoch: int
    ended_at: int
    duration: float  # milliseconds
    records: int
    keys: int  # held in keyed state; NEVER: not counted. Records without `entries` have those here
    entries: int = NEVER
    is_estimated: bool = False


class SeriesPoint(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of time, for plots. Archived as an array: fields are only ever added at the end."""

    start: int
    width: int  # milliseconds
    epochs: int = 0  # that ended in it
    epoch_ms: float = 0.0  # of all of them together
    longest_epoch_ms: float = 0.0
    records: float = 0.0  # an epoch's records are spread over the time since the epoch before
    covered: float = 0.0  # milliseconds for which `records` counts
    entries: int = NEVER  # held in keyed state
    checkpoints: int = 0  # completed, without savepoints
    checkpoint_ms: float = 0.0
    longest_checkpoint_ms: float = 0.0
    checkpointed_bytes: int = 0
    state_bytes: int = NEVER


class JobEventKind(StrEnum):
    """What is marked in plots."""

    SAVEPOINT = "SAVEPOINT"
    CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
    FAILOVER = "FAILOVER"
    RESCALE = "RESCALE"


class JobEventRecord(msgspec.Struct, frozen=True):
    at: int
    kind: JobEventKind
    text: str


class SubtaskCheckpoint(msgspec.Struct, frozen=True):
    """One operator subtask's part of a checkpoint. Alignment is always 0: a barrier falls between epochs."""

    subtask: int
    acknowledged_at: int
    sync_ms: float
    async_ms: float
    end_to_end_ms: float
    checkpointed_bytes: int  # written for this one
    state_bytes: int


class OperatorCheckpoint(msgspec.Struct, frozen=True):
    operator: int
    num_subtasks: int
    subtasks: tuple[SubtaskCheckpoint, ...] = ()  # those that have acknowledged, by index


class CheckpointRecord(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint: in progress, complete, or failed with its reason."""

    id: int
    kind: SnapshotKind
    status: CheckpointStatus
    triggered_at: int
    epoch: int
    num_subtasks: int  # of all operators that take part
    savepoint_format: str | None = None  # CANONICAL or NATIVE; None for a checkpoint
    is_full: bool = False
    finished_at: int = NEVER  # its last acknowledgement, or its failure
    duration: float = NEVER  # see `end_to_end`
    checkpointed_bytes: int = 0
    state_bytes: int = 0
    metadata_bytes: int = 0
    path: str | None = None
    is_discarded: bool = False
    failure: str | None = None
    operators: tuple[OperatorCheckpoint, ...] = ()

    @property
    def last_ack(self) -> int:
        """The time of the newest acknowledgement; -1 if there is none. An old savepoint has only its duration."""
        acks = [subtask.acknowledged_at for operator in self.operators for subtask in operator.subtasks]
        if not acks and self.status is CheckpointStatus.COMPLETED:
            return self.triggered_at + round(self.duration)
        return max(acks, default=NEVER)

    @property
    def end_to_end(self) -> int:
        """Milliseconds from the trigger to the last acknowledgement; if it failed, to the failure. -1: unknown yet."""
        if self.status is CheckpointStatus.FAILED:
            return round(self.duration)
        return NEVER if self.last_ack == NEVER else max(0, self.last_ack - self.triggered_at)


class RestoreRecord(msgspec.Struct, frozen=True):
    checkpoint_id: int
    restored_at: int
    path: str
    is_savepoint: bool
    duration: float = 0.0  # milliseconds until every slot had its state


class ExceptionRecord(msgspec.Struct, frozen=True):
    """A failure of the job. `stacktrace` begins with the user's own frames where their code raised."""

    name: str  # the exception's class
    message: str
    stacktrace: str
    at: int
    task: str | None = None  # the operator's name
    subtask: int | None = None
    slot: str | None = None  # "host:pid" of the slot


class RestartRecord(msgspec.Struct, frozen=True):
    """The latest restart: `attempt` of at most `most`, as the restart strategy counts them; None: any number."""

    attempt: int
    most: int | None
    reason: str  # one line
    failed_at: int
    next_at: int  # when the job is, or was, to run again


class CheckpointTrouble(msgspec.Struct, frozen=True):
    """Checkpoints that have failed since the last one that completed, savepoints not counted."""

    failed_in_a_row: int
    since: int  # when the first of them failed
    reason: str  # of the latest


class RescaleRecord(msgspec.Struct, frozen=True):
    id: str  # 32 hex digits
    started_at: int
    from_parallelism: int
    to_parallelism: int
    ended_at: int = NEVER
    failure: str | None = None


class CheckpointCounts(msgspec.Struct, frozen=True):
    """Numbers of checkpoints over the whole life of the driver, not limited to the history."""

    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


class OptionRecord(msgspec.Struct, frozen=True):
    """The effective value of one setting, and where it comes from: code, command line, file, default …"""

    key: str
    value: str | None  # None: unset
    origin: str


class JobSettings(msgspec.Struct, frozen=True):
    """The content of `/config` and `/checkpoints/config`. Values that look secret are already masked."""

    mode: str  # exactly_once, at_least_once
    interval: int  # milliseconds; NEVER: no periodic checkpoints
    timeout: int
    min_pause: int
    max_concurrent: int
    tolerable_failures: int
    retention: str  # of CheckpointRetention
    num_retained: int
    state_backend: str
    storage: str | None  # None: checkpoints are off
    savepoint_directory: str | None
    restart_strategy: str
    configuration: dict[str, str] = {}  # settings that were given, with their effective values
    options: tuple[OptionRecord, ...] = ()  # all, by key
    savepoint_allowed_dirs: str | None = None  # with commas between them


class EndingRecord(msgspec.Struct, frozen=True):
    """What a job left when it ended."""

    savepoint: str | None = None  # that it was stopped or cancelled with
    checkpoint: str | None = None  # the newest that is retained
    is_drained: bool = False  # event time had ended before the savepoint: not to be resumed
    resume: str | None = None  # the command that resumes the job; None: nothing to resume from, or unknown


class JobRecord(msgspec.Struct, frozen=True):
    """A job at one moment. Also the archive's durable form: fields are only ever added, with defaults."""

    id: str
    name: str
    status: JobStatus
    timestamps: dict[JobStatus, int]  # when each status was last entered; those never entered are left out
    parallelism: int
    max_parallelism: int
    settings: JobSettings
    operators: tuple[OperatorRecord, ...] = ()
    figures: tuple[OperatorFigures, ...] = ()
    slots: tuple[SlotRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()  # newest first, those in progress included; bounded
    checkpoint_counts: CheckpointCounts = CheckpointCounts()
    savepoints: tuple[CheckpointRecord, ...] = ()  # all completed ones of this driver's life, newest first
    restored: RestoreRecord | None = None  # the latest one
    exceptions: tuple[ExceptionRecord, ...] = ()  # newest first; bounded
    rescales: tuple[RescaleRecord, ...] = ()  # newest first; bounded
    epochs: tuple[EpochRecord, ...] = ()  # oldest first; bounded
    epoch: int = NEVER  # the last that ended
    keys: int = 0  # held in keyed state by all operators; NEVER: not counted
    entries: int = 0
    is_estimated: bool = False  # keys and entries
    restarts: int = 0
    progress: str | None = None  # the current long step: "restoring", "savepoint 12: 1 of 2 slots", …
    address: str | None = None  # the address that serves or served the job
    format: int = 1
    restart: RestartRecord | None = None  # the latest one, also when the job runs again
    checkpoint_trouble: CheckpointTrouble | None = None  # None: the last checkpoint has completed
    logs: str | None = None  # the directory of its log files, on the driver's machine
    spent: dict[JobStatus, int] = {}  # milliseconds in each status until it was last left; without the current stay
    series: tuple[SeriesPoint, ...] = ()  # oldest first; bounded
    events: tuple[JobEventRecord, ...] = ()  # oldest first; bounded
    ending: EndingRecord | None = None  # None: it has not ended

    @property
    def started_at(self) -> int:
        return self.timestamps.get(JobStatus.INITIALIZING, NEVER)

    @property
    def ended_at(self) -> int:
        """The time when the job ended or its driver went away; -1 while it runs."""
        return self.timestamps.get(self.status, NEVER) if self.status.has_ended else NEVER
