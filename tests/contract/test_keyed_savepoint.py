"""What every KeyedStateBackend promises of savepoints: whole in one place, in either form, and the store goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.contract.keyed_stores import (
    BACKENDS,
    COUNT,
    GROUP_OF,
    HUNDRED,
    KEYS,
    VISITS,
    WINDOWED_VISITS,
    bytes_of,
    cell,
    checkpoint,
    content,
    entries,
    get,
    get_maps,
    open_store,
    owner,
    put,
    put_maps,
)

from checkdam.backends import KeyedStateBackend, KeyedStateStore
from checkdam.backends.state_file import read_state_file
from checkdam.errors import CheckpointDamagedError, CheckpointDeclinedError, StorageError
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage

FORMATS = pytest.mark.parametrize("canonical", [True, False], ids=["canonical", "native"])
CHANGED = {key: value for key, value in {**HUNDRED, "k1": -1}.items() if key != "k2"}


def counted(backend: KeyedStateBackend, storage: Storage) -> tuple[KeyedStateStore, Any]:
    """A store with the hundred, checkpointed twice, and two changes since."""
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": 7})
    checkpoint(store, storage, 2)
    put(store, state, {"k1": -1, "k2": None})
    return store, state


def savepoint(
    store: KeyedStateStore, source: Storage, number: int, *, canonical: bool
) -> tuple[KeyedStateHandle, MemoryStorage]:
    """A handle and all that there is beside it; the store has forgotten the snapshot."""
    target = MemoryStorage()
    handle = store.snapshot(CheckpointId(number)).write_whole(target, source, canonical=canonical)
    store.aborted(CheckpointId(number))
    return handle, target


@FORMATS
def test_a_savepoint_on_top_of_checkpoints_needs_nothing_but_its_own_place(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool
) -> None:
    store, _ = counted(backend, storage)

    handle, target = savepoint(store, storage, 3, canonical=canonical)

    assert {file.path for file in handle.files} == {status.path for status in target.list("")}
    assert all("/" not in file.path for file in handle.files)
    assert {file.path: file.size for file in handle.files} == {s.path: s.size for s in target.list("")}
    assert content(backend, target, [handle], KEYS) == CHANGED


def test_a_checkpoint_that_fails_beside_a_savepoint_leaves_the_newest_changes_to_the_next(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store, state = counted(backend, storage)
    saved = store.snapshot(CheckpointId(3))
    put(store, state, {"k1": 5, "k2": 6})
    store.snapshot(CheckpointId(4))
    store.aborted(CheckpointId(4))
    saved.write_whole(MemoryStorage(), storage, canonical=True)
    store.aborted(CheckpointId(3))

    handle = checkpoint(store, storage, 5)

    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": 5, "k2": 6}


def test_savepoints_in_a_row_hold_each_entry_once_however_many_checkpoints_lie_between(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, {**HUNDRED, "gone": 1})
    first, _ = savepoint(store, storage, 1, canonical=True)
    checkpoint(store, storage, 2)
    for number in range(3, 8):  # each changes too little for a full checkpoint
        put(store, state, {f"k{i}": number for i in range(40)} | {"gone": None})
        checkpoint(store, storage, number)
    put(store, state, {"k1": 8})

    second, target = savepoint(store, storage, 8, canonical=True)
    third, _ = savepoint(store, storage, 9, canonical=True)

    [file] = second.files
    reader = read_state_file(target, file.path, file.size)
    assert reader.info.kind == "base"
    assert sum(sum(block.counts) for block in reader.info.blocks) == len(HUNDRED)  # none superseded
    assert sum(sum(block.removed_counts) for block in reader.info.blocks) == 0
    assert bytes_of(second) == bytes_of(third) <= 1.1 * bytes_of(first)


@FORMATS
def test_a_savepoint_can_be_taken_where_there_are_no_checkpoints(backend: KeyedStateBackend, canonical: bool) -> None:
    store = open_store(backend, MemoryStorage())
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    target = MemoryStorage()
    snapshot = store.snapshot(CheckpointId(1))
    put(store, state, {"k1": -1, "k2": None})

    first = snapshot.write_whole(target, None, canonical=canonical)
    assert snapshot.new_files == first.files
    store.aborted(CheckpointId(1))
    second = store.snapshot(CheckpointId(2)).write_whole(target, None, canonical=canonical)

    assert content(backend, target, [first], KEYS) == HUNDRED
    assert content(backend, target, [second], KEYS) == CHANGED


@FORMATS
def test_checkpoints_after_a_savepoint_lack_nothing_and_do_not_need_it(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool
) -> None:
    store, state = counted(backend, storage)
    savepoint(store, storage, 3, canonical=canonical)
    put(store, state, {"k3": -3})

    handle = checkpoint(store, storage, 4)

    assert all(file.path.startswith("shared/") for file in handle.files)
    assert content(backend, storage, [handle], KEYS) == {**CHANGED, "k3": -3}


@FORMATS
def test_a_checkpoint_may_complete_while_a_savepoint_is_written(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool
) -> None:
    store, state = counted(backend, storage)
    snapshot, target = store.snapshot(CheckpointId(3)), MemoryStorage()
    put(store, state, {"k3": -3})
    newer = checkpoint(store, storage, 4)

    handle = snapshot.write_whole(target, storage, canonical=canonical)
    store.aborted(CheckpointId(3))
    put(store, state, {"k4": -4})
    newest = checkpoint(store, storage, 5)

    assert content(backend, target, [handle], KEYS) == CHANGED
    assert content(backend, storage, [newer], KEYS) == {**CHANGED, "k3": -3}
    assert content(backend, storage, [newest], KEYS) == {**CHANGED, "k3": -3, "k4": -4}


@pytest.mark.parametrize("into", BACKENDS)
def test_a_canonical_savepoint_is_every_backends(backend: KeyedStateBackend, storage: MemoryStorage, into: str) -> None:
    store, _ = counted(backend, storage)
    visits, windowed = store.maps(VISITS), store.maps(WINDOWED_VISITS)
    put_maps(store, visits, {"a": {"x": 1, "y": 2}, "b": {"z": 3}})
    store.current_namespace = 5
    put_maps(store, windowed, {"a": {"w": 9}})
    handle, target = savepoint(store, storage, 3, canonical=True)

    assert handle.backend == "hashmap"
    restored = open_store(BACKENDS[into], target, [handle])
    again, maps, spaced = restored.cells(COUNT), restored.maps(VISITS), restored.maps(WINDOWED_VISITS)
    assert get(restored, again, KEYS) == CHANGED
    assert get_maps(restored, maps, ["a", "b", "c"]) == {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    restored.current_namespace = 5
    assert get_maps(restored, spaced, ["a", "b"]) == {"a": {"w": 9}}


@FORMATS
@pytest.mark.parametrize("into", BACKENDS)
def test_a_savepoint_is_dealt_out_anew_at_another_parallelism(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool, into: str
) -> None:
    handles, target = [], MemoryStorage()
    for subtask in range(2):
        half = open_store(backend, storage, of=owner(subtask, 2))
        put(half, half.cells(COUNT), {k: v for k, v in HUNDRED.items() if GROUP_OF[k] in owner(subtask, 2).key_groups})
        snapshot = half.snapshot(CheckpointId(1))
        handles.append(snapshot.write_whole(target, None, canonical=canonical))

    found: dict[str, int] = {}
    for subtask in range(3):
        third = owner(subtask, 3)
        here = [h for h in handles if set(h.key_groups) & set(third.key_groups)]
        restored = open_store(BACKENDS[into], target, here, third, claim=False)
        mine = get(restored, restored.cells(COUNT), KEYS)
        assert all(GROUP_OF[key] in third.key_groups for key in mine)
        found |= mine

    assert found == HUNDRED


@FORMATS
def test_state_that_nobody_asked_for_goes_into_the_savepoint(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    put(store, store.cells(cell("old")), {"a": 1})
    handle = checkpoint(store, storage, 1)
    restored = open_store(backend, storage, [handle], claim=False)
    restored.cells(COUNT)

    kept, target = savepoint(restored, storage, 2, canonical=canonical)

    assert entries(backend, target, [kept], cell("old")) == {"a": 1}


@FORMATS
@pytest.mark.parametrize("fault", Fault)
def test_a_failed_write_leaves_nothing_and_the_next_savepoint_is_whole(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool, fault: Fault
) -> None:
    store, _ = counted(backend, storage)
    counting = FaultyStorage(MemoryStorage(), at=-1, fault=fault)
    store.snapshot(CheckpointId(3)).write_whole(counting, storage, canonical=canonical)
    store.aborted(CheckpointId(3))

    for at in range(counting.operations):
        faulty = FaultyStorage(MemoryStorage(), at=at, fault=fault)
        with pytest.raises(StorageError):
            store.snapshot(CheckpointId(4 + at)).write_whole(faulty, storage, canonical=canonical)
        store.aborted(CheckpointId(4 + at))
        assert faulty.list("") == []

    handle, target = savepoint(store, storage, 100, canonical=canonical)
    assert content(backend, target, [handle], KEYS) == CHANGED


@FORMATS
def test_an_abort_ends_a_savepoint_that_is_being_written_and_leaves_nothing(
    backend: KeyedStateBackend, storage: MemoryStorage, canonical: bool
) -> None:
    store, _ = counted(backend, storage)
    snapshot = store.snapshot(CheckpointId(3))

    class Interrupted(MemoryStorage):
        def write(self, path: str, data: bytes) -> None:
            thread = threading.Thread(target=store.aborted, args=(CheckpointId(3),))
            thread.start()
            thread.join()
            super().write(path, data)

    target = Interrupted()
    with pytest.raises(CheckpointDeclinedError):
        snapshot.write_whole(target, storage, canonical=canonical)

    assert target.list("") == []
    with pytest.raises(CheckpointDeclinedError):
        snapshot.write_whole(MemoryStorage(), storage, canonical=canonical)


def test_a_full_checkpoint_refers_to_no_file_of_another(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store, state = counted(backend, storage)
    before = checkpoint(store, storage, 3)
    put(store, state, {"k3": -3})

    full = store.snapshot(CheckpointId(4), full=True).write(storage, "shared")
    store.completed(CheckpointId(4))
    put(store, state, {"k4": -4})
    after = checkpoint(store, storage, 5)

    assert not {file.path for file in full.files} & {file.path for file in before.files}
    assert content(backend, storage, [full], KEYS) == {**CHANGED, "k3": -3}
    assert content(backend, storage, [after], KEYS) == {**CHANGED, "k3": -3, "k4": -4}
    assert bytes_of(after, besides=full) < bytes_of(after)  # incremental again


def test_an_empty_store_gives_a_savepoint_that_restores_to_nothing(backend: KeyedStateBackend) -> None:
    for canonical in (True, False):
        store = open_store(backend, MemoryStorage())
        store.cells(COUNT)

        handle, target = savepoint(store, MemoryStorage(), 1, canonical=canonical)

        assert content(backend, target, [handle], KEYS) == {}


def test_damage_in_a_file_that_hashmap_builds_on_is_not_copied() -> None:
    storage = MemoryStorage()
    store, _ = counted(BACKENDS["hashmap"], storage)
    base = storage.list("shared")[0]
    data = bytearray(storage.read(base.path))
    data[40] ^= 1
    storage.write(base.path, bytes(data))
    target = MemoryStorage()

    with pytest.raises(CheckpointDamagedError, match="altered"):
        store.snapshot(CheckpointId(3)).write_whole(target, storage, canonical=True)

    assert target.list("") == []


def test_a_large_key_group_of_rocksdb_is_cut_into_blocks_that_every_reader_joins() -> None:
    keys = [f"key {i}" for i in range(20_000)]
    single = owner(max_parallelism=1)
    store = open_store(BACKENDS["rocksdb"], MemoryStorage(), of=single)
    put(store, store.cells(COUNT), {key: i for i, key in enumerate(keys)})

    handle, target = savepoint(store, MemoryStorage(), 1, canonical=True)

    [file] = handle.files
    assert len(read_state_file(target, file.path, file.size).info.blocks) > 2
    for each in BACKENDS.values():
        restored = open_store(each, target, [handle], single)
        assert dict(restored.cells(COUNT).all()) == {key: i for i, key in enumerate(keys)}
