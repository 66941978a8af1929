"""Sets whose owners hold the members: what a store keeps of them in its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.contract.keyed_stores import open_store
from tests.contract.keyed_stores import owner as subtask_of

from checkdam.backends import KeyedStateBackend, KeyedStateStore
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info

TIMERS = StateSpec("timers", StateKind.TIMER, type_info(bool), map_key=type_info(int))
Member = tuple[str, int]


class Owner:
    """Holds the members of a set, and notes the changes."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._held: set[Member] = set()
        self._changes: tuple[list[Member], list[bool]] = [], []
        self._held = set(store.kept_set(TIMERS, self))

    def __len__(self) -> int:
        return len(self._held)

    def members(self) -> Iterator[Member]:
        return iter(self._held)

    def take_changes(self) -> tuple[list[Member], list[bool]]:
        changes, self._changes = self._changes, ([], [])
        return changes

    def change(self, add: Iterable[int] = (), remove: Iterable[int] = ()) -> None:
        for is_added, times in ((False, remove), (True, add)):
            for time in times:
                member = (f"k{time % 7}", time)
                (self._held.add if is_added else self._held.remove)(member)
                self._changes[0].append(member)
                self._changes[1].append(is_added)


def _completed(store: KeyedStateStore, storage: MemoryStorage, number: int) -> KeyedStateHandle:
    handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
    store.completed(CheckpointId(number))
    return handle


def _restored(backend: KeyedStateBackend, storage: MemoryStorage, handle: KeyedStateHandle) -> set[int]:
    owner = Owner(open_store(backend, storage, [handle]))
    assert all(key == f"k{time % 7}" for key, time in owner.members())
    return {time for _, time in owner.members()}


@pytest.mark.parametrize("ends_epoch", [True, False])
def test_a_snapshot_holds_the_members_as_of_then(
    backend: KeyedStateBackend, storage: MemoryStorage, *, ends_epoch: bool
) -> None:
    store = open_store(backend, storage)
    owner = Owner(store)
    owner.change(add=range(100))
    if ends_epoch:
        store.end_epoch()
        assert store.count().entries == 100 or not store.count().is_exact
    first = store.snapshot(CheckpointId(1))
    owner.change(add=[200], remove=[7])

    handle = first.write(storage, "shared")

    assert _restored(backend, storage, handle) == set(range(100))


def test_later_snapshots_add_and_remove_members(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    owner = Owner(store)
    owner.change(add=range(100))
    _completed(store, storage, 1)

    owner.change(add=[200, 201], remove=[7, 8])
    second = _completed(store, storage, 2)
    owner.change(add=[7], remove=[201])
    third = _completed(store, storage, 3)

    assert _restored(backend, storage, second) == {*range(100), 200, 201} - {7, 8}
    assert _restored(backend, storage, third) == {*range(100), 200} - {8}


def test_of_a_member_that_changes_more_than_once_the_last_change_counts(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    owner = Owner(store)
    owner.change(add=range(100))
    _completed(store, storage, 1)

    owner.change(add=[1, 200], remove=[1])
    owner.change(remove=[200, 2])
    owner.change(add=[2])
    owner.change(remove=[2])

    assert _restored(backend, storage, _completed(store, storage, 2)) == set(range(100)) - {2}


def test_the_changes_of_an_aborted_snapshot_are_in_the_next(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    owner = Owner(store)
    owner.change(add=range(100))
    _completed(store, storage, 1)
    owner.change(add=[200], remove=[3])
    store.snapshot(CheckpointId(2))
    store.aborted(CheckpointId(2))

    owner.change(add=[201])

    assert _restored(backend, storage, _completed(store, storage, 3)) == {*range(100), 200, 201} - {3}


def test_a_member_is_restored_by_the_subtask_of_its_key(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    Owner(store).change(add=range(50))
    handle = _completed(store, storage, 1)

    parts = [Owner(open_store(backend, storage, [handle], subtask_of(i, 3), claim=False)) for i in range(3)]

    assert sorted(time for part in parts for _, time in part.members()) == list(range(50))
    assert len({key for part in parts for key in {key for key, _ in part.members()}}) == 7
