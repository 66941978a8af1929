"""What readers in other threads see of a store: whole epochs, whatever a function does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.contract.keyed_stores import (
    BACKENDS,
    COUNT,
    KEYS,
    VISITS,
    WINDOWED,
    WINDOWED_VISITS,
    Expiry,
    Item,
    cell,
    checkpoint,
    expiring,
    open_store,
    put,
    put_maps,
)

from checkdam.backends import KeyedStateBackend, KeyedStateStore
from checkdam.errors import StateAccessError
from checkdam.ids import CheckpointId, Epoch
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import CleanupIncrementally, TtlTime
from checkdam.testing import MemoryStorage
from checkdam.types.hints import PickleType
from checkdam.types.serializers import serializer
from checkdam.types.type_info import list_of, tuple_of, type_info

TEXT = type_info(str)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


@pytest.fixture
def store(backend: KeyedStateBackend) -> KeyedStateStore:
    return open_store(backend, MemoryStorage())


def seen(store: KeyedStateStore, spec: StateSpec, *keys: Any, map_key: Any = None) -> tuple[int, dict[Any, Any]]:
    """The epoch, and what each key holds as readers see it; keys that hold nothing are left out."""
    assert store.published is not None
    holders = serializer(spec.holder_key(TEXT))
    encoded_map_key = None
    if map_key is not None:
        assert spec.map_key is not None
        encoded_map_key = serializer(spec.map_key).encode_key(map_key)
    epoch, found = store.published.get(spec.name, [holders.encode_key(key) for key in keys], encoded_map_key)
    decoded = {key: value_of(spec, each) for key, each in zip(keys, found, strict=True) if each is not None}
    return epoch, decoded


def value_of(spec: StateSpec, found: bytes) -> Any:
    if spec.map_key is None:
        return serializer(spec.value).decode_one(found)
    return dict(serializer(list_of(tuple_of([spec.map_key, spec.value]), list)).decode_one(found))


def paged(store: KeyedStateStore, spec: StateSpec, limit: int) -> tuple[dict[Any, Any], list[int]]:
    """All pages together, and how long each was."""
    assert store.published is not None
    holders = serializer(spec.holder_key(TEXT))
    found: dict[Any, Any] = {}
    sizes = []
    after: bytes | None = b""
    while after is not None:
        _, entries, after = store.published.page(spec.name, after, limit)
        for key, value in entries:
            assert holders.decode_one(key) not in found
            found[holders.decode_one(key)] = value_of(spec, value)
        sizes.append(len(entries))
    return found, sizes


def test_nothing_is_published_until_it_is_asked_for(store: KeyedStateStore) -> None:
    put(store, store.cells(COUNT), {"a": 1})

    assert store.published is None


def test_half_an_epoch_never_shows(store: KeyedStateStore) -> None:
    count = store.cells(COUNT)
    put(store, count, {"a": 1, "b": 1})
    store.publish(Epoch(1))

    for store.current_key, value in {"a": 2, "b": None, "c": 2}.items():
        count.update(value)
    in_the_middle = seen(store, COUNT, "a", "b", "c")
    store.end_epoch()
    after_end = seen(store, COUNT, "a", "b", "c")
    store.publish(Epoch(2))

    assert in_the_middle == after_end == (1, {"a": 1, "b": 1})
    assert seen(store, COUNT, "a", "b", "c") == (2, {"a": 2, "c": 2})


def test_half_an_epoch_does_not_show_when_there_is_too_much_to_gather(backend: KeyedStateBackend) -> None:
    store = open_store(backend, MemoryStorage())
    blobs = cell("blobs", bytes)
    state = store.cells(blobs)
    put(store, state, dict.fromkeys(KEYS, b"old"))
    store.publish(Epoch(1))

    for number in range(3000):  # more than waits in memory: a part is written before the epoch ends
        store.current_key = KEYS[number % len(KEYS)] if number < 200 else f"more-{number}"
        state.update(b"new" * 10_000)

    assert seen(store, blobs, *KEYS, "more-2999") == (1, dict.fromkeys(KEYS, b"old"))
    store.end_epoch()
    store.publish(Epoch(2))
    assert seen(store, blobs, "k7", "more-2999") == (2, {"k7": b"new" * 10_000, "more-2999": b"new" * 10_000})


def test_an_object_changed_in_place_does_not_show_before_the_epoch_ends(store: KeyedStateStore) -> None:
    items, lists = cell("items", Item), cell("lists", list[int], kind=StateKind.LIST)
    state, numbers = store.cells(items), store.cells(lists)
    item, held = Item("x", ["old"]), [1]
    store.current_key = "a"
    state.update(item)
    numbers.update(held)
    store.end_epoch()
    store.publish(Epoch(1))

    store.current_key = "a"
    item.tags.append("new")
    held.append(2)
    state.update(item)
    numbers.update(held)

    assert seen(store, items, "a") == (1, {"a": Item("x", ["old"])})
    assert seen(store, lists, "a") == (1, {"a": [1]})
    store.end_epoch()
    store.publish(Epoch(2))
    assert seen(store, items, "a") == (2, {"a": Item("x", ["old", "new"])})
    assert seen(store, lists, "a") == (2, {"a": [1, 2]})


def test_a_list_that_stands_for_a_tuple_does_not_show_its_changes_either(store: KeyedStateStore) -> None:
    pairs = cell("pairs", tuple[str, int])
    state = store.cells(pairs)
    pair: Any = ["x", 1]
    store.publish(Epoch(0))
    put(store, state, {"a": pair})
    store.publish(Epoch(1))

    pair[1] = 2

    assert seen(store, pairs, "a") == (1, {"a": ("x", 1)})


def test_maps_show_entry_by_entry_as_of_the_epoch(store: KeyedStateStore) -> None:
    visits = store.maps(VISITS)
    put_maps(store, visits, {"a": {"x": 1, "y": 2}, "b": {"x": 3}})
    store.publish(Epoch(1))
    put_maps(store, visits, {"a": {"x": 10, "y": None, "z": 4}, "b": {"x": None}})
    before = seen(store, VISITS, "a", "b")
    store.publish(Epoch(2))

    assert before == (1, {"a": {"x": 1, "y": 2}, "b": {"x": 3}})
    assert seen(store, VISITS, "a", "b") == (2, {"a": {"x": 10, "z": 4}})
    assert seen(store, VISITS, "a", "b", map_key="z") == (2, {"a": {"z": 4}})


def test_states_with_a_namespace_are_asked_for_by_both(store: KeyedStateStore) -> None:
    windowed, visits = store.cells(WINDOWED), store.maps(WINDOWED_VISITS)
    for store.current_key, store.current_namespace in (("a", 1), ("a", 2)):
        windowed.update(store.current_namespace * 10)
        visits.put("x", store.current_namespace)
        visits.put("y", 0)
    store.end_epoch()
    store.publish(Epoch(1))

    assert seen(store, WINDOWED, ("a", 1), ("a", 2), ("a", 3)) == (1, {("a", 1): 10, ("a", 2): 20})
    assert seen(store, WINDOWED_VISITS, ("a", 2), ("b", 2)) == (1, {("a", 2): {"x": 2, "y": 0}})
    assert paged(store, WINDOWED_VISITS, 1)[0] == {("a", 1): {"x": 1, "y": 0}, ("a", 2): {"x": 2, "y": 0}}


def windows_of(
    store: KeyedStateStore, spec: StateSpec, *keys: str, map_key: str | None = None
) -> tuple[int, list[Any]]:
    assert store.published is not None
    assert spec.namespace is not None
    text = serializer(type_info(str))
    asked = None if map_key is None else text.encode_key(map_key)
    epoch, found = store.published.windows(spec.name, list(map(text.encode_key, keys)), asked)
    of = spec.value if spec.map_key is None else list_of(tuple_of([spec.map_key, spec.value]), list)
    window, value = serializer(spec.namespace).decode_one, serializer(of).decode_one
    return epoch, [{window(each): value(content) for each, content in windows} for windows in found]


def test_all_namespaces_of_a_key_are_found_by_the_key(store: KeyedStateStore) -> None:
    windowed, visits = store.cells(WINDOWED), store.maps(WINDOWED_VISITS)
    for store.current_key, store.current_namespace in (("a", 1), ("ab", 1), ("a", 300)):
        windowed.update(store.current_namespace * 10)
        visits.put("x", store.current_namespace)
        visits.put("y", 0)
    store.end_epoch()
    store.publish(Epoch(1))

    assert windows_of(store, WINDOWED, "a", "b", "ab") == (1, [{1: 10, 300: 3000}, {}, {1: 10}])
    assert windows_of(store, WINDOWED_VISITS, "ab") == (1, [{1: [("x", 1), ("y", 0)]}])
    assert windows_of(store, WINDOWED_VISITS, "a", map_key="x") == (1, [{1: [("x", 1)], 300: [("x", 300)]}])
    assert windows_of(store, WINDOWED_VISITS, "a", map_key="z") == (1, [{}])

    store.current_key, store.current_namespace = "a", 1
    windowed.clear()
    visits.clear()
    store.current_namespace = 7
    windowed.update(70)
    visits.put("z", 7)
    store.end_epoch()
    assert windows_of(store, WINDOWED, "a") == (1, [{1: 10, 300: 3000}])
    store.publish(Epoch(2))

    assert windows_of(store, WINDOWED, "a", "ab") == (2, [{7: 70, 300: 3000}, {1: 10}])
    assert windows_of(store, WINDOWED_VISITS, "a") == (2, [{7: [("z", 7)], 300: [("x", 300), ("y", 0)]}])


@pytest.mark.parametrize("spec", [COUNT, VISITS], ids=["cells", "maps"])
def test_pages_hold_every_key_once(store: KeyedStateStore, spec: StateSpec) -> None:
    expected: Mapping[str, Any] = {key: number for number, key in enumerate(KEYS, 1)}
    if spec is COUNT:
        put(store, store.cells(spec), dict(expected))
    else:
        expected = {key: {str(i): i for i in range(1 + number % 3)} for number, key in enumerate(KEYS)}
        put_maps(store, store.maps(spec), dict(expected))
    store.publish(Epoch(1))

    found, sizes = paged(store, spec, 30)

    assert found == expected
    assert sizes == [30, 30, 30, 10]
    assert paged(store, spec, 100) == (expected, [100])


@pytest.mark.parametrize("time", list(TtlTime))
def test_what_has_expired_is_not_shown(store: KeyedStateStore, time: TtlTime) -> None:
    """By the clock as it is read, by event time as of the epoch's end."""
    expiry = Expiry()
    spec, maps, lists = (
        expiring("t", CleanupIncrementally(), time=time),
        expiring("m", is_map=True, time=time),
        expiring("l", is_list=True, time=time),
    )
    cells = store.cells(spec, _stoppable(expiry.one, expiry))
    held = store.maps(maps, _stoppable(expiry.one, expiry))
    numbers = store.cells(lists, _stoppable(expiry.elements, expiry))
    put(store, cells, {"a": (1, 5), "b": (2, 9)})
    put(store, numbers, {"a": [(1, 5), (2, 9)]})
    put_maps(store, held, {"a": {"x": (1, 5), "y": (2, 9)}, "b": {"x": (1, 5)}})
    store.publish(Epoch(1))
    expiry.now = 7
    if time is TtlTime.EVENT_TIME:
        assert seen(store, spec, "a", "b") == (1, {"a": (1, 5), "b": (2, 9)})
        store.publish(Epoch(1))

    assert seen(store, spec, "a", "b") == (1, {"b": (2, 9)})
    assert seen(store, maps, "a", "b") == (1, {"a": {"y": (2, 9)}})
    assert seen(store, lists, "a") == (1, {"a": [(2, 9)]})
    assert paged(store, spec, 1)[0] == {"b": (2, 9)}


def _stoppable(prune: Any, expiry: Expiry) -> Any:
    class Stoppable:
        def __call__(self, stored: Any) -> Any:
            return prune(stored)

        def as_of_now(self) -> Any:
            stopped = Expiry(expiry.now)
            return stopped.elements if prune.__name__ == "elements" else stopped.one

    return Stoppable()


def test_snapshots_hold_everything_though_epochs_are_published(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    store = open_store(backend, storage)
    count, visits = store.cells(COUNT), store.maps(VISITS)
    put(store, count, {"a": 1, "gone": 1})
    checkpoint(store, storage, 1)
    store.publish(Epoch(1))
    for epoch in (2, 3):
        put(store, count, {"a": epoch, f"e{epoch}": epoch})
        put_maps(store, visits, {"a": {f"x{epoch}": epoch}})
        store.current_key = "gone"
        count.clear()
        store.publish(Epoch(epoch))
    put(store, count, {"late": 4})

    handle = checkpoint(store, storage, 2)

    restored = open_store(backend, storage, [handle])
    assert dict(restored.cells(COUNT).all()) == {"a": 3, "e2": 2, "e3": 3, "late": 4}
    assert dict(restored.maps(VISITS).all()) == {("a", "x2"): 2, ("a", "x3"): 3}


def test_an_aborted_checkpoint_takes_nothing_from_readers(store: KeyedStateStore) -> None:
    count = store.cells(COUNT)
    store.publish(Epoch(1))
    put(store, count, {"a": 1})
    store.publish(Epoch(2))
    store.snapshot(CheckpointId(1))
    store.aborted(CheckpointId(1))
    put(store, count, {"b": 2})
    store.publish(Epoch(3))

    assert seen(store, COUNT, "a", "b") == (3, {"a": 1, "b": 2})


def test_a_state_nobody_asked_for_is_an_error_that_names_those_there_are(store: KeyedStateStore) -> None:
    store.cells(COUNT)
    store.publish(Epoch(1))

    with pytest.raises(StateAccessError, match=r'operator "op" has no keyed state "nope". It has "count"'):
        seen(store, cell("nope"), "a")


def test_after_unpublish_it_begins_anew(store: KeyedStateStore) -> None:
    count = store.cells(COUNT)
    put(store, count, {"a": 1, "b": 1})
    store.publish(Epoch(1))
    store.unpublish()
    put(store, count, {"a": 2})
    assert store.published is None

    store.publish(Epoch(2))

    assert seen(store, COUNT, "a", "b") == (2, {"a": 2, "b": 1})


def test_readers_in_other_threads_see_whole_epochs_only(store: KeyedStateStore) -> None:
    """Every epoch sets all keys to its number: no reader ever sees two numbers at once, or another epoch's."""
    count = store.cells(COUNT)
    put(store, count, dict.fromkeys(KEYS, 0))
    store.publish(Epoch(0))
    wrong: list[Any] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            epoch, found = seen(store, COUNT, *KEYS)
            if set(found.values()) != {epoch}:
                wrong.append((epoch, found))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for epoch in range(1, 100):
        put(store, count, dict.fromkeys(KEYS, epoch))
        store.publish(Epoch(epoch))
    is_over.set()
    for reader in readers:
        reader.join()

    assert not wrong
    assert seen(store, COUNT, "k1") == (99, {"k1": 99})


def test_what_does_not_fit_its_type_is_reported_and_no_other_state_suffers() -> None:
    """RocksDB refuses such a value when it is written, at the epoch's end."""
    store = open_store(BACKENDS["hashmap"], MemoryStorage())
    lists = cell("lists", list[int])
    wrong, count = store.cells(lists), store.cells(COUNT)
    put(store, count, {"a": 1})
    put(store, wrong, {"a": ["text"], "b": [1]})
    store.publish(Epoch(1))

    with pytest.raises(StateAccessError, match=r'state "lists" of operator "op" cannot be read: value .* does not fit'):
        seen(store, lists, "b")
    assert seen(store, COUNT, "a") == (1, {"a": 1})
    put(store, wrong, {"a": [2]})
    store.publish(Epoch(2))
    assert seen(store, lists, "a", "b") == (2, {"a": [2], "b": [1]})


def test_what_a_snapshot_takes_first_is_published_with_the_next_epoch(backend: KeyedStateBackend) -> None:
    store = open_store(backend, MemoryStorage())
    count, visits = store.cells(COUNT), store.maps(VISITS)
    put(store, count, {"a": 1, "b": 1})
    store.publish(Epoch(1))

    put(store, count, {"a": 2, "b": None})
    put_maps(store, visits, {"a": {"x": 1}})
    store.snapshot(CheckpointId(1))
    put(store, count, {"c": 3})
    store.snapshot(CheckpointId(2))
    store.publish(Epoch(2))

    assert seen(store, COUNT, "a", "b", "c") == (2, {"a": 2, "c": 3})
    assert seen(store, VISITS, "a") == (2, {"a": {"x": 1}})


def test_only_states_that_readers_can_be_told_of_are_listed(store: KeyedStateStore) -> None:
    store.cells(COUNT)
    store.publish(Epoch(1))
    store.maps(VISITS)  # asked for in the middle of the next epoch

    assert store.published is not None
    assert [spec.name for spec in store.published.specs] == [COUNT.name]
    store.publish(Epoch(2))
    assert [spec.name for spec in store.published.specs] == [COUNT.name, VISITS.name]


class Unwilling:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


def test_a_value_that_does_not_pickle_is_no_failure_of_the_job() -> None:
    store = open_store(BACKENDS["hashmap"], MemoryStorage())
    spec = cell("kept", PickleType(Unwilling))
    kept = store.cells(spec)
    put(store, kept, {"a": Unwilling()})
    store.publish(Epoch(1))

    with pytest.raises(StateAccessError, match=r"cannot be read.*not me"):
        seen(store, spec, "a")
    put(store, kept, {"a": None})
    store.publish(Epoch(2))
    assert seen(store, spec, "a") == (2, {})


def found_by(store: KeyedStateStore, spec: StateSpec, text: str, limit: int) -> tuple[dict[Any, Any], int]:
    """All pages of a filter together, and how many keys were looked at."""
    assert store.published is not None
    holders = serializer(spec.holder_key(TEXT))
    found: dict[Any, Any] = {}
    looked_at = 0
    after: bytes | None = b""
    while after is not None:
        epoch, entries, after, scanned = store.published.find(spec.name, after, limit, text)
        assert epoch == 1
        assert len(entries) <= limit
        for key, value in entries:
            assert holders.decode_one(key) not in found
            found[holders.decode_one(key)] = value_of(spec, value)
        looked_at += scanned
    return found, looked_at


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("text", ["Ey-1", '"key-1"', "nowhere"])
def test_a_filter_finds_every_key_that_contains_its_text(store: KeyedStateStore, text: str, limit: int) -> None:
    held = {f"key-{number}": number for number in range(25)}
    put(store, store.cells(COUNT), held)
    store.publish(Epoch(1))

    found, looked_at = found_by(store, COUNT, text, limit)

    assert found == {key: value for key, value in held.items() if text.lower() in f'"{key}"'}
    assert looked_at == len(held)


def test_a_filter_finds_maps_and_windows_by_their_keys(store: KeyedStateStore) -> None:
    put_maps(store, store.maps(VISITS), {"ada": {"x": 1, "y": 2}, "bob": {"x": 3}})
    windowed = store.cells(WINDOWED)
    for store.current_key, store.current_namespace in (("ada", 1), ("ada", 2), ("bob", 1)):
        windowed.update(7)
    store.end_epoch()
    store.publish(Epoch(1))

    maps, _ = found_by(store, VISITS, "AD", 1)
    windows, _ = found_by(store, WINDOWED, "ad", 1)

    assert {key: sorted(held) for key, held in maps.items()} == {"ada": ["x", "y"]}
    assert set(windows) == {("ada", 1), ("ada", 2)}


def test_one_page_of_a_filter_looks_at_a_limited_number_of_keys(
    store: KeyedStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for view in ("hashmap.hashmap_view", "rocksdb.rocksdb_view"):
        monkeypatch.setattr(f"checkdam.backends.{view}.MOST_SCANNED", 10)
    put(store, store.cells(COUNT), {f"key-{number}": number for number in range(25)})
    store.publish(Epoch(1))
    assert store.published is not None

    _, entries, after, scanned = store.published.find(COUNT.name, b"", 5, "nowhere")

    assert (entries, scanned) == ([], 10)
    assert after is not None
    assert found_by(store, COUNT, "nowhere", 5) == ({}, 25)


def test_a_filter_never_shows_half_an_epoch(store: KeyedStateStore) -> None:
    count = store.cells(COUNT)
    put(store, count, {"a": 1})
    store.publish(Epoch(1))

    for store.current_key in ("a", "another"):
        count.update(2)

    assert found_by(store, COUNT, "a", 10)[0] == {"a": 1}
