"""The setup of a slot for an attempt: its plan, its backend and the state it restores."""

from __future__ import annotations

from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.job import Job
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.source_position import decode_position, job_sources


def slot_setup(
    job: Job,
    attempt: Attempt,
    subtask: SubtaskIndex,
    restored: Restored | None,
    last_epoch: Epoch,
    next_checkpoint: CheckpointId,
) -> SlotSetup:
    """Return the setup of one slot."""
    return SlotSetup(
        job_id=job.job_id,
        attempt=attempt,
        subtask=subtask,
        plan=job.plan.for_slots(),
        backend=job.backend,
        last_epoch=last_epoch,
        unread_assigners=_unread_assigners(job, restored),
        storage=job.storage,
        restore=restored.point() if restored else None,
        event_time=restored.event_time(job.plan) if restored else {},
        watermarks=restored.watermarks(job.plan) if restored else {},
        driver_memory=job.driver_memory,
        local_directory=job.local_directory,
        local_copies=None if job.local_copies is None else job.local_copies.of_subtask(subtask),
        next_checkpoint=next_checkpoint,
    )


def _unread_assigners(job: Job, restored: Restored | None) -> frozenset[int]:
    """Return the timestamp assigners behind static sources whose records come with the next epoch."""
    plan = job.plan
    position = restored.checkpoint.source_position if restored else b""
    read = {each.uid for each in decode_position(position).held}
    unread = {source.id for source in job_sources(plan) if source.is_static and source.uid not in read}
    for operator in plan.operators:
        if unread.intersection(operator.all_inputs):
            unread.add(operator.id)
    return frozenset((plan.static_assigners | plan.ending_assigners.keys()) & unread)
