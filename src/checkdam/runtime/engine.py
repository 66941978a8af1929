"""The contract of engines, which run epochs: Spark in production, one process in tests. The job master uses no more."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts, SlotSetup
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot

RunEpoch = Callable[[Callable[[Epoch], None]], Future[None]]
"""Runs one epoch: calls `execute(epoch)`, which moves records through all levels, then ends the epoch on all slots.

Returns when `execute` has; the future is done when the epoch has ended. The engine waits for that before it runs
another epoch, and before its own method returns.
"""


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
        """The address it listens on."""

    @property
    def query_access(self) -> QueryAccess | None:
        """The way to ask it for live state without the driver; None if there is none."""

    def configure(self, setup: SlotSetup) -> None: ...

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport: ...

    def end_of_input(self) -> None:
        """End event time with the next epoch: no more records will come."""

    def begin_snapshot(
        self,
        checkpoint_id: CheckpointId,
        epoch: Epoch,
        *,
        savepoint: SavepointTarget | None = None,
        full: bool = False,
    ) -> float:
        """Take a snapshot as of this epoch and begin to write it, for a checkpoint or as part of a savepoint.

        A `full` checkpoint refers to no file of another. The files of the last completed checkpoint must be kept until
        this checkpoint or savepoint has completed or failed.
        """

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot: ...

    def completed(self, checkpoint_id: CheckpointId) -> None: ...

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Remove what was written for a checkpoint or savepoint that will not complete."""

    def released(self, checkpoint_id: CheckpointId) -> None:
        """Release a completed savepoint: the slot no longer tracks it, and its files stay."""

    def query(self, request: bytes) -> bytes:
        """Query live state, one call at a time; runtime/live_state/query_messages.py has the messages.

        Does not wait for the running epoch, unless it is the first query.
        """

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        """Return when the slot has ended in order; raise SlotLostError when it is lost or silent.

        Calls `on_beat` with every heartbeat until then.
        """

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def disconnect(self) -> None: ...


class Engine(Protocol):
    """Moves records. Used by one attempt at a time."""

    def first_epoch(self) -> Epoch:
        """Return the epoch that a job without a checkpoint begins with."""

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[Slot]: ...

    def resume(self, last_epoch: Epoch, position: bytes) -> None:
        """Let the next `run` continue after this epoch, from this source position; empty: from the beginning."""

    def run_static(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run one epoch with the records of static sources that are not read yet; none if there are no such sources.

        It is the first epoch of the attempt.
        """

    def run(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run epoch after epoch, until the input is exhausted or `interrupt` is called."""

    def run_extra(self, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        """Run one epoch without records through every level. Any thread may call this, between epochs only."""

    def interrupt(self) -> None:
        """Let `run` return soon. Any thread may call this."""

    def progress(self) -> Hashable:
        """Return a value that changes when a task makes progress; None if unknown. Never blocks."""

    def position(self) -> bytes:
        """Return the source position after the last epoch; between epochs only."""

    def source_counts(self) -> Mapping[tuple[int, int], OperatorCounts]:
        """Return counts of the last epoch's Python work upstream of all exchanges, by operator and subtask.

        Between epochs only. Partition p of a source belongs to subtask p modulo the parallelism.
        """

    def watch_sources(self, report: Callable[[Mapping[int, int]], object]) -> None:
        """Call `report`, on any thread, with the number of records that each source has not read yet, when it is known.

        A source that does not tell is left out.
        """
