"""The states of tasks, which follow from the status of their job: all slots start, run and end together."""

from __future__ import annotations

from checkdam.runtime.monitor.job_records import NEVER, JobRecord, JobStatus, OperatorRecord

STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
    "INITIALIZING",
)

_OF_JOB = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FAILING: "CANCELING",
    JobStatus.FAILED: "CANCELED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.RESTARTING: "CANCELED",
    JobStatus.SUSPENDED: "CANCELED",
    JobStatus.RECONCILING: "RECONCILING",
}


def task_state(record: JobRecord, operator: OperatorRecord, subtask: int | None = None) -> str:
    """Of a vertex, or of one subtask of it. The one whose failure ended the job is FAILED."""
    if record.status in (JobStatus.FAILED, JobStatus.FAILING, JobStatus.RESTARTING) and record.exceptions:
        latest = record.exceptions[0]
        if latest.task == operator.name and subtask in (None, latest.subtask):
            return "FAILED"
    return _OF_JOB[record.status]


def state_counts(states: list[str]) -> dict[str, int]:
    """Every state is there, in capitals."""
    return {state: states.count(state) for state in STATES}


def subtask_states(record: JobRecord, operator: OperatorRecord) -> list[str]:
    return [task_state(record, operator, subtask) for subtask in range(operator.parallelism)]


def running_since(record: JobRecord) -> int:
    """When the tasks of the current attempt started; -1 if none has."""
    return record.timestamps.get(JobStatus.RUNNING, NEVER)


def running_for(record: JobRecord, now: int) -> int:
    """Milliseconds since then, until the job's end; -1 if it has not started."""
    since, end = running_since(record), record.ended_at
    return NEVER if since < 0 else max(0, (end if end >= 0 else now) - since)
