"""Checkpoint format 1: the file in `data/v1` was written by it, and every later version must read it.

Never write the file anew. A change of the format adds a file of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import from_metadata
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile

FILE = Path(__file__).parent / "data" / "v1" / "chk-7" / "_metadata"
CONTENT = CompletedCheckpoint(
    checkpoint_id=CheckpointId(7),
    job_id=JobId("0123456789abcdef0123456789abcdef"),
    job_name="word count",
    epoch=Epoch(41),
    triggered_at=datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC),
    completed_at=datetime(2024, 5, 1, 12, 0, 1, 654321, tzinfo=UTC),
    parallelism=2,
    max_parallelism=128,
    operators=(
        OperatorEntry(
            OperatorUid("count"),
            "Counts",
            2,
            128,
            {
                SubtaskIndex(0): KeyedStateHandle(
                    KeyGroupRange(0, 63), (StateFile("shared/base", 1000), StateFile("shared/delta", 20))
                ),
                SubtaskIndex(1): KeyedStateHandle(KeyGroupRange(64, 127), (StateFile("shared/ключ", 3),), "rocksdb"),
            },
        ),
        OperatorEntry(OperatorUid("sink"), "Files", 1, 128, committables=(b"part-1", b"\x00"), coordinator=b"\xff"),
    ),
    source_position=b'v1\n{"offset": 3}',
    settings={"backend": "hashmap", "mode": "exactly_once", "retention": "RETAIN_ON_CANCELLATION"},
)


def test_a_checkpoint_of_format_1_is_read() -> None:
    assert from_metadata(FILE.read_bytes()) == CONTENT
