"""The contract of sources and sinks as data; and the two-phase commit that makes output exactly-once.

A sink's writer lives in a slot, its committer in the driver. Output goes through three states:

    written    the writer has it; lost with the slot, and then written again by the replay
    prepared   durable but invisible; named by committables that are stored in the checkpoint
    committed  visible; done when the checkpoint is complete, and again after a restore, with the same result

Restoring an older checkpoint than the one whose output is committed first hides that output (`withdraw`), if the sink
can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkdam.ids import Attempt, JobId, OperatorUid, SubtaskIndex
from checkdam.types.batch import Batch


@dataclass(frozen=True)
class WriterContext:
    """The identity of a writer: its job, attempt and subtask."""

    job_id: JobId
    uid: OperatorUid
    attempt: Attempt
    subtask: SubtaskIndex
    parallelism: int


FinishOutput = Callable[[], tuple[bytes, ...]]
"""The asynchronous part of a writer's snapshot: makes the output durable, and returns its committables."""


class SinkWriter(Protocol):
    """Writes the records of one subtask."""

    def write(self, batch: Batch) -> None: ...

    def snapshot(self) -> FinishOutput:
        """End the current output at the barrier, and begin new output.

        The returned function, called later from another thread, makes it durable and returns what a committer needs.
        """

    def close(self) -> None:
        """Release resources; drops output that was not prepared."""


@dataclass(frozen=True)
class Withdrawn:
    """Output that a committer has hidden from readers: what it moved to `place`, and what it did not find any more."""

    place: str
    moved: tuple[str, ...]
    gone: tuple[str, ...] = ()


class SinkCommitter(Protocol):
    """Publishes prepared output."""

    def check(self) -> None:
        """Raise StorageError if the sink cannot be written."""

    def check_committables(self, committables: Sequence[bytes]) -> None:
        """Raise CheckpointDamagedError if one names output that no writer of the sink has prepared."""

    def missing(self, committables: Sequence[bytes]) -> list[str]:
        """Return the locations of prepared output that is missing or incomplete, and not committed already."""

    def commit(self, committables: Sequence[bytes]) -> list[str]:
        """Make the output visible. Return the locations of output that is neither prepared nor visible.

        Idempotent. A repeated call returns what readers have removed since.
        """

    @property
    def can_withdraw(self) -> bool:
        """Whether committed output can be hidden from readers again."""

    def withdraw(self, committables: Sequence[bytes], promised: Collection[bytes]) -> Withdrawn:
        """Hide committed output from readers without deleting any. Safe to repeat after a crash half way.

        Output that is only prepared goes first, unless it is `promised`: a replaced driver can then not commit it any
        more.
        """

    def bring_back(self, committables: Sequence[bytes]) -> list[str]:
        """Make output visible again that its job has withdrawn. Return what is still not visible."""

    def abandon_all_but(self, committables: Collection[bytes], check: Callable[[], None]) -> None:
        """Remove output that earlier attempts of this job prepared and no checkpoint will ever commit.

        List it, call `check`, then delete only what was listed: `check` raises if another driver has taken over the
        job, whose output may appear there from then on.
        """

    def forget(self, job_id: JobId) -> None:
        """Remove output that a dead job prepared in the same place; it will never be committed."""

    def close(self, promised: Collection[bytes], check: Callable[[], None]) -> bool:
        """Remove the sink's internal files when the job has ended, except prepared output that is `promised`.

        Return whether there is such output. `check` as for `abandon_all_but`.
        """


class SinkSpec(Protocol):
    """A sink as data; pickles to any slot."""

    @property
    def is_transactional(self) -> bool:
        """Whether its output waits for a checkpoint."""

    @property
    def returns_to_spark(self) -> bool:
        """Whether its records leave the slot as a Spark DataFrame instead of through a writer."""

    def open_writer(self, ctx: WriterContext) -> SinkWriter: ...

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> SinkCommitter | None: ...
