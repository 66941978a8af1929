from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, cast

import pytest

from checkdam.errors import StorageError
from checkdam.ids import CheckpointId
from checkdam.runtime.driver.checkpoint_writer import CheckpointWriter
from checkdam.state.snapshot_handles import StateFile

SHARED = StateFile("shared/a", 1)


class UndiscardableStore:
    """Cannot discard checkpoint 1."""

    def __init__(self) -> None:
        self.deleted: list[StateFile] = []

    def check(self) -> None:
        """Do nothing: no other driver has the job."""

    def discard(self, checkpoint_id: CheckpointId) -> None:
        if checkpoint_id == 1:
            raise StorageError("refused by the test")

    def delete_files(self, files: Iterable[StateFile]) -> None:
        self.deleted += files


@pytest.fixture
def store() -> UndiscardableStore:
    return UndiscardableStore()


@pytest.fixture
def writer(store: UndiscardableStore) -> CheckpointWriter:
    nothing = cast(Any, None)
    return CheckpointWriter(cast(Any, store), nothing, timedelta(minutes=1), nothing)


def test_while_a_checkpoint_could_not_be_discarded_an_aborted_one_deletes_no_file(
    writer: CheckpointWriter, store: UndiscardableStore
) -> None:
    with pytest.raises(StorageError):
        writer.discard([CheckpointId(1)], [])

    writer.delete([SHARED])

    assert store.deleted == []


def test_while_a_checkpoint_could_not_be_discarded_the_discard_of_another_deletes_no_file(
    writer: CheckpointWriter, store: UndiscardableStore
) -> None:
    with pytest.raises(StorageError):
        writer.discard([CheckpointId(1)], [])

    writer.discard([CheckpointId(2)], [SHARED])
    writer.delete([SHARED])

    assert store.deleted == []


def test_the_files_of_a_discarded_checkpoint_are_deleted(writer: CheckpointWriter, store: UndiscardableStore) -> None:
    writer.discard([CheckpointId(2)], [SHARED])

    assert store.deleted == [SHARED]
