from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.unit.state.plain_store import PlainStore, keyed_state

from checkdam.errors import StateAccessError
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
)
from checkdam.state.handles import AggregatingState, ListState, MapState, ReducingState
from checkdam.state.ttl import StateTtlConfig
from checkdam.types.hints import PickleType


@pytest.fixture
def store() -> PlainStore:
    return PlainStore()


@pytest.fixture
def a_list(store: PlainStore) -> ListState[int]:
    return keyed_state(store).get_list_state(ListStateDescriptor("numbers", int))


@pytest.fixture
def a_map(store: PlainStore) -> MapState[str, int]:
    return keyed_state(store).get_map_state(MapStateDescriptor("counts", str, int))


def reducing(of: Any, reduce: Any) -> ReducingState[Any]:
    return keyed_state(PlainStore()).get_reducing_state(ReducingStateDescriptor("total", of, reduce))


class TestLists:
    def test_elements_come_in_the_order_they_were_added(self, a_list: ListState[int]) -> None:
        a_list.add(3)
        a_list.add_all([1, 2])
        a_list.add(3)

        assert a_list.get() == list(a_list) == [3, 1, 2, 3]

    def test_each_key_has_its_own_list(self, store: PlainStore, a_list: ListState[int]) -> None:
        a_list.add(1)
        store.current_key = "other"
        a_list.add(2)

        assert a_list.get() == [2]

    def test_a_key_without_elements_reads_an_empty_list(self, a_list: ListState[int]) -> None:
        assert a_list.get() == []

    def test_update_replaces_the_list_and_an_empty_one_clears_it(
        self, store: PlainStore, a_list: ListState[int]
    ) -> None:
        a_list.add(1)
        a_list.update(iter([5, 6]))
        assert a_list.get() == [5, 6]

        a_list.update([])

        assert store.states["numbers"].entries == {}

    def test_changing_what_get_returned_or_update_was_given_changes_nothing(self, a_list: ListState[int]) -> None:
        given = [1]
        a_list.update(given)

        given.append(2)
        a_list.get().append(3)

        assert a_list.get() == [1]

    def test_a_list_may_grow_while_it_is_read(self, a_list: ListState[int]) -> None:
        a_list.update([1, 2])

        for element in a_list:
            a_list.add(element)

        assert a_list.get() == [1, 2, 1, 2]

    def test_adding_nothing_leaves_no_trace(self, store: PlainStore, a_list: ListState[int]) -> None:
        a_list.add_all([])

        assert store.states["numbers"].entries == {}

    @pytest.mark.parametrize(
        "write",
        [lambda state: state.add(None), lambda state: state.add_all([1, None]), lambda state: state.update([None])],
    )
    def test_none_is_no_element_and_the_list_stays_as_it_was(
        self, a_list: ListState[int], write: Callable[[Any], None]
    ) -> None:
        a_list.add(7)

        with pytest.raises(StateAccessError, match='an element for list state "numbers" of operator "op" was None'):
            write(a_list)

        assert a_list.get() == [7]

    def test_elements_with_an_equality_of_their_own_are_taken(self, store: PlainStore) -> None:
        state = keyed_state(store).get_list_state(ListStateDescriptor("arrays", PickleType(np.ndarray)))

        state.add_all([np.array([1, 2])])  # `None in values` would ask the array whether it equals None

        assert len(state.get()) == 1

    def test_clear_forgets_the_list_of_the_current_key_only(self, store: PlainStore, a_list: ListState[int]) -> None:
        a_list.add(1)
        store.current_key = "other"
        a_list.add(2)

        a_list.clear()

        assert store.states["numbers"].entries == {"k": [1]}


class Pair(NamedTuple):
    name: str
    number: int


@dataclass
class Tally:
    count: int


class TestReductions:
    def test_added_values_are_reduced_into_one(self) -> None:
        state = reducing(int, lambda kept, added: kept * 10 + added)
        assert state.get() is None

        for digit in (1, 2, 3):
            state.add(digit)

        assert state.get() == 123

    def test_a_reduce_function_object_works_too(self) -> None:
        class Larger:
            def reduce(self, kept: int, added: int) -> int:
                return max(kept, added)

        state = reducing(int, Larger())
        state.add(5)
        state.add(2)

        assert state.get() == 5

    def test_after_clear_the_next_value_is_the_first(self) -> None:
        state = reducing(int, lambda kept, added: kept + added)
        state.add(5)

        state.clear()
        state.add(1)

        assert state.get() == 1

    @pytest.mark.parametrize(
        ("of", "good", "bad"),
        [
            (int, 1, "1"),
            (int, 1, True),
            (int, 1, 1.0),
            (bool, True, 1),
            (str, "a", b"a"),
            (datetime, datetime(2024, 1, 1), "2024-01-01T00:00:00"),  # noqa: DTZ001
            (tuple[str, int], ("a", 1), ("a", "1")),
            (tuple[str, int], ("a", 1), ["a", 1]),
            (tuple[str, int], ("a", 1), ("a",)),
            (Pair, Pair("a", 1), Pair("a", "1")),  # type: ignore[arg-type]
            (Tally, Tally(1), {"count": 1}),
            (Tally, Tally(1), Tally("1")),  # type: ignore[arg-type]
            (list[int], [1], (1,)),
            (int, 1, None),
        ],
    )
    def test_a_function_that_returns_another_type_is_named_and_changes_nothing(
        self, of: Any, good: Any, bad: Any
    ) -> None:
        state = reducing(of, lambda kept, added: bad)
        state.add(good)

        with pytest.raises(StateAccessError) as caught:
            state.add(good)

        assert caught.value.message.startswith(
            'the result of the function of reducing state "total" of operator "op" must be of type'
        )
        assert ("None" if bad is None else type(bad).__name__) in caught.value.message
        assert state.get() == good

    @pytest.mark.parametrize("bad", ["1", None, 1.5])
    def test_the_first_value_must_be_of_the_type(self, bad: Any) -> None:
        state = reducing(int, lambda kept, added: kept)

        with pytest.raises(StateAccessError, match='a value added to reducing state "total" of operator "op" must be'):
            state.add(bad)

        assert state.get() is None

    def test_none_is_never_handed_to_the_function(self) -> None:
        state = reducing(int, lambda kept, added: kept)
        state.add(1)

        with pytest.raises(StateAccessError, match="but was None"):
            state.add(None)

    @pytest.mark.parametrize(
        ("of", "first", "result"),
        [
            (int, 1, np.int64(7)),
            (float, 1.0, 7),
            (Pair, Pair("a", 1), ("a", 2)),
            (tuple[str, int | None], ("a", 1), ("a", None)),
        ],
    )
    def test_what_the_serializer_takes_for_the_type_is_taken(self, of: Any, first: Any, result: Any) -> None:
        state = reducing(of, lambda kept, added: result)
        state.add(first)

        state.add(first)

        assert state.get() == result


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class TestAggregates:
    def aggregating(self, aggregate: Any) -> AggregatingState[Any, Any]:
        descriptor = AggregatingStateDescriptor("average", tuple[int, int], aggregate)
        return keyed_state(PlainStore()).get_aggregating_state(descriptor)

    def test_the_result_may_have_another_type_than_values_and_accumulator(self) -> None:
        state = self.aggregating(Average())
        assert state.get() is None

        state.add(1)
        state.add(2)

        assert state.get() == 1.5

    def test_after_clear_it_starts_with_a_new_accumulator(self) -> None:
        state = self.aggregating(Average())
        state.add(100)

        state.clear()
        assert state.get() is None
        state.add(1)

        assert state.get() == 1.0

    @pytest.mark.parametrize("bad", [None, 3, ("a", 1)])
    def test_an_accumulator_of_another_type_is_named(self, bad: Any) -> None:
        class Forgetful(Average):
            def add(self, value: Any, accumulator: tuple[int, int]) -> Any:
                return bad

        with pytest.raises(
            StateAccessError, match=r'merge\(\) returns for aggregating state "average" of operator "op"'
        ):
            self.aggregating(Forgetful()).add(1)


class TestMaps:
    def test_it_is_a_mutable_mapping(self, a_map: MapState[str, int]) -> None:
        assert isinstance(a_map, MutableMapping)
        assert not a_map
        a_map["a"] = 1
        a_map.put("b", 2)
        a_map.put_all({"c": 3})
        a_map.update([("d", 4)], e=5)

        assert a_map == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
        assert a_map != {"a": 1}
        assert len(a_map) == 5
        assert set(a_map) == set(a_map.keys()) == set("abcde")
        assert sorted(a_map.values()) == [1, 2, 3, 4, 5]
        assert dict(a_map.items()) == dict(a_map)
        assert a_map["a"] == a_map.get("a") == 1
        assert ("a", 1) in a_map.items()
        assert ("a", 2) not in a_map.items()
        assert 5 in a_map.values()
        assert 6 not in a_map.values()
        assert a_map.keys() & {"a", "z"} == {"a"}
        assert "a" in a_map
        assert a_map.contains("a")
        assert a_map

    def test_a_missing_key_reads_as_none_or_a_key_error(self, a_map: MapState[str, int]) -> None:
        assert a_map.get("a") is None
        assert a_map.get("a", 7) == 7
        assert "a" not in a_map
        with pytest.raises(KeyError, match="a"):
            a_map["a"]
        with pytest.raises(KeyError, match="a"):
            del a_map["a"]
        with pytest.raises(KeyError, match="a"):
            a_map.pop("a")
        with pytest.raises(KeyError, match="empty"):
            a_map.popitem()
        assert a_map.pop("a", None) is None
        a_map.remove("a")

    def test_entries_leave_one_by_one(self, a_map: MapState[str, int]) -> None:
        a_map.update(a=1, b=2, c=3, d=4)

        del a_map["a"]
        assert a_map.pop("b") == 2
        a_map.remove("c")

        assert a_map.popitem() == ("d", 4)
        assert a_map.is_empty()

    def test_setdefault_keeps_what_is_there(self, a_map: MapState[str, int]) -> None:
        assert a_map.setdefault("a", 1) == 1
        assert a_map.setdefault("a", 2) == 1
        with pytest.raises(StateAccessError, match="was None"):
            a_map.setdefault("b")  # type: ignore[call-arg]  # as a dict would

    def test_falsy_values_are_values(self, a_map: MapState[str, int]) -> None:
        a_map["a"] = 0

        assert "a" in a_map
        assert a_map.setdefault("a", 1) == a_map.get("a", 1) == a_map.pop("a") == 0

    def test_each_key_has_its_own_map(self, store: PlainStore, a_map: MapState[str, int]) -> None:
        a_map["a"] = 1
        store.current_key = "other"
        assert a_map.is_empty()
        a_map["b"] = 2

        a_map.clear()

        assert a_map == {}
        store.current_key = "k"
        assert a_map == {"a": 1}

    @pytest.mark.parametrize("view", ["keys", "values", "items"])
    def test_a_map_may_change_while_it_is_iterated(self, a_map: MapState[str, int], view: str) -> None:
        a_map.update(a=1, b=2, c=3)
        met = []

        for each in getattr(a_map, view)():
            met.append(each)
            a_map.clear()
            a_map["new"] = 9

        assert met[0] in ("a", 1, ("a", 1))
        assert a_map == {"new": 9}

    def test_is_empty_and_truth_do_not_read_the_entries(self, store: PlainStore, a_map: MapState[str, int]) -> None:
        a_map.update(a=1, b=2)

        assert not a_map.is_empty()
        assert a_map

        assert store.states["counts"].items_read == 0

    def test_one_entry_is_read_and_written_without_the_rest(self, store: PlainStore, a_map: MapState[str, int]) -> None:
        a_map.update(a=1, b=2)

        a_map["a"] += 1
        a_map.pop("b")
        a_map.setdefault("c", 1)

        assert store.states["counts"].items_read == 0

    @pytest.mark.parametrize(
        "use",
        [
            lambda state, key: state[key],
            lambda state, key: state.get(key),
            lambda state, key: key in state,
            lambda state, key: state.contains(key),
            lambda state, key: state.put(key, 1),
            lambda state, key: state.update({key: 1}),
            lambda state, key: state.setdefault(key, 1),
            lambda state, key: state.remove(key),
            lambda state, key: state.pop(key, None),
            lambda state, key: state.__delitem__(key),
        ],
    )
    @pytest.mark.parametrize("key", [1, b"a", None, True, ("a",)])
    def test_a_key_of_another_type_is_an_error_wherever_it_is_given(
        self, a_map: MapState[str, int], use: Callable[[Any, Any], Any], key: Any
    ) -> None:
        with pytest.raises(StateAccessError, match='a key of map state "counts" of operator "op" must be of type str'):
            use(a_map, key)

    @pytest.mark.parametrize(
        ("of", "good", "bad"),
        [
            (int, np.int64(3), True),
            (float, 1, "1"),
            (tuple[str, int], ("a", 1), ["a", 1]),
            (tuple[str, int], Pair("a", 1), ("a", "1")),
            (tuple[tuple[int], int], ((1,), 2), ([1], 2)),
            (int | None, None, "a"),
            (None, None, 1),
        ],
    )
    def test_keys_fit_as_the_serializer_sees_it_if_they_can_be_hashed(self, of: Any, good: Any, bad: Any) -> None:
        state = keyed_state(PlainStore()).get_map_state(MapStateDescriptor("by key", of, int))

        state[good] = 1

        assert state[good] == 1
        with pytest.raises(StateAccessError, match="must be of type"):
            state.get(bad)

    def test_none_is_no_value(self, a_map: MapState[str, Any]) -> None:
        a_map["a"] = 1

        with pytest.raises(StateAccessError, match='a value for map state "counts" of operator "op" was None'):
            a_map["a"] = None

        assert a_map["a"] == 1

    @pytest.mark.parametrize("ttl", [None, StateTtlConfig(timedelta(hours=1))])
    def test_a_map_of_optional_values_tells_none_from_no_entry(self, ttl: StateTtlConfig | None) -> None:
        state = keyed_state(PlainStore()).get_map_state(MapStateDescriptor("by key", str, str | None, ttl))
        state["a"] = None
        state.update({"b": "x", "c": None, "d": None})

        assert (state["a"], state.get("a", "y"), "a" in state) == (None, None, True)
        assert (state.get("z", "y"), "z" in state, len(state)) == ("y", False, 4)
        assert (state.pop("c"), state.setdefault("d", "y"), state.setdefault("e")) == (None, None, None)
        assert dict(state.items()) == {"a": None, "b": "x", "d": None, "e": None}
        assert list(state.values()) == [None, "x", None, None]
        del state["a"], state["b"], state["d"]
        assert state.popitem() == ("e", None)
        with pytest.raises(KeyError):
            state["a"]
        with pytest.raises(StateAccessError, match="must be of type"):
            state["a"] = 1

    @pytest.mark.parametrize("ttl", [None, StateTtlConfig(timedelta(hours=1))])
    def test_a_list_of_optional_elements_holds_none(self, ttl: StateTtlConfig | None) -> None:
        state = keyed_state(PlainStore()).get_list_state(ListStateDescriptor("all", str | None, ttl))

        state.add(None)
        state.add_all(["a", None])

        assert state.get() == [None, "a", None]


def _tally_class() -> type:
    """A class as the job file defines it, once in each process that runs the file."""
    tally = type("Tally", (), {"count": 0})
    tally.__module__, tally.__qualname__ = "__main__", "Tally"
    return tally


def test_a_pickled_value_of_the_class_of_an_earlier_process_is_of_the_declared_class() -> None:
    restored, declared = _tally_class()(), _tally_class()
    total = reducing(PickleType(declared), lambda one, other: one)
    total.add(restored)
    total.add(restored)

    assert total.get() is restored
