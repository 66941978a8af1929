"""What runs epochs: Spark in earnest, one process in tests. The job master knows no more than this of either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.state.snapshots import SlotSnapshot

RunEpoch = Callable[[Epoch, Callable[[], None]], None]
"""Called by an engine for each epoch, with what moves the epoch's records through every level."""


class Slot(Protocol):
    """A slot as the driver sees it. Every call raises SlotLostError when the slot is gone."""

    @property
    def subtask(self) -> SubtaskIndex: ...

    @property
    def pid(self) -> int: ...

    def configure(self, setup: SlotSetup) -> None: ...

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport: ...

    def seal(self, checkpoint_id: CheckpointId, epoch: Epoch) -> float: ...

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot: ...

    def completed(self, checkpoint_id: CheckpointId) -> None: ...

    def aborted(self, checkpoint_id: CheckpointId) -> None: ...

    def hold(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def disconnect(self) -> None: ...


class Engine(Protocol):
    """Moves records. One attempt at a time uses it."""

    def first_epoch(self) -> Epoch:
        """The epoch a job without a checkpoint begins with."""

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[Slot]: ...

    def run(self, slots: Sequence[Slot], last_epoch: Epoch, position: bytes, run_epoch: RunEpoch) -> None:
        """Run epoch after epoch from the position given, until the input is used up or `interrupt` is called."""

    def interrupt(self) -> None:
        """Let `run` return soon, from whatever thread."""

    def position(self, epoch: Epoch) -> bytes:
        """Where the sources stand after an epoch; between epochs only."""
