"""The epochs of one attempt: each moves its records, is ended in every slot, and tells what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.graph.operators import SourceFunctionKind
from checkdam.ids import Epoch
from checkdam.runtime.driver.checkpointing import Checkpointing, Surroundings
from checkdam.runtime.driver.epoch_scheduler import Pending
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.slot.messages import EpochReport


class Epochs:
    """Runs one epoch after the other; whoever calls has the turn. `last` is the last that has ended."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        group: SlotGroup,
        checkpoints: Checkpointing,
        changed: threading.Condition,
        restored: Restored | None,
    ) -> None:
        self._job = job
        self._around = around
        self._group = group
        self._checkpoints = checkpoints
        self._changed = changed
        self._restored = restored
        self.pending = Pending(job.plan, around.clock, restored=restored is not None)
        self.last = Epoch(around.engine.first_epoch() - 1) if restored is None else restored.checkpoint.epoch
        self.may_cut = True  # whether the next epochs may end with a checkpoint
        self.has_advanced = False  # until then there is nothing that the restored checkpoint does not cover

    @property
    def is_as_restored(self) -> bool:
        """Whether nothing has come since the job's own checkpoint that it was restored from."""
        return not self.has_advanced and self._restored is not None and self._restored.claim

    def run_next(self, execute: Callable[[Epoch], None]) -> None:
        epoch = Epoch(self.last + 1)
        started = time.perf_counter()
        execute(epoch)
        commit = self._job.mode is CheckpointingMode.AT_LEAST_ONCE
        reports = self._group.call(lambda slot: slot.end_epoch(epoch, commit=commit))
        self.last, self.has_advanced = epoch, True
        self._take_in(reports)
        self._publish(reports)
        self._report(epoch, reports, time.perf_counter() - started)
        if self.may_cut:
            self._checkpoints.epoch_ended(epoch)

    def _take_in(self, reports: Sequence[EpochReport]) -> None:
        """What the slots say of time: how far event time has come, and what waits for the clock."""
        known = self._checkpoints
        known.event_time = _furthest(known.event_time, *(report.event_time for report in reports))
        known.watermarks = _furthest(known.watermarks, *(report.watermarks for report in reports))
        with self._changed:
            self.pending.epoch_ended(reports)
            self._changed.notify_all()

    def _publish(self, reports: Sequence[EpochReport]) -> None:
        lines = [line for report in reports for line in report.printed]
        if lines:
            self._around.listener.printed(lines)
        if any(committables for report in reports for committables in report.committables.values()):
            self._around.outputs.check_term()
        for report in reports:
            for uid, committables in report.committables.items():
                self._around.outputs.commit(uid, committables)

    def _report(self, epoch: Epoch, reports: Sequence[EpochReport], seconds: float) -> None:
        heads = {edge.target for edge in self._job.plan.edges if edge.level == 1}
        made = {op.id for op in self._job.plan.operators if isinstance(op.kind, SourceFunctionKind)}
        counts = [(op, each) for report in reports for op, each in report.operators.items()]
        records = sum(each.records_in for op, each in counts if op in heads)
        records += sum(each.records_out for op, each in counts if op in made)
        keys = sum(report.keys for report in reports)
        told = self._around.engine.source_counts()
        self._around.listener.epoch_ended(EpochStats(epoch, records, seconds, keys, reports, told))


def _furthest(*told: Mapping[int, int]) -> dict[int, int]:
    """Of each the largest that anyone tells."""
    furthest: dict[int, int] = {}
    for each in told:
        for of, timestamp in each.items():
            furthest[of] = max(timestamp, furthest.get(of, timestamp))
    return furthest
