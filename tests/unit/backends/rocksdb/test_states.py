from __future__ import annotations

from typing import Any

import pytest
from tests.unit.backends.rocksdb.conftest import Open

from checkdam.backends.contract import NO_KEY
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.state.key_groups import key_group_of
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.type_info import type_info

COUNT = StateSpec("count", StateKind.VALUE, type_info(int))
VISITS = StateSpec("visits", StateKind.MAP, type_info(int), type_info(str))
KEYS = [f"k{i}" for i in range(200)]


def counting_reads(table: Any) -> list[Any]:
    """Notes every read that reaches RocksDB from now on."""
    reads: list[Any] = []
    get = table.column.get

    def noted(key: Any) -> Any:
        reads.append(key)
        return get(key)

    table.column.get = noted
    return reads


def test_a_key_group_is_one_range_and_so_is_the_map_of_a_key(open_store: Open) -> None:
    store = open_store()
    visits = store.maps(VISITS)
    for store.current_key in ["a", "ab", "b", *KEYS]:
        for map_key in ("x", "y"):
            visits.put(map_key, 1)
    store.end_epoch()

    stored = [key for key, _ in visits.column.scan()]
    groups = [int.from_bytes(key[:2], "big") for key in stored]
    owners = [visits.decode_entries([key])[0][0] for key in stored]

    assert groups == sorted(groups)
    assert groups == [key_group_of(key, type_info(str), 16) for key in owners]
    assert owners[::2] == owners[1::2]


def test_repeated_access_reads_and_decodes_once(open_store: Open) -> None:
    store = open_store()
    count, visits = store.cells(COUNT), store.maps(VISITS)
    reads, map_reads = counting_reads(count), counting_reads(visits)

    for store.current_key in ["a", "b", "a", "b"]:
        count.update((count.value() or 0) + 1)
        visits.put("x", (visits.get("x") or 0) + 1)
        store.end_epoch()

    assert len(reads) == len(map_reads) == 2


def test_changes_are_written_once_at_the_end_of_an_epoch(open_store: Open) -> None:
    store = open_store()
    count = store.cells(COUNT)
    store.current_key = "a"
    for value in range(10):
        count.update(value)
    before = list(count.column.scan())

    store.end_epoch()

    assert before == []
    assert [value for _, value in count.column.scan()] == [b"\x09"]


def test_changes_that_outgrow_their_share_are_written_earlier_and_nothing_is_lost(open_store: Open) -> None:
    store = open_store(memory="16 MB")
    text = store.cells(StateSpec("text", StateKind.VALUE, type_info(str)))
    expected = {f"k{i}": f"{i}" * 2000 for i in range(4000)}

    for store.current_key, value in expected.items():
        text.update(value)
    store.current_key = "k7"
    text.clear()
    waiting = text.waiting()
    found = dict(zip(expected, text.get_all(list(expected)), strict=True))

    assert waiting < 1000
    assert text.held() < 1000
    assert found == {**expected, "k7": None}


def test_maps_that_outgrow_memory_are_read_back_entry_by_entry(open_store: Open) -> None:
    store = open_store(memory="16 MB")
    texts = store.maps(StateSpec("texts", StateKind.MAP, type_info(str), type_info(int)))
    for store.current_key in KEYS[:100]:
        for i in range(40):
            texts.put(i, f"{store.current_key}{i}" * 300)

    for store.current_key in KEYS[:100]:
        texts.remove(5)
        assert texts.get(39) == f"{store.current_key}39" * 300
        assert texts.get(5) is None
        assert len(dict(texts.items())) == 39
    assert texts.held() < 4000


def test_reading_one_entry_of_a_large_map_reads_no_other(open_store: Open) -> None:
    store = open_store()
    visits = store.maps(VISITS)
    store.current_key = "a"
    for i in range(5000):
        visits.put(f"m{i}", i)
    store.end_epoch()
    visits.evict(10_000)
    reads = counting_reads(visits)

    found = visits.get("m4321")

    assert found == 4321
    assert len(reads) == 1
    assert visits.held() < 10


@pytest.mark.parametrize("size", [10, 1000])  # held whole after it was read; read as a stream
def test_going_through_a_map_sees_changes_not_yet_written_and_may_change_it(open_store: Open, size: int) -> None:
    store = open_store()
    visits = store.maps(VISITS)
    store.current_key = "a"
    for i in range(size):
        visits.put(f"m{i}", i)
    store.end_epoch()
    visits.evict(10_000)
    visits.remove("m1")
    visits.put("m2", -2)
    visits.put("new", 9)
    expected = {**{f"m{i}": i for i in range(size) if i != 1}, "m2": -2, "new": 9}

    found = {}
    for map_key, value in visits.items():
        found[map_key] = value
        visits.remove(map_key)

    assert found == expected
    assert visits.is_empty()
    assert dict(visits.items()) == {}
    store.end_epoch()
    assert list(visits.all()) == []


def test_a_map_known_in_full_needs_no_read_for_what_it_has_not(open_store: Open) -> None:
    store = open_store()
    visits = store.maps(VISITS)
    store.current_key = "a"
    visits.put("x", 1)
    assert dict(visits.items()) == {"x": 1}
    reads = counting_reads(visits)

    assert visits.get("other") is None
    assert dict(visits.items()) == {"x": 1}
    assert reads == []


@pytest.mark.parametrize("name", ["default", "a/b c", "ünï", "x\0y"])
def test_any_name_is_a_state_of_its_own(open_store: Open, name: str) -> None:
    store = open_store()
    odd, count = store.cells(StateSpec(name, StateKind.VALUE, type_info(int))), store.cells(COUNT)
    store.current_key = "a"
    odd.update(1)
    store.end_epoch()

    assert count.value() is None
    assert list(odd.all()) == [("a", 1)]


def test_without_a_key_nothing_is_read_or_written(open_store: Open) -> None:
    store = open_store()
    count, visits = store.cells(COUNT), store.maps(VISITS)
    store.current_key = NO_KEY

    for use in (count.value, lambda: count.update(1), lambda: visits.get("a"), lambda: visits.put("a", 1)):
        with pytest.raises(StateAccessError):
            use()


def test_a_value_that_does_not_fit_is_named_and_the_others_wait(open_store: Open) -> None:
    store = open_store()
    count = store.cells(COUNT)
    store.current_key = "a"
    count.update(1)
    store.current_key = "b"
    count.update("text")

    with pytest.raises(JobGraphError, match='state "count" of operator "op"'):
        store.end_epoch()
    count.update(2)
    store.end_epoch()

    assert dict(count.all()) == {"a": 1, "b": 2}


def test_keys_are_counted(open_store: Open) -> None:
    store = open_store()
    count = store.cells(COUNT)
    for _ in range(2):
        for store.current_key in KEYS:
            count.update(1)
        store.end_epoch()
    store.current_key = KEYS[0]
    count.clear()
    store.end_epoch()

    assert store.count() == StateCount(len(KEYS) - 1, len(KEYS) - 1)


def test_a_change_not_yet_written_is_read_even_when_its_object_was_dropped(open_store: Open) -> None:
    store = open_store()
    count = store.cells(COUNT)
    store.current_key = "a"
    count.update(1)
    store.end_epoch()
    count.update(2)
    count.evict(10)

    assert count.value() == 2
    count.evict(10)
    assert count.get_all(["a"]) == [2]


def test_a_sweep_never_judges_by_what_it_read_before_a_change_was_written(open_store: Open) -> None:
    store = open_store()
    count = store.cells(COUNT, lambda value: value if value >= 50 else None)
    count.put_all(dict.fromkeys(KEYS, 1))
    store.end_epoch()
    count.sweep(1)
    count.put_all(dict.fromkeys(KEYS, 99))
    store.end_epoch()

    count.sweep(100)

    assert dict(count.all()) == dict.fromkeys(KEYS, 99)


@pytest.mark.parametrize(("entries", "scans"), [(0, 1), (10, 1), (1000, 14)])
def test_sweeping_reads_what_is_stored_in_few_scans_and_a_small_state_once(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, entries: int, scans: int
) -> None:
    store = open_store()
    looked_at: list[int] = []

    def noted(value: int) -> int:
        looked_at.append(value)
        return value

    count = store.cells(COUNT, noted)
    count.put_all({f"k{i}": i for i in range(entries)})
    store.end_epoch()
    scanned: list[Any] = []
    scan = count.column.scan

    def counted(*bounds: Any) -> Any:
        scanned.append(bounds)
        return scan(*bounds)

    monkeypatch.setattr(count.column, "scan", counted)
    for _ in range(300):
        count.sweep(5)

    assert len(scanned) <= scans
    assert set(looked_at) == set(range(entries))
    assert len(looked_at) == (1500 if entries else 0)


def test_a_sweep_sees_what_was_written_and_what_waits_since_the_last_round(open_store: Open) -> None:
    store = open_store()
    limit = [0]
    count = store.cells(COUNT, lambda value: value if value >= limit[0] else None)
    count.put_all({"a": 1, "b": 2})
    store.end_epoch()
    count.sweep(10)
    count.put_all({"c": 1, "a": 3})
    count.sweep(10)
    store.end_epoch()
    count.put_all({"d": 1})
    limit[0] = 2

    count.sweep(10)
    count.sweep(10)

    assert dict(count.all()) == {"a": 3, "b": 2}
