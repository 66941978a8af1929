"""The history of published output: which of several files counts, and what a damaged one says."""

from __future__ import annotations

import pytest

from checkdam.checkpoint.ownership import take
from checkdam.checkpoint.terms import Term
from checkdam.errors import FencedError
from checkdam.ids import CheckpointId, JobId, OperatorUid
from checkdam.runtime.driver.publish_history import PUBLISHED, PublishedOutput, tells_of_checkpoints
from checkdam.storage.subtree import subtree
from checkdam.testing import MemoryStorage

JOB, UID = JobId("a" * 32), OperatorUid("out")


class Driver:
    """A driver of the job, which has taken it and knows what was published before."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.term: Term = take(storage, JOB, take_over=True)
        self.published = PublishedOutput(subtree(storage, JOB))
        self.published.recall(self.term)

    def publish(self, number: int) -> None:
        before = CheckpointId(number - 1) if number > 1 else None
        self.published.add(CheckpointId(number), {UID: [b"file %d" % number]}, before)

    def published_after(self, number: int) -> dict[OperatorUid, list[bytes]]:
        return self.published.after(CheckpointId(number))


@pytest.mark.parametrize("content", [b"{half", b'{"version": 99}'])
def test_a_history_tells_of_checkpoints_if_there_was_one_or_nobody_can_read_it(content: bytes) -> None:
    storage = MemoryStorage()
    assert not tells_of_checkpoints(storage, JOB)

    driver = Driver(storage)
    driver.published.go_back_to(CheckpointId(0))
    assert not tells_of_checkpoints(storage, JOB)

    driver.publish(1)
    assert tells_of_checkpoints(storage, JOB)

    storage.write(f"{JOB}/{PUBLISHED}-1", content)
    assert tells_of_checkpoints(storage, JOB)


def test_the_history_of_the_later_driver_counts_where_a_frozen_one_wrote_the_same_revision() -> None:
    storage = MemoryStorage()
    frozen = Driver(storage)
    frozen.published.go_back_to(CheckpointId(0))
    frozen.publish(5)
    second = Driver(storage)
    second.published.go_back_to(CheckpointId(5))
    third = Driver(storage)  # the second one has not written anything yet: both continue the same file
    third.published.go_back_to(CheckpointId(6))
    third.publish(6)
    with pytest.raises(FencedError):
        second.publish(6)
    third.publish(7)
    third.publish(8)

    last = Driver(storage)

    assert last.published.is_known_after(CheckpointId(7))
    assert last.published_after(7) == {UID: [b"file 8"]}
