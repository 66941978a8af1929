"""Reading snapshots with no job running gives what the stores held, whichever backend wrote them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.contract.keyed_stores import (
    COUNT,
    GROUP_OF,
    HUNDRED,
    KEYS,
    MAX_PARALLELISM,
    VISITS,
    WINDOWED,
    WINDOWED_VISITS,
    cell,
    checkpoint,
    expiring,
    mapping,
    open_store,
    owner,
    put,
    put_maps,
)
from tests.support.snapshot_files import completed

from checkdam.backends import KeyedStateBackend, KeyedStateStore
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.errors import CheckpointDamagedError, StateAccessError, UsageError
from checkdam.graph.contexts import TimeDomain
from checkdam.ids import OperatorUid, SubtaskIndex
from checkdam.runtime.slot.timers import TimerQueue
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind
from checkdam.state_reader import KeyedState, Savepoint
from checkdam.storage.subtree import subtree
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import JOB_ID
from checkdam.testing.mounts import mount
from checkdam.types.hints import PickleType


class Snapshots:
    """Stores of one operator over one storage, and what a reader finds after them."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.storage = MemoryStorage()
        self.files = subtree(self.storage, JOB_ID)
        self.uri = mount(self.storage)

    def store(self, subtask: int = 0, parallelism: int = 1, key_type: Any = str, **restored: Any) -> KeyedStateStore:
        of = owner(subtask, parallelism, key_type)
        return open_store(self.backend, self.files, restored.get("handles", ()), of)

    def taken(self, store: KeyedStateStore, number: int = 1) -> KeyedStateHandle:
        return checkpoint(store, self.files, number)

    def load(self, *handles: KeyedStateHandle) -> Savepoint:
        subtasks = {SubtaskIndex(place): handle for place, handle in enumerate(handles)}
        entry = OperatorEntry(OperatorUid("op"), "an operator", len(handles), MAX_PARALLELISM, subtasks)
        CheckpointStore(self.storage, JOB_ID).write(completed([entry], 9, len(handles), MAX_PARALLELISM))
        return Savepoint.load(f"{self.uri}/{JOB_ID}/chk-9")


@pytest.fixture
def snapshots(backend: KeyedStateBackend) -> Snapshots:
    return Snapshots(backend)


def _rows(state: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = state.to_arrow().to_pylist()
    return rows


def test_a_value_state_reads_as_it_was_kept(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)

    state = snapshots.load(snapshots.taken(store)).keyed_state("op", "count")

    assert dict(state) == HUNDRED
    assert {row["key"]: row["value"] for row in _rows(state)} == HUNDRED
    assert state.schema.names == ["key", "value", "key_group"]
    assert state.count() == 100
    assert state.get("k7") == 7
    assert state.get("nobody") is None
    assert state.get("nobody", -1) == -1


def test_the_newest_value_wins_and_removed_keys_are_gone(snapshots: Snapshots) -> None:
    store = snapshots.store()
    count = store.cells(COUNT)
    put(store, count, HUNDRED)
    snapshots.taken(store, 1)
    put(store, count, {"k1": 1001, "k2": None, "k3": None, "new": 5})
    snapshots.taken(store, 2)
    put(store, count, {"k3": 3003, "k4": None})

    state = snapshots.load(snapshots.taken(store, 3)).keyed_state("op", "count")

    held = {**HUNDRED, "k1": 1001, "k3": 3003, "new": 5}
    del held["k2"], held["k4"]
    assert dict(state) == held
    assert state.count() == len(held)
    assert (state.get("k1"), state.get("k2"), state.get("k3")) == (1001, None, 3003)
    assert sum(size.entries for size in state.key_groups()) == len(held)


def test_every_key_is_there_once_at_any_parallelism_and_after_rescaling(snapshots: Snapshots) -> None:
    one = snapshots.store()
    put(one, one.cells(COUNT), HUNDRED)
    whole = snapshots.taken(one)
    handles = []
    for subtask in range(3):
        store = snapshots.store(subtask, 3, handles=[whole])
        count = store.cells(COUNT)
        own = [key for key, _ in count.all()]
        put(store, count, {own[0]: -1})
        handles.append(snapshots.taken(store, 2))

    state = snapshots.load(*handles).keyed_state("op", "count")

    rows = _rows(state)
    assert len(rows) == 100
    assert len({row["key"] for row in rows}) == 100
    assert sorted(row["value"] for row in rows)[:3] == [-1, -1, -1]
    assert [row["key_group"] for row in rows] == sorted(row["key_group"] for row in rows)
    assert {size.subtask for size in state.key_groups()} == {0, 1, 2}


def test_lists_maps_and_windows_have_columns_of_their_own(snapshots: Snapshots) -> None:
    store = snapshots.store()
    listed = cell("listed", list[int], kind=StateKind.LIST)
    states = [store.cells(listed), store.maps(VISITS), store.cells(WINDOWED), store.maps(WINDOWED_VISITS)]
    put(store, states[0], {"a": [1, 2], "b": [3]})
    put_maps(store, states[1], {"a": {"x": 1, "y": 2}, "b": {"x": 3}})
    for store.current_namespace in (10, 20):
        put(store, states[2], {"a": store.current_namespace})
        put_maps(store, states[3], {"a": {"x": store.current_namespace}})

    savepoint = snapshots.load(snapshots.taken(store))

    read = {name: savepoint.keyed_state("op", name) for name in ("listed", "visits", "windowed", "windowed visits")}
    assert [state.schema.names for state in read.values()] == [
        ["key", "value", "key_group"],
        ["key", "map_key", "value", "key_group"],
        ["key", "window", "value", "key_group"],
        ["key", "window", "map_key", "value", "key_group"],
    ]
    assert dict(read["listed"]) == {"a": [1, 2], "b": [3]}
    assert dict(read["visits"]) == {("a", "x"): 1, ("a", "y"): 2, ("b", "x"): 3}
    assert read["visits"].get("a") == {"x": 1, "y": 2}
    assert dict(read["windowed"]) == {("a", 10): 10, ("a", 20): 20}
    assert read["windowed"].get("a") == {10: 10, 20: 20}
    assert read["windowed visits"].get("a") == {10: {"x": 10}, 20: {"x": 20}}
    kinds = {state.name: (state.kind, state.map_key_type, state.window_type) for state in savepoint.states("op")}
    assert kinds["windowed visits"] == ("map", "str", "int")
    assert kinds["listed"] == ("list", None, None)


def test_what_may_expire_is_shown_as_stored_with_the_time_of_its_last_touch(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(expiring("seen")), {"a": (1, 1_700_000_000_000)})
    put(store, store.cells(expiring("listed", is_list=True)), {"a": [(1, 1_000), (2, 2_000)]})
    put_maps(store, store.maps(expiring("mapped", is_map=True)), {"a": {"x": (7, 3_000)}})

    savepoint = snapshots.load(snapshots.taken(store))

    [seen], [listed], [mapped] = (_rows(savepoint.keyed_state("op", name)) for name in ("seen", "listed", "mapped"))
    assert (seen["value"], seen["last_touched"]) == (1, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
    assert listed["value"] == [1, 2]
    assert [time.timestamp() for time in listed["last_touched"]] == [1, 2]
    assert (mapped["map_key"], mapped["value"], mapped["last_touched"].timestamp()) == ("x", 7, 3)
    assert dict(savepoint.keyed_state("op", "listed")) == {"a": [1, 2]}
    described = {state.name: (state.type, state.ttl, state.ttl_time) for state in savepoint.states("op")}
    assert described["listed"] == ("list[int]", True, "processing time")


def test_timers_registered_and_deleted_in_bulk_are_as_those_one_by_one(snapshots: Snapshots) -> None:
    store = snapshots.store()
    timers = TimerQueue(store, TimeDomain.EVENT_TIME)
    timers.register_each([(5, "a"), (5, "b"), (9, "a"), (5, "a")])
    timers.register_each([(5, "b"), (7, "a")])
    assert len(timers) == 4
    timers.delete_each([(9, "a"), (5, "b"), (5, "b"), (6, "c")])
    store.end_epoch()

    kept = snapshots.load(snapshots.taken(store)).timers("op")

    assert sorted(kept) == [(("a", "event time"), 5), (("a", "event time"), 7)]
    assert len(timers) == 2
    assert timers.take_due(6) == [(5, ["a"])]
    assert timers.next_time == 7


def test_timers_of_both_domains_are_one_table(snapshots: Snapshots) -> None:
    store = snapshots.store()
    event, processing = TimerQueue(store, TimeDomain.EVENT_TIME), TimerQueue(store, TimeDomain.PROCESSING_TIME)
    store.current_key = "a"
    event.register(2**62)
    event.register(5)
    processing.register(7)
    store.current_key = "b"
    event.register(-3)
    store.end_epoch()

    timers = snapshots.load(snapshots.taken(store)).timers("op")

    assert sorted(timers) == [
        (("a", "event time"), 5),
        (("a", "event time"), 2**62),
        (("a", "processing time"), 7),
        (("b", "event time"), -3),
    ]
    assert timers.get("a") == [("event time", 5), ("event time", 2**62), ("processing time", 7)]
    assert timers.schema.names == ["key", "timestamp", "time_domain", "key_group"]
    assert sorted(timers.to_pandas()["timestamp"]) == [-3, 5, 7, 2**62]
    assert timers.count() == 4


@dataclass(frozen=True)
class Place:
    town: str
    number: int


class Pair(NamedTuple):
    name: str
    score: float | None


def test_classes_of_the_job_are_read_without_its_code(snapshots: Snapshots) -> None:
    store = snapshots.store(key_type=Place)
    held = {Place("north", number): Pair(f"n{number}", number / 2 if number else None) for number in range(20)}
    put(store, store.cells(cell("paired", Pair)), held)
    put_maps(store, store.maps(mapping("mapped", Place)), {Place("a", 1): {Place("b", 2): 3}})

    savepoint = snapshots.load(snapshots.taken(store))

    state = savepoint.keyed_state("op", "paired")
    assert state.schema.field("key").type == pa.struct([("town", pa.string()), ("number", pa.int64())])
    first = next(row for row in _rows(state) if row["key"]["number"] == 0)
    assert first["value"] == {"name": "n0", "score": None}
    assert state.get(Place("north", 3)) == state.get({"town": "north", "number": 3}) == ("n3", 1.5)
    assert len(list(state)) == state.count() == 20
    assert savepoint.keyed_state("op", "mapped").get(Place("a", 1)) == {("b", 2): 3}


def test_reading_one_key_group_reads_no_other(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)
    state = snapshots.load(snapshots.taken(store)).keyed_state("op", "count")
    group = state.key_group_of("k5")

    narrow = dict(state.of_key("k5"))

    assert "k5" in narrow
    assert all(state.key_group_of(key) == group for key in narrow)
    assert [(size.key_group, size.entries) for size in state.of_key("k5").key_groups()] == [(group, len(narrow))]
    assert state.of_key("k5").count() == len(narrow)


def test_of_a_file_with_more_key_groups_than_its_subtask_owns_only_those_are_read(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)
    whole = snapshots.taken(store)
    halves = [replace(whole, key_groups=owner(subtask, 2).key_groups) for subtask in range(2)]

    state = snapshots.load(*halves).keyed_state("op", "count")

    assert sorted(state) == sorted(HUNDRED.items())
    assert state.count() == sum(size.entries for size in state.key_groups()) == 100


class Model:
    """Kept pickled."""


def test_pickled_values_stay_bytes_unless_asked_for(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(cell("model", PickleType(Model))), {"a": Model()})

    savepoint = snapshots.load(snapshots.taken(store))

    assert isinstance(savepoint.keyed_state("op", "model").get("a"), bytes)
    assert isinstance(savepoint.keyed_state("op", "model", unpickle=True).get("a"), Model)
    assert savepoint.keyed_state("op", "model", unpickle=True).schema.field("value").type == pa.binary()
    assert isinstance(_rows(savepoint.keyed_state("op", "model", unpickle=True))[0]["value"], bytes)


def test_batches_have_at_most_the_rows_asked_for(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)
    state = snapshots.load(snapshots.taken(store)).keyed_state("op", "count")

    sizes = [batch.num_rows for batch in state.to_batches(batch_rows=7)]

    assert sum(sizes) == 100
    assert max(sizes) == 7
    with pytest.raises(UsageError):
        state.to_batches(batch_rows=0)


@pytest.mark.parametrize("damage", ["altered", "truncated", "gone"])
def test_a_damaged_file_is_an_error_that_names_it(snapshots: Snapshots, damage: str) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), {f"key {number}": number for number in range(5_000)})
    handle = snapshots.taken(store)
    savepoint = snapshots.load(handle)
    file = max(handle.files, key=lambda each: each.size)
    data = snapshots.files.read(file.path)
    if damage == "gone":
        snapshots.files.delete(file.path)
    else:
        snapshots.files.write(file.path, data[:-9] if damage == "truncated" else data[:100] + b"?" + data[101:])

    with pytest.raises(CheckpointDamagedError, match=file.path):
        list(savepoint.keyed_state("op", "count"))


def test_what_is_not_there_is_told_with_what_is(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)
    savepoint = snapshots.load(snapshots.taken(store))

    with pytest.raises(StateAccessError, match='Did you mean "op"'):
        savepoint.states("opp")
    with pytest.raises(StateAccessError, match='Did you mean "count"'):
        savepoint.keyed_state("op", "coutn")
    with pytest.raises(StateAccessError, match=r'"count" \(value\)'):
        savepoint.operator_state("op", "count")
    with pytest.raises(StateAccessError, match="no timers"):
        savepoint.timers("op")
    with pytest.raises(UsageError, match="is not of type str"):
        savepoint.keyed_state("op", "count").get(7)


def test_a_subtask_without_keys_has_nothing_to_read(snapshots: Snapshots) -> None:
    empty, full = snapshots.store(0, 2), snapshots.store(1, 2)
    own = [key for key in KEYS if GROUP_OF[key] in owner(1, 2).key_groups]
    empty.cells(COUNT)
    put(full, full.cells(COUNT), dict.fromkeys(own, 1))

    state = snapshots.load(snapshots.taken(empty), snapshots.taken(full)).keyed_state("op", "count")

    assert dict(state) == dict.fromkeys(own, 1)


def test_the_content_of_a_state_is_of_its_kind(snapshots: Snapshots) -> None:
    store = snapshots.store()
    put(store, store.cells(COUNT), HUNDRED)

    assert isinstance(snapshots.load(snapshots.taken(store)).content("op", "count"), KeyedState)


@pytest.mark.parametrize("digits", ["1E+50", "1E-30"])
def test_a_key_that_no_record_can_have_is_refused(snapshots: Snapshots, digits: str) -> None:
    store = snapshots.store(key_type=Decimal)
    put(store, store.cells(COUNT), {Decimal("1.50"): 1})
    state = snapshots.load(snapshots.taken(store)).keyed_state("op", "count")

    assert state.get(Decimal("1.5")) == 1
    with pytest.raises(UsageError, match="is not of type"):
        state.get(Decimal(digits))
