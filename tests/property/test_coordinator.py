"""The coordinator against every interleaving that Hypothesis can think of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.examples import examples

from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.decisions import (
    AbortCheckpoint,
    Action,
    CommitOutput,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    RemoveMetadata,
    TriggerCheckpoint,
    WriteMetadata,
    files_of,
)
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.ids import CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorSnapshot, SlotSnapshot, StateFile
from checkdam.testing.manual_clock import ManualClock


class Slot:
    """A slot that takes incremental snapshots on top of its last one, until it hears that one was aborted."""

    def __init__(self, subtask: int) -> None:
        self.subtask = SubtaskIndex(subtask)
        self.chain: dict[CheckpointId, StateFile] = {}
        self.written = 0

    def take_snapshot(self, checkpoint_id: CheckpointId, *, compact: bool) -> SlotSnapshot:
        if compact:
            self.chain.clear()
        self.written += 1
        new = StateFile(f"shared/{self.subtask}-{self.written}", 1)
        self.chain[checkpoint_id] = new
        handle = KeyedStateHandle(KeyGroupRange(0, 127), tuple(self.chain.values()))
        operator = OperatorSnapshot(OperatorUid("count"), "count", handle)
        return SlotSnapshot(checkpoint_id, self.subtask, (operator,), (new,))

    def take_savepoint(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        """Files of its own, by bare name; the chain of the checkpoints does not hear of it."""
        new = StateFile(f"{checkpoint_id}-{self.subtask}", 1)
        operator = OperatorSnapshot(OperatorUid("count"), "count", KeyedStateHandle(KeyGroupRange(0, 127), (new,)))
        return SlotSnapshot(checkpoint_id, self.subtask, (operator,), (new,))

    def hear_of_abort(self, checkpoint_id: CheckpointId) -> None:
        if checkpoint_id in self.chain:  # what was built on it is lost with it: write everything anew
            self.chain.clear()


class CoordinatorMachine(RuleBasedStateMachine):
    """Performs the actions on an imaginary disk, and delivers reports late, twice, or in any order."""

    @initialize(
        subtasks=st.integers(1, 3),
        interval=st.sampled_from([None, timedelta(0), timedelta(seconds=5)]),
        min_pause=st.sampled_from([timedelta(0), timedelta(seconds=3)]),
        max_concurrent=st.integers(1, 3),
        tolerable_failures=st.integers(0, 2),
        num_retained=st.integers(1, 3),
    )
    def begin(
        self,
        subtasks: int,
        interval: timedelta | None,
        min_pause: timedelta,
        max_concurrent: int,
        tolerable_failures: int,
        num_retained: int,
    ) -> None:
        self.config = CheckpointConfig(
            interval=interval,
            min_pause=min_pause,
            timeout=timedelta(seconds=20),
            max_concurrent=max_concurrent,
            tolerable_failures=tolerable_failures,
            num_retained=num_retained,
        )
        self.clock = ManualClock()
        self.slots = [Slot(subtask) for subtask in range(subtasks)]
        self.coordinator = CheckpointCoordinator(self.config, subtasks, self.clock)
        self.epoch = Epoch(0)
        self.undelivered: list[SlotSnapshot] = []  # written by a slot, not reported yet
        self.delivered: list[SlotSnapshot] = []
        self.notices: list[tuple[Slot, CheckpointId]] = []  # aborts the slots have not heard of
        self.reported: set[StateFile] = set()
        self.on_disk: set[StateFile] = set()
        self.writing: WriteMetadata | None = None  # the next step is reported by one of the rules below
        self.step: CommitOutput | NotifyCompleted | RemoveMetadata | None = None  # behind the metadata
        self.committed: list[CheckpointId] = []
        self.on_storage: set[CheckpointId] = set()  # those with metadata
        self.complete: dict[CheckpointId, frozenset[StateFile]] = {}
        self.bases: dict[CheckpointId, frozenset[StateFile]] = {}  # what was complete when each was triggered
        self.once_complete: set[StateFile] = set()  # the job's own, even if their first report never came
        self.triggered: list[CheckpointId] = []
        self.notified: list[CheckpointId] = []
        self.ended: set[CheckpointId] = set()
        self.failures = 0
        self.savepoint: CheckpointId | None = None  # in progress
        self.savepoints: set[CheckpointId] = set()
        self.writing_savepoint: WriteMetadata | None = None

    def perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case TriggerCheckpoint(checkpoint_id, is_savepoint=True):
                    assert self.savepoint is None, "one savepoint at a time"
                    assert checkpoint_id not in self.savepoints | set(self.triggered)
                    self.savepoint = checkpoint_id
                    self.savepoints.add(checkpoint_id)
                    self.bases[checkpoint_id] = frozenset().union(*self.complete.values())
                    self.undelivered += [slot.take_savepoint(checkpoint_id) for slot in self.slots]
                case TriggerCheckpoint(checkpoint_id):
                    assert not self.triggered or checkpoint_id > self.triggered[-1]
                    self.triggered.append(checkpoint_id)
                    self.bases[checkpoint_id] = frozenset().union(*self.complete.values())
                    for slot in self.slots:
                        taken = slot.take_snapshot(checkpoint_id, compact=checkpoint_id % 4 == 0)
                        self.on_disk.update(taken.new_files)
                        self.undelivered.append(taken)
                case WriteMetadata(acknowledged) if acknowledged.is_savepoint:
                    assert acknowledged.checkpoint_id == self.savepoint
                    assert set(acknowledged.snapshots) == {slot.subtask for slot in self.slots}
                    self.writing_savepoint = action
                case AbortCheckpoint(checkpoint_id, is_savepoint=True):
                    assert checkpoint_id == self.savepoint
                    self.savepoint = None
                case NotifyCompleted(checkpoint_id, is_savepoint=True):
                    assert checkpoint_id in self.savepoints
                    self.perform(self.coordinator.slots_notified(checkpoint_id))
                case WriteMetadata(acknowledged):
                    assert self.writing is None
                    assert self.step is None, "one checkpoint at a time goes through its last steps"
                    assert set(acknowledged.snapshots) == {slot.subtask for slot in self.slots}
                    assert acknowledged.checkpoint_id not in self.ended
                    self.writing = action
                case CommitOutput(acknowledged):
                    assert acknowledged.checkpoint_id in self.on_storage, "output is committed behind its metadata"
                    assert not self.committed or acknowledged.checkpoint_id > self.committed[-1]
                    self.step = action
                case NotifyCompleted(checkpoint_id):
                    assert self.committed[-1:] == [checkpoint_id], "slots hear of it when its output is committed"
                    assert not self.notified or checkpoint_id > self.notified[-1]
                    self.step = action
                case RemoveMetadata(checkpoint_id):
                    assert checkpoint_id not in self.committed, "committed output keeps its checkpoint"
                    self.step = action
                case AbortCheckpoint(checkpoint_id, reason, new_files):
                    self.end(checkpoint_id)
                    self.delete(new_files)
                    self.notices += [(slot, checkpoint_id) for slot in self.slots]
                    self.failures += not reason.startswith(("subsumed", "failover"))
                    if self.failures > self.config.tolerable_failures:
                        assert any(isinstance(other, FailJob) for other in actions)
                case DeleteFiles(files):
                    self.delete(files)
                case DiscardCheckpoints(checkpoint_ids, files):
                    for checkpoint_id in checkpoint_ids:
                        assert checkpoint_id < max(self.complete)
                        assert max(self.complete) in self.notified, "slots build on the newer one by now"
                        self.on_storage.discard(checkpoint_id)
                        del self.complete[checkpoint_id]
                    self.delete(files)
                case FailJob(reason):
                    assert reason == "output lost" or self.failures > self.config.tolerable_failures
                    self.failures = 0

    def end(self, checkpoint_id: CheckpointId) -> None:
        assert checkpoint_id in self.triggered
        assert checkpoint_id not in self.ended, "a checkpoint ends once"
        self.ended.add(checkpoint_id)

    def delete(self, files: Sequence[StateFile]) -> None:
        needed = {file for kept in self.complete.values() for file in kept}
        under_way = self.coordinator.being_written
        if under_way is not None:
            needed |= under_way.files()
        if self.coordinator.savepoint_in_progress is not None:
            needed |= self.bases[self.coordinator.savepoint_in_progress]  # its slots may still copy them
        assert needed.isdisjoint(files)
        assert all(file.path.startswith("shared/") for file in files), "a savepoint's files are not the job's"
        assert (self.reported | self.once_complete).issuperset(files)
        self.on_disk.difference_update(files)

    @rule(seconds=st.floats(0, 8))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def an_epoch_ends(self) -> None:
        self.epoch = Epoch(self.epoch + 1)
        self.perform(self.coordinator.epoch_ended(self.epoch))

    @rule()
    def idle_time(self) -> None:
        self.perform(self.coordinator.tick(self.epoch))

    @rule()
    def a_request(self) -> None:
        self.perform(self.coordinator.trigger(self.epoch))

    @rule()
    def a_request_for_a_savepoint(self) -> None:
        self.perform(self.coordinator.trigger_savepoint(self.epoch))

    @precondition(lambda self: self.writing_savepoint)
    @rule(succeeds=st.booleans())
    def the_savepoint_is_written(self, succeeds: bool) -> None:
        assert self.writing_savepoint is not None
        acknowledged, self.writing_savepoint = self.writing_savepoint.acknowledged, None
        if succeeds:
            self.savepoint = None
            self.perform(self.coordinator.metadata_written(acknowledged.checkpoint_id))
        else:
            self.perform(self.coordinator.metadata_failed(acknowledged.checkpoint_id, "disk full"))

    @precondition(lambda self: self.undelivered)
    @rule(data=st.data())
    def a_slot_reports(self, data: st.DataObject) -> None:
        taken = self.undelivered.pop(data.draw(st.integers(0, len(self.undelivered) - 1)))
        self.delivered.append(taken)
        if taken.checkpoint_id not in self.savepoints:
            self.reported.update(taken.new_files)
        self.perform(self.coordinator.acknowledge(taken))

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def a_report_echoes(self, data: st.DataObject) -> None:
        self.perform(self.coordinator.acknowledge(data.draw(st.sampled_from(self.delivered))))

    @precondition(lambda self: self.undelivered)
    @rule(data=st.data())
    def a_slot_declines(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.undelivered))
        self.perform(self.coordinator.decline(taken.checkpoint_id, taken.subtask, "disk full"))

    @precondition(lambda self: self.notices)
    @rule()
    def a_slot_hears_of_an_abort(self) -> None:
        slot, checkpoint_id = self.notices.pop(0)
        slot.hear_of_abort(checkpoint_id)

    @rule()
    def timeouts_are_looked_at(self) -> None:
        self.perform(self.coordinator.expire())

    @rule()
    def an_epoch_goes_on(self) -> None:
        self.coordinator.note_due()

    @rule()
    def somebody_holds_up_a_barrier(self) -> None:
        self.coordinator.begin_wait_anew()

    @rule()
    def the_wait_of_a_barrier_is_looked_at(self) -> None:
        waited = self.coordinator.expire_waiting(Epoch(self.epoch + 1))
        aborted = [action.checkpoint_id for action in waited if isinstance(action, AbortCheckpoint)]
        for checkpoint_id in aborted:
            assert not self.triggered or checkpoint_id > self.triggered[-1]
        self.triggered += aborted
        self.perform(waited)

    @precondition(lambda self: self.writing)
    @rule()
    def the_metadata_is_written(self) -> None:
        assert self.writing is not None
        acknowledged, self.writing = self.writing.acknowledged, None
        self.on_storage.add(acknowledged.checkpoint_id)
        is_late = self.clock.monotonic() >= acknowledged.expires
        self.perform(self.coordinator.metadata_written(acknowledged.checkpoint_id))
        assert isinstance(self.step, RemoveMetadata if is_late else CommitOutput)

    @precondition(lambda self: self.writing)
    @rule()
    def the_metadata_write_fails(self) -> None:
        assert self.writing is not None
        acknowledged, self.writing = self.writing.acknowledged, None
        self.perform(self.coordinator.metadata_failed(acknowledged.checkpoint_id, "disk full"))

    @precondition(lambda self: self.step)
    @rule(succeeds=st.booleans())
    def a_last_step_is_done(self, succeeds: bool) -> None:
        step, self.step = self.step, None
        match step:
            case CommitOutput(acknowledged) if succeeds:
                self.committed.append(acknowledged.checkpoint_id)
                self.perform(self.coordinator.output_committed(acknowledged.checkpoint_id))
            case CommitOutput(acknowledged):
                self.perform(self.coordinator.output_lost(acknowledged.checkpoint_id, "output lost"))
            case NotifyCompleted(checkpoint_id):
                completed = self.coordinator.being_written
                assert completed is not None
                self.notified.append(checkpoint_id)
                self.complete[checkpoint_id] = completed.files()
                self.once_complete |= completed.files()
                self.end(checkpoint_id)
                self.failures = 0
                self.perform(self.coordinator.slots_notified(checkpoint_id))
            case RemoveMetadata(checkpoint_id):
                self.on_storage.discard(checkpoint_id)
                self.perform(self.coordinator.metadata_removed(checkpoint_id))

    @rule()
    def the_job_fails_over(self) -> None:
        self.perform(self.coordinator.abort_pending("failover"))
        if self.writing:
            self.the_metadata_is_written()
        while self.step:
            self.a_last_step_is_done(succeeds=True)
        if self.writing_savepoint:
            self.the_savepoint_is_written(succeeds=True)
        assert self.savepoint is None
        # What a slot wrote to a savepoint is reported to its own attempt or to nobody.
        self.undelivered = [each for each in self.undelivered if each.checkpoint_id not in self.savepoints]
        self.delivered = [each for each in self.delivered if each.checkpoint_id not in self.savepoints]
        for slot in self.slots:
            slot.chain.clear()
        self.notices.clear()
        self.failures = 0
        self.coordinator = CheckpointCoordinator(
            self.config,
            len(self.slots),
            self.clock,
            first_id=self.coordinator.next_id,
            retained=self.coordinator.retained,
        )

    @invariant()
    def no_more_than_allowed_are_in_progress(self) -> None:
        in_progress = set(self.triggered) - self.ended
        assert len(in_progress) <= self.config.max_concurrent
        assert sorted(in_progress) == self.coordinator.in_progress
        assert self.coordinator.savepoint_in_progress == self.savepoint

    @invariant()
    def complete_checkpoints_have_all_their_files(self) -> None:
        assert len(self.complete) <= self.config.num_retained
        assert [kept.checkpoint_id for kept in self.coordinator.retained] == sorted(self.complete)
        for files in self.complete.values():
            assert files <= self.on_disk

    @invariant()
    def every_reported_file_is_needed_or_gone(self) -> None:
        needed = {file for files in self.complete.values() for file in files}
        in_progress = set(self.coordinator.in_progress)
        savepoint = {self.savepoint} if self.savepoint is not None else set()
        for checkpoint_id in in_progress | savepoint:
            needed |= self.bases[checkpoint_id]  # its snapshots may build on them
        for taken in self.delivered:
            if taken.checkpoint_id in in_progress:
                needed |= files_of(taken)
        assert self.on_disk & self.reported <= needed

    @invariant()
    def the_next_event_is_never_in_the_past(self) -> None:
        for wait in (self.coordinator.seconds_until_due(), self.coordinator.seconds_until_timeout()):
            assert wait is None or wait >= 0

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.the_job_fails_over()
        for taken in self.undelivered:  # the last late writers
            self.reported.update(taken.new_files)
            self.perform(self.coordinator.acknowledge(taken))
        assert self.on_disk == {file for files in self.complete.values() for file in files}


CoordinatorMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestCoordinator = CoordinatorMachine.TestCase
