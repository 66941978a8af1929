"""What runs epochs: Spark in earnest, one process in tests. The job master knows no more than this of either."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts, SlotSetup
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot

RunEpoch = Callable[[Callable[[Epoch], None]], None]
"""Called by an engine for each epoch, with what moves the epoch's records through every level; tells it the number."""


class Slot(Protocol):
    """A slot as the driver sees it. Every call raises SlotLostError when the slot is gone or does not answer."""

    @property
    def subtask(self) -> SubtaskIndex: ...

    @property
    def pid(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def location(self) -> str:
        """Where it listens."""

    def configure(self, setup: SlotSetup) -> None: ...

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport: ...

    def end_of_input(self) -> None:
        """No more records will come: with the next epoch event time ends."""

    def seal(
        self,
        checkpoint_id: CheckpointId,
        epoch: Epoch,
        *,
        savepoint: SavepointTarget | None = None,
        full: bool = False,
    ) -> float:
        """Fix the state as of this epoch, and begin to write it: for a checkpoint, or as part of a savepoint.

        A `full` checkpoint refers to no file of another. The files of the last completed checkpoint must be kept until
        this one is settled, also for a savepoint.
        """

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot: ...

    def completed(self, checkpoint_id: CheckpointId) -> None: ...

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """It will not complete: what was written for it is removed, also that of a savepoint."""

    def released(self, checkpoint_id: CheckpointId) -> None:
        """The savepoint is complete: the slot has no more to do with it, and its files stay."""

    def query(self, request: bytes) -> bytes:
        """Ask for live state, one call at a time: see runtime/live_state/query_messages.py for the messages.

        Does not wait for the epoch under way, unless it is the first question.
        """

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        """Return when the slot has ended in order; raise SlotLostError when it is lost or silent.

        Until then `on_beat` is called with every heartbeat.
        """

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def disconnect(self) -> None: ...


class Engine(Protocol):
    """Moves records. One attempt at a time uses it."""

    def first_epoch(self) -> Epoch:
        """The epoch a job without a checkpoint begins with."""

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[Slot]: ...

    def resume(self, last_epoch: Epoch, position: bytes) -> None:
        """Let the next `run` go on after this epoch, from where the sources stood; empty: from the beginning."""

    def run_static(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run one epoch with the records of static sources that have not come yet; none if there are no such sources.

        No other epoch of the attempt comes before it.
        """

    def run(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run epoch after epoch, until the input is used up or `interrupt` is called."""

    def run_extra(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run one epoch without records through every level, from whatever thread; between epochs only."""

    def interrupt(self) -> None:
        """Let `run` return soon, from whatever thread."""

    def progress(self) -> Hashable:
        """Return something that changes when a task gets something done; None if that is not known. Never waits."""

    def position(self) -> bytes:
        """Where the sources stand after the last epoch; between epochs only."""

    def source_counts(self) -> Mapping[int, OperatorCounts]:
        """By operator in front of the first exchange, what Python did there in the last epoch; between epochs only."""
