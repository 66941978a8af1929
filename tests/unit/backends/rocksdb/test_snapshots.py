from __future__ import annotations

import contextlib
import os
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.backends.rocksdb.conftest import Open

from checkdam.backends.rocksdb.rocksdb_reading import read_handle
from checkdam.backends.rocksdb.rocksdb_store import RocksDBStore
from checkdam.backends.rocksdb.snapshot_files import INFO_NAME, VERSION, pack_info, read_info
from checkdam.backends.snapshot_contents import describe_keys
from checkdam.errors import CheckpointDamagedError, CheckpointDeclinedError, FormatTooNewError, StorageError
from checkdam.ids import CheckpointId
from checkdam.state.key_groups import KeyGroupRange, key_group_of
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.state_count import StateCount
from checkdam.state.ttl import Cleanup, CleanupFullSnapshot, CleanupOnCompaction, StateTtlConfig
from checkdam.storage import Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.types.type_info import type_info

pytestmark = pytest.mark.slow

COUNT = StateSpec("count", StateKind.VALUE, type_info(int))
KEYS = [f"k{i}" for i in range(500)]


def fill(store: RocksDBStore, keys: list[str] = KEYS, spec: StateSpec = COUNT) -> None:
    store.cells(spec).put_all({key: i for i, key in enumerate(keys)})
    store.end_epoch()


def checkpoint(store: RocksDBStore, storage: Storage, number: int = 1) -> KeyedStateHandle:
    handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
    store.completed(CheckpointId(number))
    return handle


def files_below(path: Path) -> list[str]:
    return [str(Path(root, name)) for root, _, names in os.walk(path) for name in names]


def test_a_checkpoint_after_a_small_change_copies_little(open_store: Open, storage: Storage) -> None:
    store = open_store()
    blob = StateSpec("blob", StateKind.VALUE, type_info(bytes))
    cells = store.cells(blob)
    cells.put_all({f"k{i}": random.randbytes(100) for i in range(20_000)})
    full = checkpoint(store, storage, 1)

    cells.put_all({f"k{i}": random.randbytes(100) for i in range(0, 20_000, 100)})
    snapshot = store.snapshot(CheckpointId(2))
    snapshot.write(storage, "shared")

    assert sum(file.size for file in snapshot.new_files) < 0.15 * sum(file.size for file in full.files)


def test_an_empty_state_needs_no_file(open_store: Open, storage: Storage) -> None:
    store = open_store()
    store.cells(COUNT)

    assert checkpoint(store, storage).files == ()


def test_restoring_links_the_tables_where_the_storage_is_on_the_same_disk(
    open_store: Open, storage: Storage, tmp_path: Path, work: Path
) -> None:
    fill(store := open_store())
    handle = checkpoint(store, storage)
    store.close()

    restored = open_store([handle])

    table = next(file for file in handle.files if file.name != INFO_NAME)
    links = [path for path in files_below(work) if path.endswith(table.name)]
    assert os.stat(tmp_path / "checkpoints" / table.path).st_nlink == 2
    assert os.path.samefile(links[0], tmp_path / "checkpoints" / table.path)
    assert restored.cells(COUNT).get_all(["k1", "k2"]) == [1, 2]


@pytest.mark.parametrize("ranges", [[(0, 15)], [(0, 4), (5, 10), (11, 15)], [(0, 7), (8, 15)]])
@pytest.mark.parametrize("new_ranges", [[(0, 15)], [(0, 2), (3, 9), (10, 15)], [(0, 7), (8, 15)]])
def test_any_division_of_the_key_groups_restores_from_any_other(
    open_store: Open, storage: Storage, work: Path, ranges: list[tuple[int, int]], new_ranges: list[tuple[int, int]]
) -> None:
    group_of = {key: key_group_of(key, type_info(str), 16) for key in KEYS}
    handles = []
    for number, (first, last) in enumerate(ranges, start=1):
        store = open_store(key_groups=KeyGroupRange(first, last))
        fill(store, [key for key in KEYS if first <= group_of[key] <= last])
        handles.append(checkpoint(store, storage, number))
        store.close()

    for first, last in new_ranges:
        restored = open_store(handles, KeyGroupRange(first, last))
        found = dict(restored.cells(COUNT).all())
        again = checkpoint(restored, storage, 100 + first)
        restored.close()

        assert found.keys() == {key for key in KEYS if first <= group_of[key] <= last}
        once_more = open_store([again], KeyGroupRange(first, last))
        assert dict(once_more.cells(COUNT).all()) == found
        once_more.close()
    assert files_below(work) == []


def test_a_snapshot_is_read_as_entries_of_the_key_groups_asked_for(
    open_store: Open, storage: Storage, tmp_path: Path
) -> None:
    fill(store := open_store())
    handle = checkpoint(store, storage)
    local = tmp_path / "reading"

    read = {
        info.name: dict(entries) for info, entries in read_handle(handle, storage, KeyGroupRange(3, 5), lambda: local)
    }

    expected = [key for key in KEYS if 3 <= key_group_of(key, type_info(str), 16) <= 5]
    assert read["count"].keys() == {bytes([0xA0 | len(key)]) + key.encode() for key in expected}
    assert describe_keys(handle, storage) == ('"str"', 16)
    assert not local.exists()


def test_a_flipped_byte_anywhere_is_found(open_store: Open, storage: Storage, tmp_path: Path, work: Path) -> None:
    fill(store := open_store())
    handle = checkpoint(store, storage)
    store.close()

    for file in handle.files:
        path = tmp_path / "checkpoints" / file.path
        whole = path.read_bytes()
        for at in {0, 9, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(CheckpointDamagedError, match="altered"):
                open_store([handle])
        path.write_bytes(whole[:-1])
        with pytest.raises(CheckpointDamagedError, match=r"found \d+: the file is truncated"):
            open_store([handle])
        path.unlink()
        with pytest.raises(CheckpointDamagedError, match="is missing"):
            open_store([handle])
        path.write_bytes(whole)
    with pytest.raises(CheckpointDamagedError, match="names tables"):
        open_store([replace(handle, files=handle.files[-1:])])
    assert files_below(work) == []


def test_a_newer_format_is_refused(open_store: Open, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store := open_store())
    monkeypatch.setattr("checkdam.backends.rocksdb.snapshot_files.VERSION", VERSION + 1)
    handle = checkpoint(store, storage)
    monkeypatch.undo()

    with pytest.raises(FormatTooNewError, match=f"version {VERSION + 1}"):
        open_store([handle])


def test_nothing_is_left_on_the_local_disk_after_write_abort_and_close(
    open_store: Open, storage: Storage, work: Path
) -> None:
    store = open_store()
    fill(store)
    database = set(files_below(work))

    store.snapshot(CheckpointId(1)).write(storage, "shared")
    aborted = store.snapshot(CheckpointId(2))
    store.aborted(CheckpointId(2))
    store.snapshot(CheckpointId(3))

    assert not [path for path in files_below(work) if "/checkpoint-1/" in path or "/checkpoint-2/" in path]
    with pytest.raises(CheckpointDeclinedError):
        aborted.write(storage, "shared")
    assert database
    store.close()
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("is_large", [False, True])
def test_a_failed_write_leaves_nothing_behind(open_store: Open, work: Path, fault: Fault, is_large: bool) -> None:
    blob = StateSpec("blob", StateKind.VALUE, type_info(bytes))
    for at in range(3):
        store = open_store(memory="128 MB")
        cells = store.cells(blob)
        cells.put_all({f"k{i}": random.randbytes(10_000) for i in range(400 if is_large else 3)})
        storage = MemoryStorage()
        faulty = FaultyStorage(storage, at, fault)

        with contextlib.suppress(StorageError):
            store.snapshot(CheckpointId(1)).write(faulty, "shared")

        if faulty.has_failed:
            assert storage.list("") == []
        assert not [path for path in files_below(work) if "/checkpoint-1/" in path]
        store.close()
    assert list(work.iterdir()) == []


def test_a_store_closed_while_its_snapshot_is_written_declines_it(open_store: Open) -> None:
    fill(store := open_store())
    snapshot = store.snapshot(CheckpointId(1))

    store.close()

    with pytest.raises(CheckpointDeclinedError):
        snapshot.write(MemoryStorage(), "shared")


def test_state_that_nobody_asks_for_is_carried_on(open_store: Open, storage: Storage) -> None:
    fill(store := open_store())
    handle = checkpoint(store, storage, 1)

    carried = open_store([handle])
    fill(carried, ["x"], StateSpec("other", StateKind.VALUE, type_info(int)))
    second = checkpoint(carried, storage, 2)

    assert open_store([second]).cells(COUNT).get_all(["k1"]) == [1]


def test_expired_entries_leave_with_each_epoch_and_with_a_full_snapshot(open_store: Open, storage: Storage) -> None:
    hour = timedelta(hours=1)
    cleanups: dict[str, Cleanup] = {"epoch": CleanupOnCompaction(30), "full": CleanupFullSnapshot()}
    specs = {
        name: StateSpec(name, StateKind.VALUE, type_info(int), ttl=StateTtlConfig(hour, cleanup=(cleanup,)))
        for name, cleanup in cleanups.items()
    }
    store = open_store()
    cells = {name: store.cells(spec, lambda value: value if value >= 50 else None) for name, spec in specs.items()}
    for each in cells.values():
        each.put_all({f"k{i}": i for i in range(100)})

    left = []
    for _ in range(5):
        store.end_epoch()
        left.append(cells["epoch"].count().entries)
    before = cells["full"].count().entries
    checkpoint(store, storage)

    assert left == sorted(left, reverse=True)
    assert left[0] > 50
    assert left[-1] == 50
    assert before == 100
    store.end_epoch()
    assert cells["full"].count() == StateCount(50, 50)


BLOB = StateSpec("blob", StateKind.VALUE, type_info(bytes))


def bytes_read() -> int:
    """What this process has asked the system to read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def spread(open_store: Open, storage: Storage) -> KeyedStateHandle:
    """A snapshot of some megabytes over all key groups."""
    store = open_store(memory="64 MB")
    cells = store.cells(BLOB)
    for begin in range(0, 40_000, 10_000):
        cells.put_all({f"k{i}": random.randbytes(300) for i in range(begin, begin + 10_000)})
        store.end_epoch()
    handle = checkpoint(store, storage)
    store.close()
    return handle


def test_a_subtask_reads_the_tables_of_its_key_groups_and_no_others(open_store: Open, storage: Storage) -> None:
    handle = spread(open_store, storage)
    stored = sum(file.size for file in handle.files)

    read = []
    for first, last in [(0, 4), (5, 10), (11, 15)]:
        before = bytes_read()
        open_store([handle], KeyGroupRange(first, last), "64 MB").close()
        read.append(bytes_read() - before)

    assert max(read) < 0.5 * stored
    assert stored < sum(read) < 1.3 * stored


def test_a_table_that_cannot_be_read_on_restore_stays_whole_in_the_checkpoint(
    open_store: Open, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store)
    handle = checkpoint(store, storage)
    before = {path: Path(path).read_bytes() for path in files_below(tmp_path) if "shared" in path}

    def unreadable(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("checkdam.backends.rocksdb.snapshot_files._pieces", unreadable)
    with pytest.raises(OSError, match="Input/output"):
        open_store([handle])

    assert before
    assert {path: Path(path).read_bytes() for path in before} == before


def test_an_altered_table_is_found_by_a_subtask_that_owns_keys_of_it(
    open_store: Open, storage: Storage, tmp_path: Path
) -> None:
    handle = spread(open_store, storage)
    info = read_info(handle, storage)
    table = next(file for file in handle.files if info.key_groups.get(file.name) == (0, 0))
    path = tmp_path / "checkpoints" / table.path
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])

    with pytest.raises(CheckpointDamagedError, match="altered"):
        open_store([handle], KeyGroupRange(0, 0), "64 MB")
    with pytest.raises(CheckpointDamagedError, match="altered"):
        open_store([handle], KeyGroupRange(0, 15), "64 MB")
    open_store([handle], KeyGroupRange(8, 15), "64 MB")
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointDamagedError, match=r"found \d+: the file is truncated"):
        open_store([handle], KeyGroupRange(8, 15), "64 MB")


def test_no_checkpoint_after_a_full_one_copies_much_however_the_state_was_filled(
    open_store: Open, storage: Storage
) -> None:
    store = open_store()
    cells = store.cells(COUNT)
    for begin in range(0, 100_000, 20_000):
        cells.put_all({f"k{i}": i for i in range(begin, begin + 20_000)})
        store.end_epoch()
    full = sum(file.size for file in checkpoint(store, storage, 100_001).files)

    copied = []
    for number in range(100_002, 100_014):
        cells.put_all({f"k{i}": number for i in random.sample(range(100_000), 1000)})
        snapshot = store.snapshot(CheckpointId(number))
        snapshot.write(storage, "shared")
        store.completed(CheckpointId(number))
        copied.append(sum(file.size for file in snapshot.new_files) / full)

    assert max(copied) < 0.15


def test_a_snapshot_after_rescaling_holds_nothing_of_other_subtasks_however_large(
    open_store: Open, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = spread(open_store, storage)
    monkeypatch.setattr("checkdam.backends.rocksdb.rocksdb_store._MERGED_AT_ONCE", 0)
    stored = sum(file.size for file in handle.files)

    part = open_store([handle], KeyGroupRange(0, 3), "64 MB")
    again = checkpoint(part, storage, 2)

    assert sum(file.size for file in again.files) < 0.3 * stored
    assert all(0 <= first <= last <= 3 for first, last in read_info(again, storage).key_groups.values())


def test_the_state_of_a_full_snapshot_is_merged_once(open_store: Open, storage: Storage) -> None:
    store = open_store(memory="64 MB")
    cells = store.cells(BLOB)
    cells.put_all({f"k{i}": random.randbytes(300) for i in range(10_000)})
    first = store.snapshot(CheckpointId(1))
    first.write(storage, "shared")
    store.aborted(CheckpointId(1))
    cells.put_all({"x": b"1"})

    second = store.snapshot(CheckpointId(2)).write(storage, "shared")

    assert first.tables is not None
    assert first.tables.keys() < {file.name for file in second.files}


def test_a_closed_store_has_no_file_open(open_store: Open, storage: Storage, work: Path) -> None:
    def open_files() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [os.readlink(link) for link in links if os.path.lexists(link) and str(work) in os.readlink(link)]

    fill(store := open_store())
    handle = checkpoint(store, storage)
    restored = open_store([handle], KeyGroupRange(0, 7))
    restored.cells(COUNT)
    before = open_files()
    store.close()
    restored.close()

    assert before
    assert open_files() == []


def rewritten(storage: Storage, handle: KeyedStateHandle, **changes: Any) -> KeyedStateHandle:
    """The snapshot with another list of its states, under a valid checksum."""
    info = read_info(handle, storage)
    data = pack_info(msgspec.structs.replace(info, **changes))
    *tables, told = handle.files
    storage.write(told.path, data)
    return replace(handle, files=(*tables, replace(told, size=len(data))))


@pytest.mark.parametrize(
    "name", ["../escaped", "/tmp/escaped", "a/b", "..", "", ".", "LOCK", "OPTIONS-000007", "000001.sst", "MANIFEST-x"]
)
def test_a_snapshot_can_put_no_other_file_beside_the_database(
    open_store: Open, storage: Storage, tmp_path: Path, name: str
) -> None:
    store = open_store()
    fill(store)
    handle = rewritten(storage, checkpoint(store, storage), others={name: b"x"})
    before = files_below(tmp_path)

    with pytest.raises(CheckpointDamagedError, match="not a file of a RocksDB snapshot"):
        open_store([handle])

    assert files_below(tmp_path) == before


@pytest.mark.parametrize("name", ["MANIFEST-000005", "CURRENT", "../x.sst", "x.sst", "000009.log"])
def test_only_a_table_is_linked_to_the_file_of_a_checkpoint(open_store: Open, storage: Storage, name: str) -> None:
    store = open_store()
    fill(store)
    crafted = rewritten(storage, checkpoint(store, storage), tables={name: 1})
    files = tuple(replace(file, name=name) if file.name.endswith(".sst") else file for file in crafted.files)

    with pytest.raises(CheckpointDamagedError, match="not a file of a RocksDB snapshot"):
        open_store([replace(crafted, files=files)])


def test_two_files_of_one_name_are_damage(open_store: Open, storage: Storage) -> None:
    store = open_store()
    fill(store)
    handle = checkpoint(store, storage)

    with pytest.raises(CheckpointDamagedError, match="two files of the snapshot have the same name"):
        open_store([replace(handle, files=(*handle.files, replace(handle.files[0], path="shared/other")))])


def test_a_table_that_is_a_symbolic_link_is_neither_linked_nor_read(
    open_store: Open, storage: Storage, tmp_path: Path
) -> None:
    store = open_store()
    fill(store)
    handle = checkpoint(store, storage)
    table = tmp_path / "checkpoints" / handle.files[0].path
    table.rename(tmp_path / "elsewhere")
    table.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="symbolic link"):
        open_store([handle])
