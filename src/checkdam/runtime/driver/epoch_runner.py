"""Runs the epochs of an attempt: those that the engine offers, and those without records that are due."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.errors import JobControlError
from checkdam.ids import Epoch
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.checkpointing import SLOTS, Checkpointing, Surroundings
from checkdam.runtime.driver.epoch_input import EpochInput, EpochListener, OfferedEpoch
from checkdam.runtime.driver.epochs import PendingEpoch, epoch_stats, furthest
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.job import Job
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts


class EpochRunner:
    """Lets epochs begin, ends them on the slots and sends the barrier that is due after them."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        state: AttemptState,
        group: SlotGroup,
        checkpoints: Checkpointing,
        make_input: Callable[[EpochListener], EpochInput],
        restored_epoch: Epoch | None,
    ) -> None:
        self._job = job
        self._around = around
        self._state = state
        self._group = group
        self._checkpoints = checkpoints
        self._input = make_input(self)
        first = around.engine.first_epoch()
        self.last_epoch = Epoch(first - 1) if restored_epoch is None else restored_epoch
        self.pending = PendingEpoch(job.plan, around.clock, restored=restored_epoch is not None)
        self.has_advanced = False  # until then the restored checkpoint covers everything
        self.may_trigger = True  # whether the next epochs may end with a barrier
        self.is_static_over = False
        self.is_input_over = False
        self._offered: deque[OfferedEpoch] = deque()
        self._current: OfferedEpoch | None = None
        self._current_began = 0.0

    def begin(self) -> None:
        """Take the epoch of the static sources, then one epoch after another, from the engine."""
        self._input.run_static(self._group.slots, partial(self._state.go_on, then=self._static_over))

    def _static_over(self) -> None:
        self.is_static_over = True
        self._input.run(self._group.slots, partial(self._state.go_on, then=self._input_over))

    def _input_over(self) -> None:
        self.is_input_over = True

    def begin_next(self) -> bool:
        """Begin the next offered epoch. Return False if there is none."""
        if not self._offered:
            return False
        epoch = self._offered.popleft()
        if self._state.stopped_with is not None:
            epoch.skip()
        else:
            self._state.hold("an epoch")
            self._begin(epoch)
        return True

    def seconds_until_extra(self) -> float | None:
        """Return the seconds until an epoch without records is due. None before epoch 0, the static sources'."""
        state = self._state
        if self.last_epoch < 0 or not self.is_static_over or state.stopped_with is not None or state.is_ending:
            return None
        if self.is_input_over and not self.pending.has_unfinished_sources:
            return None
        return self.pending.seconds_until_due()

    @property
    def are_exhausted(self) -> bool:
        """Whether no more records come, neither from the engine nor from source functions."""
        goes_on = self._state.stopped_with is None and self.pending.has_unfinished_sources
        return self.is_input_over and not goes_on

    def run_extra(self) -> None:
        """Run one epoch without records."""
        self._state.hold("an epoch without records")
        self._run_extra(self._state.release)

    def drain(self, then: Callable[[], None]) -> None:
        """End event time, which fires every timer; the caller holds the slots."""
        end_of_input = partial(self._group.call, lambda slot: slot.end_of_input())
        self._state.do(SLOTS, end_of_input, partial(self._run_extra, then))

    def _run_extra(self, then: Callable[[], None]) -> None:
        self._input.run_extra(self._group.slots, partial(self._state.go_on, then=then))

    def refuse(self, failure: BaseException) -> None:
        """Raise the failure that ends the attempt in the threads that wait with an epoch."""
        for epoch in [*self._offered, *([self._current] if self._current is not None else [])]:
            epoch.refuse(failure)
        self._offered.clear()

    # -- one epoch, from offer to end ---------------------------------------------------------------------------

    def epoch_offered(self, epoch: OfferedEpoch) -> None:
        """Accept an epoch whose records are ready. One without records was requested, and begins at once."""
        if self._state.failure is not None:
            epoch.refuse(self._state.failure)
        elif self._state.has_ended:
            epoch.skip()
        elif epoch.is_extra:
            self._begin(epoch)
        else:
            self._offered.append(epoch)

    def _begin(self, epoch: OfferedEpoch) -> None:
        self._current = epoch
        self._current_began = time.perf_counter()
        epoch.begin(Epoch(self.last_epoch + 1))

    def epoch_executed(self, epoch: OfferedEpoch, failure: BaseException | None) -> None:
        """End an epoch on the slots once they have all its records, or fail over."""
        if failure is not None:
            self._state.fail(failure)
        if self._state.is_over:
            epoch.refuse(self._state.failure or JobControlError("the job has ended"))
            return
        number = Epoch(self.last_epoch + 1)
        commit = self._job.mode is CheckpointingMode.AT_LEAST_ONCE
        reports: list[EpochReport] = []
        counts: dict[tuple[int, int], OperatorCounts] = {}

        def end_epoch() -> None:
            reports.extend(self._group.call(lambda slot: slot.end_epoch(number, commit=commit)))
            counts.update(self._around.engine.source_counts())

        self._state.do(SLOTS, end_epoch, lambda: self._epoch_reported(epoch, number, reports, counts))

    def _epoch_reported(
        self,
        epoch: OfferedEpoch,
        number: Epoch,
        reports: Sequence[EpochReport],
        counts: Mapping[tuple[int, int], OperatorCounts],
    ) -> None:
        self.last_epoch, self.has_advanced = number, True
        known = self._checkpoints
        known.event_time = furthest(known.event_time, *(report.event_time for report in reports))
        known.watermarks = furthest(known.watermarks, *(report.watermarks for report in reports))
        self.pending.epoch_ended(reports)
        lines = [line for report in reports for line in report.printed]
        if lines:
            self._state.reports.printed(lines)

        def report() -> None:
            stats = epoch_stats(self._job.plan, number, reports, counts, time.perf_counter() - self._current_began)
            self._state.report(partial(self._around.listener.epoch_ended, stats), trigger)

        def trigger() -> None:
            if self.may_trigger:
                self._checkpoints.epoch_ended(number, lambda: self._epoch_over(epoch))
            else:
                self._epoch_over(epoch)

        if any(committables for report in reports for committables in report.committables.values()):
            self._state.do(SLOTS, partial(self._commit_at_once, reports), report)
        else:
            report()

    def _commit_at_once(self, reports: Sequence[EpochReport]) -> None:
        """Publish the output of an epoch that no checkpoint has to cover."""
        self._around.outputs.check_term()
        for report in reports:
            for uid, committables in report.committables.items():
                self._around.outputs.commit(uid, committables)

    def _epoch_over(self, epoch: OfferedEpoch) -> None:
        self._current = None
        if self._state.failure is not None:
            epoch.refuse(self._state.failure)
            return
        epoch.end()
        if not epoch.is_extra:  # an extra epoch leaves the slots to its requester
            self._state.release()
