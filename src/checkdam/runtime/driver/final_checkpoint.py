"""The final checkpoint: covers everything up to now, before an attempt may finish, be rescaled or be suspended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from checkdam.checkpoint.settings import JobEnd, keeps_checkpoints
from checkdam.errors import JobFailedError
from checkdam.ids import CheckpointId
from checkdam.runtime.answers import new_answer
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.checkpointing import SLOTS, Checkpointing, Surroundings
from checkdam.runtime.driver.epoch_runner import EpochRunner
from checkdam.runtime.driver.event_loop import EventLoop
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.job import Job

Then = Callable[[BaseException | None], None]
"""Called with the failure, or None on success."""


class FinalCheckpoint:
    """Covers the epochs that no checkpoint covers yet, and ends a job whose input is exhausted."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        state: AttemptState,
        epochs: EpochRunner,
        checkpoints: Checkpointing,
        loop: EventLoop,
        hangs: HangWatch,
        *,
        is_covered_by_restored: bool,
    ) -> None:
        """Begin with an attempt. Until its first epoch, the restored checkpoint may cover everything."""
        self._job = job
        self._has_store = around.store is not None
        self._coordinator = around.coordinator
        self._state = state
        self._epochs = epochs
        self._checkpoints = checkpoints
        self._loop = loop
        self._hangs = hangs
        self._is_covered_by_restored = is_covered_by_restored
        self._has_drained = False

    @property
    def is_covered(self) -> bool:
        """Whether a checkpoint of the job covers everything up to now."""
        is_as_restored = self._is_covered_by_restored and not self._epochs.has_advanced
        return self._coordinator.completed_epoch == self._epochs.last_epoch or is_as_restored

    def cover(self, then: Then, *, is_held: bool = True) -> None:
        """Take a checkpoint of everything up to now, unless there is one already.

        The checkpoint is full if files that an incremental one would refer to are gone. If the slots are not held,
        other requests may be served in between, but no epoch may run any more.
        """

        def looked(is_gone: bool) -> None:  # noqa: FBT001  the result of a check
            if self._state.is_over:
                return
            if self.is_covered and not is_gone:
                then(None)
            else:
                self._take(partial(taken, is_gone), full=is_gone, is_held=is_held)

        def taken(is_gone: bool, failure: BaseException | None) -> None:  # noqa: FBT001
            if failure is not None and self._coordinator.must_be_full:  # the files disappeared after the check
                self._take(then, full=True, is_held=is_held)
            elif failure is not None and (is_gone or not self.is_covered):
                then(failure)
            else:  # it is complete, or another one of the same epoch completed first
                then(None)

        self._state.when(lambda: self._coordinator.can_trigger, lambda: self._checkpoints.look_for_newest(looked))

    def _take(self, then: Then, *, full: bool, is_held: bool) -> None:
        answer: Future[CheckpointId] = new_answer()
        answer.add_done_callback(
            lambda done: self._loop.post(self._state.unless_over(lambda: then(done.exception()))) and None
        )

        def can_begin() -> bool:
            return self._coordinator.can_trigger and (is_held or not self._state.is_held)

        def begin() -> None:
            if not is_held:
                self._state.hold("a barrier")
            release = (lambda: None) if is_held else self._state.release
            self._checkpoints.trigger(self._epochs.last_epoch, release, full=full, answer=answer)

        self._state.when(can_begin, begin)

    def end_input(self, finish: Callable[[], None]) -> None:
        """End event time after the last record, then publish all output and call `finish`."""
        if self._job.plan.has_event_time and self._state.stopped_with is None and not self._has_drained:
            self._has_drained = True
            self._state.hold("the end of event time")
            self._epochs.drain(self._state.release)
            return
        self._state.is_ending = True
        coordinator = self._coordinator
        if self._has_store:  # a savepoint in progress may complete as well
            self._state.when(
                lambda: coordinator.savepoint_in_progress is None and not coordinator.in_progress,
                partial(self._cover_and_finish, finish),
            )
        else:
            self._state.when(
                lambda: coordinator.savepoint_in_progress is None and not self._state.is_held,
                partial(self._publish_without_checkpoint, finish),
            )

    def _publish_without_checkpoint(self, finish: Callable[[], None]) -> None:
        self._state.hold("publishing the last output")
        epoch, once = self._epochs.last_epoch, self._coordinator.take_id()

        def publish() -> None:
            with self._hangs.expecting_progress("publishing the last output"):
                self._checkpoints.publish_without_checkpoint(epoch, once)

        self._state.do(SLOTS, publish, finish)

    def _cover_and_finish(self, finish: Callable[[], None]) -> None:
        if self.is_covered and not keeps_checkpoints(self._job.checkpoints.retention, JobEnd.FINISHED):
            finish()  # everything is published, and the checkpoint is deleted with the job
            return

        def covered(failure: BaseException | None) -> None:
            if failure is None:
                finish()
                return
            failed = JobFailedError(f"the final checkpoint failed, so the last output is not published: {failure}")
            failed.__cause__ = failure
            self._state.fail(failed)

        self.cover(covered, is_held=False)
