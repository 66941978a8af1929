"""The writer of checkpoints: what it does to the storage, and when it must not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.ownership import take
from checkdam.errors import FencedError
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.driver.checkpoint_writer import CheckpointWriter
from checkdam.runtime.driver.event_loop import EventLoop
from checkdam.runtime.driver.outputs import Outputs
from checkdam.storage.memory_storage import MemoryStorage

JOB = JobId("a" * 32)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIRST = CheckpointId(1)


def test_a_driver_that_was_replaced_removes_no_withdrawn_checkpoint() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)
    term.begin()
    store = CheckpointStore(storage, JOB, term)
    writer = CheckpointWriter(store, Outputs({}), timedelta(minutes=1), EventLoop())
    written = CompletedCheckpoint(
        FIRST, JOB, "words", Epoch(1), NOON, NOON, parallelism=1, max_parallelism=128, operators=()
    )
    writer.write(written)
    take(storage, JOB, take_over=True).begin()

    with pytest.raises(FencedError):
        writer.remove(FIRST)

    assert storage.status(f"{JOB}/chk-1/_metadata") is not None
