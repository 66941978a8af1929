"""The record of a job that has run for a while, for measuring and trying the web page."""

from __future__ import annotations

import math

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    EpochRecord,
    ExceptionRecord,
    InputRecord,
    JobEventKind,
    JobEventRecord,
    JobRecord,
    JobSettings,
    OperatorCheckpoint,
    OperatorFigures,
    OperatorRecord,
    RescaleRecord,
    SlotRecord,
    SnapshotKind,
    SubtaskCheckpoint,
    SubtaskFigures,
)

JOB_ID = "ab" * 16
_EPOCH = 1_000  # milliseconds
_CHECKPOINT_EVERY = 5  # epochs


def job_with_history(
    *, checkpoints: int, now: int, name: str = "orders by customer", parallelism: int = 4
) -> JobRecord:
    """Return a running job of eight operators with a history of this many checkpoints, the last one at `now`."""
    operators = _operators(parallelism)
    epochs = checkpoints * _CHECKPOINT_EVERY
    started = now - epochs * _EPOCH - 5_000
    taken = tuple(_checkpoint(n, started, operators) for n in range(checkpoints, 0, -1))
    failed = sum(each.status is CheckpointStatus.FAILED for each in taken)
    return JobRecord(
        id=JOB_ID,
        name=name,
        status=JobStatus.RUNNING,
        timestamps={JobStatus.INITIALIZING: started, JobStatus.CREATED: started, JobStatus.RUNNING: started + 900},
        parallelism=parallelism,
        max_parallelism=128,
        settings=_SETTINGS,
        operators=operators,
        figures=tuple(_figures(operator, epochs, started) for operator in operators),
        slots=tuple(
            SlotRecord(index, "localhost", f"127.0.0.1:{40_000 + index}", 1_000 + index, started, 220 << 20)
            for index in range(parallelism)
        ),
        checkpoints=taken,
        checkpoint_counts=CheckpointCounts(total=checkpoints, completed=checkpoints - failed, failed=failed),
        savepoints=tuple(each for each in taken if each.kind.is_savepoint),
        exceptions=(_failure(started + 60_000),),
        epochs=tuple(
            EpochRecord(
                n,
                started + n * _EPOCH,
                300 + 90 * math.sin(n / 9),
                20_000 + int(4_000 * math.sin(n / 30)),
                50 * n,
                50 * n,
            )
            for n in range(1, epochs + 1)
        ),
        epoch=epochs,
        keys=50 * epochs,
        entries=50 * epochs,
        restarts=1,
        rescales=(RescaleRecord("ef" * 16, started + 200_000, 2, parallelism, started + 201_200),),
        events=_events(taken, started, parallelism),
    )


_SETTINGS = JobSettings(
    mode="exactly_once",
    interval=_CHECKPOINT_EVERY * _EPOCH,
    timeout=600_000,
    min_pause=0,
    max_concurrent=1,
    tolerable_failures=2,
    retention="RETAIN_ON_CANCELLATION",
    num_retained=5,
    state_backend="hashmap",
    storage="file:///checkpoints",
    savepoint_directory=None,
    restart_strategy="fixed delay, 3 attempts",
    configuration={"execution.checkpointing.interval": "5 s", "parallelism.default": "4"},
)


def _operators(parallelism: int) -> tuple[OperatorRecord, ...]:
    def operator(
        index: int, name: str, kind: str, level: int, *inputs: tuple[int, str], uid: str | None = None
    ) -> OperatorRecord:
        edges = tuple(InputRecord(source, strategy) for source, strategy in inputs)
        is_stateful = uid is not None
        return OperatorRecord(
            index,
            f"{index + 1:032x}",
            uid,
            name,
            kind,
            parallelism,
            128,
            level,
            inputs=edges,
            is_stateful=is_stateful,
            is_named=True,
        )

    return (
        operator(0, "orders from Kafka", "source", 0),
        operator(1, "parse", "map", 0, (0, "FORWARD")),
        operator(2, "rates", "source", 0),
        operator(3, "in euros", "keyed process with broadcast", 1, (1, "HASH"), (2, "BROADCAST"), uid="euros"),
        operator(4, "total by customer", "sum", 2, (3, "HASH"), uid="totals"),
        operator(5, "alerts", "keyed process", 2, (3, "HASH"), uid="alerts"),
        operator(6, "totals to Parquet", "sink", 2, (4, "FORWARD")),
        operator(7, "alerts to Kafka", "sink", 2, (5, "FORWARD")),
    )


def _figures(operator: OperatorRecord, epochs: int, started: int) -> OperatorFigures:
    busy = (0.31, 0.12, 0.0, 0.94, 0.64, 0.45, 0.08, 0.02)[operator.id]
    records = epochs * 20_000 // operator.parallelism
    return OperatorFigures(
        operator.id,
        tuple(
            SubtaskFigures(
                subtask,
                records_in=records if operator.inputs else 0,
                records_out=records if operator.kind != "sink" else 0,
                bytes_in=records * 40,
                bytes_out=records * 40,
                busy_ms=busy * epochs * _EPOCH,
                busy_ratio=busy / (1 + subtask / 4),
                watermark=started + epochs * _EPOCH if operator.level else None,
                entries=epochs * 50 // operator.parallelism if operator.is_stateful else 0,
            )
            for subtask in range(operator.parallelism)
        ),
        state_bytes=epochs * 50 * 40 if operator.is_stateful else 0,
    )


def _checkpoint(number: int, started: int, operators: tuple[OperatorRecord, ...]) -> CheckpointRecord:
    triggered = started + number * _CHECKPOINT_EVERY * _EPOCH
    kind = SnapshotKind.SAVEPOINT if number % 40 == 0 else SnapshotKind.CHECKPOINT
    has_failed = number % 60 == 7
    parts = () if has_failed else tuple(_part(op, number, triggered) for op in operators if op.is_stateful)
    subtasks = [subtask for part in parts for subtask in part.subtasks]
    directory = f"savepoint-{JOB_ID[:6]}-{number:012x}" if kind.is_savepoint else f"chk-{number}"
    duration = max((subtask.end_to_end_ms for subtask in subtasks), default=409.0)
    return CheckpointRecord(
        id=number,
        kind=kind,
        status=CheckpointStatus.FAILED if has_failed else CheckpointStatus.COMPLETED,
        triggered_at=triggered,
        epoch=number * _CHECKPOINT_EVERY,
        num_subtasks=sum(op.parallelism for op in operators if op.is_stateful),
        savepoint_format="CANONICAL" if kind.is_savepoint else None,
        finished_at=triggered + round(duration),
        duration=duration,
        checkpointed_bytes=sum(subtask.checkpointed_bytes for subtask in subtasks),
        state_bytes=sum(subtask.state_bytes for subtask in subtasks),
        metadata_bytes=4_096,
        path=None if has_failed else f"file:///checkpoints/{JOB_ID}/{directory}",
        failure="slot 2 could not write its part: No space left on device" if has_failed else None,
        operators=parts,
    )


def _part(operator: OperatorRecord, number: int, triggered: int) -> OperatorCheckpoint:
    subtasks = []
    for subtask in range(operator.parallelism):
        is_slow = subtask == 2 and operator.uid == "totals"
        sync, writing = 3.0 + subtask, 40.0 + 25 * math.sin(number / 5) + (190 if is_slow else 12 * operator.id)
        subtasks.append(
            SubtaskCheckpoint(
                subtask,
                triggered + int(sync + writing + 6),
                sync,
                writing,
                sync + writing + 6,
                checkpointed_bytes=100_000 + 2_000 * subtask,
                state_bytes=100_000 + 9_000 * number,
            )
        )
    return OperatorCheckpoint(operator.id, operator.parallelism, tuple(subtasks))


def _failure(at: int) -> ExceptionRecord:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "orders.py", line 41, in process_element\n'
        "    rate = rates[order.currency]\n"
        "KeyError: 'XAU'\n\n"
        'in operator "in euros", subtask 1, epoch 60\n'
    )
    return ExceptionRecord("KeyError", "'XAU'", trace, at, "in euros", 1, "localhost:1001")


def _events(checkpoints: tuple[CheckpointRecord, ...], started: int, parallelism: int) -> tuple[JobEventRecord, ...]:
    of_checkpoints = [
        JobEventRecord(each.finished_at, JobEventKind.SAVEPOINT, f"savepoint {each.id}: {each.path}")
        if each.kind.is_savepoint
        else JobEventRecord(
            each.finished_at, JobEventKind.CHECKPOINT_FAILED, f"checkpoint {each.id} failed: {each.failure}"
        )
        for each in checkpoints
        if each.kind.is_savepoint or each.failure is not None
    ]
    others = [
        JobEventRecord(started + 60_000, JobEventKind.FAILOVER, "restarted after a failure: 'XAU'"),
        JobEventRecord(started + 201_200, JobEventKind.RESCALE, f"rescaled to parallelism {parallelism}"),
    ]
    return tuple(sorted([*of_checkpoints, *others], key=lambda event: event.at))
