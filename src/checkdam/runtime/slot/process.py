"""The running form of one operator in one subtask, driven by a level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from checkdam.types.batch import Batch

if TYPE_CHECKING:
    from checkdam.runtime.slot.timers import Timers


class Process:
    """Takes records and returns output. A level calls its operators in order, so each sees the others' output.

    In an epoch: any number of calls with records; then, once no more can come from upstream, `pull`, `flush` and
    `advance`, each once and in this order. After every call the level takes the side outputs.
    """

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        """Handle records and, on a keyed stream, their keys; `side` 1 is the second input of a connected operator."""
        raise NotImplementedError

    def pull(self) -> Batch | None:
        """Return a source function's records for this epoch."""
        return None

    def flush(self) -> Batch | None:
        """Return output that was gathered and not yet emitted."""
        return None

    def advance(self, watermark: int) -> Batch | None:
        """Advance event time to the watermark, and return the output of due timers of both domains."""
        return None

    def take_side_outputs(self) -> Mapping[str, Batch]:
        """Return the side outputs since the last call, by tag."""
        return {}

    late_records_dropped: int | None = None
    """How many late records were dropped since this was last set to 0; None for an operator that drops none."""

    @property
    def next_due(self) -> int | None:
        """The time of its next processing-time timer, in milliseconds since 1970."""
        return None

    @property
    def timers(self) -> Timers | None:
        """Its timers, for readers between epochs; None if it has none."""
        return None

    def end_of_input(self) -> None:
        """Produce no more records of its own: the next epoch is the last."""

    @property
    def is_finished(self) -> bool:
        """Whether `pull` will never return records again."""
        return True

    @property
    def has_records(self) -> bool:
        """Whether `pull` should be called soon though no records come from upstream."""
        return False

    def where_it_waits(self) -> str:
        """Return the place in user code that a step waits for if it is not on the stack of its thread; else "".

        Any thread may call this.
        """
        return ""

    def interrupt(self) -> None:
        """Let its own threads end, without waiting for them. Any thread may call this."""

    def close(self) -> None:
        """Release the process's own resources after the last call; the user's function is closed separately."""
