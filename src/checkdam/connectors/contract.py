"""What a source and a sink must be, as data; and the two-phase commit that makes output exact.

A sink's writer lives in a slot, its committer in the driver. Output goes through three states:

    written    the writer has it; lost with the slot, and then written again by the replay
    prepared   durable but invisible; named by committables that ride in the checkpoint
    committed  visible; done when the checkpoint is complete, and again after a restore, with the same result

Going back behind a checkpoint whose output is committed takes that output back first (`withdraw`), where a sink can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkdam.ids import Attempt, JobId, OperatorUid, SubtaskIndex
from checkdam.types.batch import Batch


@dataclass(frozen=True)
class WriterContext:
    """Who a writer writes for."""

    job_id: JobId
    uid: OperatorUid
    attempt: Attempt
    subtask: SubtaskIndex
    parallelism: int


Prepare = Callable[[], tuple[bytes, ...]]


class SinkWriter(Protocol):
    """Takes the records of one subtask."""

    def write(self, batch: Batch) -> None: ...

    def cut(self) -> Prepare:
        """End what was written so far and start anew.

        The result, called later and from another thread, makes it durable and returns what a committer needs.
        """

    def close(self) -> None:
        """Let go; what was not prepared is dropped."""


@dataclass(frozen=True)
class Withdrawn:
    """Output that a committer has taken back from readers: what it moved to `place`, and what it no longer found."""

    place: str
    moved: tuple[str, ...]
    gone: tuple[str, ...] = ()


class SinkCommitter(Protocol):
    """Publishes prepared output."""

    def check(self) -> None:
        """Raise StorageError now if the sink could not be written."""

    def check_committables(self, committables: Sequence[bytes]) -> None:
        """Raise CheckpointDamagedError if one names output that no writer of the sink has prepared."""

    def missing(self, committables: Sequence[bytes]) -> list[str]:
        """Return where prepared output should be that is neither there nor committed already, or not whole."""

    def commit(self, committables: Sequence[bytes]) -> list[str]:
        """Make the output visible. Return where output should be that is neither prepared nor visible.

        Committing again changes nothing. It then returns what a reader has taken away since.
        """

    @property
    def can_withdraw(self) -> bool:
        """Whether committed output can be hidden from readers again."""

    def withdraw(self, committables: Sequence[bytes], promised: Collection[bytes]) -> Withdrawn:
        """Hide committed output from readers, and delete none of it. Safe to repeat after a crash half way.

        What is only prepared goes first, unless it is `promised`: a replaced driver can then not commit it any more.
        """

    def bring_back(self, committables: Sequence[bytes]) -> list[str]:
        """Make output visible again that its job has withdrawn. Return what is still not visible."""

    def abandon_all_but(self, committables: Collection[bytes], check: Callable[[], None]) -> None:
        """Remove what earlier attempts of this job prepared and no checkpoint will ever commit.

        Look for it, call `check`, then delete what was found and nothing else: `check` raises if another driver has
        taken the job, whose output may be there from then on.
        """

    def forget(self, job_id: JobId) -> None:
        """Remove what a dead job prepared in the same place; it will never be committed."""

    def close(self, check: Callable[[], None]) -> None:
        """Remove what the sink kept for itself; called when the job has ended. `check` as for `abandon_all_but`."""


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
