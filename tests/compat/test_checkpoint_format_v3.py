"""Format 3, that of savepoints: the one in `data/v3` was written by it, and every later version must restore it.

Never write the files anew. A change of the format adds files of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from checkdam.backends import HashMapStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import load_checkpoint, verify_files
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    StateFile,
)
from checkdam.state.spec import StateKind, StateSpec
from checkdam.storage.filesystem import open_storage
from checkdam.types.type_info import type_info

DIRECTORY = Path(__file__).parent / "data" / "v3" / "savepoint-012345-0123456789ab"
KEY_GROUPS = KeyGroupRange(0, 127)
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
            1,
            128,
            {SubtaskIndex(0): KeyedStateHandle(KEY_GROUPS, (StateFile("base", 210), StateFile("delta", 192)))},
            operator_states={
                SubtaskIndex(0): OperatorStateHandle(
                    (("rules", Redistribution.BROADCAST, (40,)), ("none", Redistribution.SPLIT, ())), b"content"
                )
            },
        ),
        OperatorEntry(
            OperatorUid("numbers"),
            "Numbers",
            2,
            32,
            operator_states={
                SubtaskIndex(0): OperatorStateHandle(
                    (("offsets", Redistribution.UNION, (40, 48)),), StateFile("numbers.operator", 50)
                )
            },
            finished=frozenset({SubtaskIndex(1)}),
        ),
        OperatorEntry(OperatorUid("sink"), "Files", 1, 128, committables=(b"part-1", b"\x00"), coordinator=b"\xff"),
    ),
    source_position=b'v1\n{"offset": 3}',
    settings={"mode": "exactly_once", "retention": "RETAIN_ON_CANCELLATION"},
    event_time={"clicks": 1_700_000_000_000},
    watermarks={OperatorUid("count"): 1_600_000_000_000},
    savepoint_format=SavepointFormat.CANONICAL,
)


def test_a_savepoint_of_format_3_is_read() -> None:
    checkpoint, where = load_checkpoint(str(DIRECTORY))

    assert checkpoint == CONTENT
    assert where == DIRECTORY.as_uri()
    verify_files(open_storage(where), "", checkpoint)


def test_its_keyed_state_is_restored() -> None:
    owner = StoreOwner(
        OperatorUid("count"), SubtaskIndex(0), Attempt("a1"), KEY_GROUPS, KEY_GROUPS.last + 1, type_info(str)
    )
    handles = list(CONTENT.operators[0].subtasks.values())

    store = HashMapStateBackend().open(owner, handles, open_storage(str(DIRECTORY)), claim=False)

    counts = dict(store.cells(StateSpec("count", StateKind.VALUE, type_info(int))).all())
    assert counts == {"a": 1, "b": -2, "d": 4, "e": 5, "f": 6}


def test_format_3_is_still_what_is_written() -> None:
    assert to_metadata(CONTENT) == (DIRECTORY / "_metadata").read_bytes()
