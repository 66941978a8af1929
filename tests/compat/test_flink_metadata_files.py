"""`_metadata` files that real Flink wrote are read, and written back byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkdam.checkpoint.metadata_file import from_metadata
from checkdam.errors import StateNotRestorableError
from checkdam.flink.checkpoint_properties import RETAINED_CHECKPOINT, savepoint_properties
from checkdam.flink.metadata import SubtaskState, decode, encode, operator_id
from checkdam.flink.state_handles import IncrementalHandle, KeyGroupsSavepointHandle
from checkdam.state.snapshot_handles import SavepointFormat

HERE = Path(__file__).parent
FILES = sorted((HERE / "data" / "flink").iterdir())
MORE = os.environ.get("CHECKDAM_FLINK_FIXTURES", str(HERE.parents[2] / "shared" / "flink" / "fixtures"))
FILES += sorted(Path(MORE).glob("**/_metadata"))  # a larger collection, where there is one


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path)[-60:])
def test_a_file_of_flink_is_written_back_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()

    assert encode(decode(data)) == data


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path)[-60:])
def test_a_file_of_flink_is_refused_as_flink_s_and_not_as_damaged(path: Path) -> None:
    with pytest.raises(StateNotRestorableError, match="written by Flink"):
        from_metadata(path.read_bytes(), str(path))


@pytest.mark.parametrize(
    ("name", "version", "handle"),
    [
        ("1.17.2-hashmap-canonical-savepoint_metadata", 4, KeyGroupsSavepointHandle),
        ("1.17.2-rocksdb-incremental-checkpoint_metadata", 4, IncrementalHandle),
        ("2.3.0-rocksdb-incremental-checkpoint_metadata", 6, IncrementalHandle),
    ],
)
def test_the_keyed_state_of_the_word_count_is_found_by_its_uid(name: str, version: int, handle: type) -> None:
    metadata = decode((HERE / "data" / "flink" / name).read_bytes())

    (count,) = (operator for operator in metadata.operators if operator.operator_id == operator_id("wc-sum"))

    assert metadata.version == version
    assert count.subtasks
    assert all(isinstance(state, SubtaskState) for _, state in count.subtasks)
    assert {type(state.managed_keyed) for _, state in count.subtasks if isinstance(state, SubtaskState)} == {handle}


def test_the_properties_checkdam_writes_are_those_of_a_real_checkpoint() -> None:
    metadata = decode((HERE / "data" / "flink" / "2.3.0-rocksdb-incremental-checkpoint_metadata").read_bytes())

    assert metadata.properties == RETAINED_CHECKPOINT


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("1.17.2-hashmap-canonical-savepoint_metadata", SavepointFormat.CANONICAL),
        ("2.3.0-hashmap-native-savepoint_metadata", SavepointFormat.NATIVE),
    ],
)
def test_the_properties_checkdam_writes_are_those_of_a_real_savepoint(name: str, format: SavepointFormat) -> None:
    metadata = decode((HERE / "data" / "flink" / name).read_bytes())

    assert metadata.properties == savepoint_properties(format)
