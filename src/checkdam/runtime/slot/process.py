"""The working form of one operator in one subtask: what a level drives."""

from __future__ import annotations

from collections.abc import Mapping

from checkdam.types.batch import Batch


class Process:
    """Takes records and gives what goes on. A level calls its operators in order, so each sees the others' output.

    In an epoch: any number of calls with records; then, once no more can come from in front, `pull`, `flush` and
    `advance`, each once and in this order. After every call the level takes the side outputs.
    """

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        """Handle records and, on a keyed stream, their keys; `side` 1 is the second input of a connected operator."""
        raise NotImplementedError

    def pull(self) -> Batch | None:
        """What a source function has for this epoch."""
        return None

    def flush(self) -> Batch | None:
        """What was gathered and not yet given."""
        return None

    def advance(self, watermark: int) -> Batch | None:
        """Event time has come this far, and some processing time has passed: what due timers give."""
        return None

    def take_side_outputs(self) -> Mapping[str, Batch]:
        """By tag, what was emitted aside since the last call."""
        return {}

    @property
    def next_due(self) -> int | None:
        """When its next processing-time timer comes due, in milliseconds since 1970."""
        return None

    def end_of_input(self) -> None:
        """The next epoch is the last: whatever makes records of its own makes no more."""

    @property
    def is_finished(self) -> bool:
        """Whether `pull` will never give records again."""
        return True

    @property
    def has_records(self) -> bool:
        """Whether `pull` should be called soon though no records come from in front."""
        return False

    def interrupt(self) -> None:
        """Let threads of its own end, without waiting for them; from any thread."""

    def close(self) -> None:
        """No more calls come. Only for what the process itself holds; the user's function is closed on its own."""
