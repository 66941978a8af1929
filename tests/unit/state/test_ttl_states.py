from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.state.plain_store import PlainStore, RecordTime, keyed_state

from checkdam.errors import ConfigError, StateAccessError
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.stored import as_of_now, in_bulk, shortened
from checkdam.state.ttl import (
    Cleanup,
    CleanupIncrementally,
    StateTtlConfig,
    TtlTime,
    TtlUpdateType,
    TtlVisibility,
)
from checkdam.state.ttl_states import Expiry, fresh_element, fresh_elements

LIFE = 1000
READ_TOUCHES = TtlUpdateType.ON_READ_AND_WRITE
WRITE_TOUCHES = TtlUpdateType.ON_CREATE_AND_WRITE
SHOWS_EXPIRED = TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Subject:
    """One state of any kind with TTL, and the same few words for all: write, read."""

    def __init__(self, kind: str, **options: Any) -> None:
        cleanup: tuple[Cleanup, ...] | None = options.pop("cleanup", None)
        ttl = StateTtlConfig(timedelta(milliseconds=LIFE), cleanup=cleanup, **options)
        self.store = PlainStore()
        self.time = RecordTime()
        self.keyed = keyed_state(self.store, self.time)
        self.state: Any = _ASK[kind](self.keyed, ttl)
        self.write: Callable[[], None] = lambda: _WRITE[kind](self.state)
        self.read: Callable[[], Any] = lambda: _READ[kind](self.state)

    @property
    def stored(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self.store.states["s"].entries
        return found


_ASK: dict[str, Callable[[Any, StateTtlConfig], Any]] = {
    "value": lambda keyed, ttl: keyed.get_state(ValueStateDescriptor("s", int, ttl=ttl)),
    "list": lambda keyed, ttl: keyed.get_list_state(ListStateDescriptor("s", int, ttl)),
    "reducing": lambda keyed, ttl: keyed.get_reducing_state(ReducingStateDescriptor("s", int, int.__add__, ttl)),
    "aggregating": lambda keyed, ttl: keyed.get_aggregating_state(AggregatingStateDescriptor("s", int, Sum(), ttl)),
    "map": lambda keyed, ttl: keyed.get_map_state(MapStateDescriptor("s", str, int, ttl)),
}
_WRITE: dict[str, Callable[[Any], None]] = {
    "value": lambda state: state.update(5),
    "list": lambda state: state.update([5]),
    "reducing": lambda state: state.add(5),
    "aggregating": lambda state: state.add(5),
    "map": lambda state: state.put("a", 5),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "value": lambda state: state.value(),
    "list": lambda state: (state.get() or [None])[0],
    "reducing": lambda state: state.get(),
    "aggregating": lambda state: state.get(),
    "map": lambda state: state.get("a"),
}
KINDS = list(_ASK)
each_kind = pytest.mark.parametrize("kind", KINDS)


class TestProcessingTime:
    @each_kind
    def test_an_element_lives_for_its_time_and_not_a_millisecond_longer(self, kind: str) -> None:
        of = Subject(kind)
        of.write()

        of.time.advance(LIFE - 1)
        assert of.read() == 5
        of.time.advance(1)

        assert of.read() is None

    @each_kind
    def test_an_expired_element_is_removed_by_the_read_that_meets_it(self, kind: str) -> None:
        of = Subject(kind)
        of.write()
        of.time.advance(LIFE)
        assert of.stored

        of.read()

        assert of.stored == {}

    @each_kind
    def test_a_write_makes_it_young(self, kind: str) -> None:
        of = Subject(kind)
        of.write()
        of.time.advance(LIFE - 1)
        of.write()

        of.time.advance(LIFE - 1)

        assert of.read() in (5, 10)

    @each_kind
    def test_with_on_create_and_write_a_read_does_not(self, kind: str) -> None:
        of = Subject(kind, update_type=WRITE_TOUCHES)
        of.write()
        of.time.advance(LIFE - 1)
        of.read()

        of.time.advance(1)

        assert of.read() is None

    @each_kind
    def test_with_on_read_and_write_a_read_does_too(self, kind: str) -> None:
        of = Subject(kind, update_type=READ_TOUCHES)
        of.write()
        of.time.advance(LIFE - 1)
        of.read()

        of.time.advance(LIFE - 1)

        assert of.read() == 5

    @each_kind
    @pytest.mark.parametrize("update", list(TtlUpdateType))
    def test_an_expired_element_may_be_shown_once_and_is_dropped_by_that(
        self, kind: str, update: TtlUpdateType
    ) -> None:
        of = Subject(kind, visibility=SHOWS_EXPIRED, update_type=update)
        of.write()
        of.time.advance(10 * LIFE)

        assert [of.read(), of.read()] == [5, None]
        assert of.stored == {}

    @each_kind
    def test_an_expired_element_that_was_not_read_is_shown_until_it_is_cleaned_up(self, kind: str) -> None:
        of = Subject(kind, visibility=SHOWS_EXPIRED)
        of.write()
        of.time.advance(10 * LIFE)

        of.store.states["s"].sweep(1)

        assert of.read() is None

    def test_with_ttl_a_default_has_no_effect(self) -> None:
        store, time = PlainStore(), RecordTime()
        ttl = StateTtlConfig(timedelta(milliseconds=LIFE))
        state = keyed_state(store, time).get_state(ValueStateDescriptor("s", int, default=7, ttl=ttl))
        assert state.value() is None
        state.update(1)
        assert state.value() == 1

        time.advance(LIFE)

        assert state.value() is None

    def test_a_value_updated_with_none_is_cleared(self) -> None:
        of = Subject("value")
        of.write()

        of.state.update(None)

        assert of.stored == {}

    @pytest.mark.parametrize(("visibility", "total"), [(TtlVisibility.NEVER_RETURN_EXPIRED, 5), (SHOWS_EXPIRED, 10)])
    @pytest.mark.parametrize("kind", ["reducing", "aggregating"])
    def test_values_are_added_to_what_a_read_would_show(self, kind: str, visibility: TtlVisibility, total: int) -> None:
        of = Subject(kind, visibility=visibility)
        of.write()
        of.time.advance(LIFE)

        of.write()

        assert of.read() == total


class TestPerElement:
    def test_the_elements_of_a_list_expire_one_by_one(self) -> None:
        of = Subject("list")
        of.state.add(1)
        of.time.advance(400)
        of.state.add_all([2, 3])
        of.time.advance(600)

        assert of.state.get() == list(of.state) == [2, 3]
        assert [element for element, _ in of.stored["k"]] == [2, 3]

    def test_a_read_touches_every_element_of_a_list_that_has_not_expired(self) -> None:
        of = Subject("list", update_type=READ_TOUCHES, visibility=SHOWS_EXPIRED)
        of.state.add(1)
        of.time.advance(LIFE)
        of.state.add(2)
        of.time.advance(LIFE - 1)
        assert of.state.get() == [1, 2]

        of.time.advance(1)

        assert of.state.get() == [2]

    def test_a_list_that_is_shown_expired_is_dropped_when_all_of_it_has_expired(self) -> None:
        of = Subject("list", visibility=SHOWS_EXPIRED)
        of.state.add(1)
        of.time.advance(LIFE)
        of.state.add(2)
        assert [of.state.get(), of.state.get()] == [[1, 2], [1, 2]]

        of.time.advance(LIFE)

        assert [of.state.get(), of.state.get()] == [[1, 2], []]

    def test_a_list_read_twice_at_one_time_is_written_once(self) -> None:
        of = Subject("list", update_type=READ_TOUCHES)
        of.state.add(1)
        of.time.advance(1)
        of.state.get()
        writes = of.store.states["s"].writes

        of.state.get()

        assert of.store.states["s"].writes == writes

    @pytest.mark.parametrize(
        "write",
        [lambda state: state.add(None), lambda state: state.add_all([1, None]), lambda state: state.update([None])],
    )
    def test_none_is_no_element(self, write: Callable[[Any], None]) -> None:
        with pytest.raises(StateAccessError, match="was None"):
            write(Subject("list").state)

    def test_the_entries_of_a_map_expire_one_by_one(self) -> None:
        of = Subject("map")
        of.state["a"] = 1
        of.time.advance(400)
        of.state["b"] = 2
        assert len(of.state) == 2
        of.time.advance(600)

        assert of.state == {"b": 2}
        assert len(of.state) == 1
        assert "a" not in of.state
        with pytest.raises(KeyError):
            of.state["a"]

    def test_a_map_of_expired_entries_is_empty(self) -> None:
        of = Subject("map")
        of.state["a"] = 1
        assert not of.state.is_empty()
        of.time.advance(LIFE)

        assert of.state.is_empty()
        assert not of.state
        assert of.state.pop("a", None) is None

    def test_a_map_may_count_expired_entries_that_are_not_cleaned_up(self) -> None:
        of = Subject("map", visibility=SHOWS_EXPIRED)
        of.state["a"] = 1
        of.time.advance(LIFE)

        assert not of.state.is_empty()
        assert len(of.state) == 1
        assert list(of.state.items()) == [("a", 1)]
        assert of.state.is_empty()

    def test_a_question_whether_a_map_has_an_expired_entry_reads_and_drops_it(self) -> None:
        of = Subject("map", visibility=SHOWS_EXPIRED)
        of.state.update(a=1, b=2)
        of.time.advance(LIFE)

        assert ["a" in of.state, "a" in of.state] == [True, False]
        assert [of.state.get("b"), of.state.get("b")] == [2, None]

    def test_a_read_touches_only_the_entry_that_it_reads(self) -> None:
        of = Subject("map", update_type=READ_TOUCHES)
        of.state.update(a=1, b=2)
        of.time.advance(LIFE - 1)
        assert "a" in of.state

        of.time.advance(1)

        assert dict(of.state.items()) == {"a": 1}

    @pytest.mark.parametrize("view", ["keys", "values", "items"])
    def test_iteration_touches_what_it_yields(self, view: str) -> None:
        of = Subject("map", update_type=READ_TOUCHES)
        of.state.update(a=1, b=2)
        of.time.advance(LIFE - 1)
        next(iter(getattr(of.state, view)()))

        of.time.advance(1)

        assert of.state == {"a": 1}

    def test_counting_touches_nothing(self) -> None:
        of = Subject("map", update_type=READ_TOUCHES)
        of.state["a"] = 1
        of.time.advance(LIFE - 1)
        assert (len(of.state), of.state.is_empty(), bool(of.state)) == (1, False, True)

        of.time.advance(1)

        assert of.state == {}

    def test_iteration_neither_brings_back_nor_drops_what_changed_meanwhile(self) -> None:
        of = Subject("map", update_type=READ_TOUCHES)
        of.state.update(a=1, b=2, c=3)
        of.time.advance(1)

        for key in of.state:
            if key == "a":
                del of.state["b"]
                of.state["c"] = 30

        assert of.state == {"a": 1, "c": 30}

    def test_iteration_does_not_drop_an_expired_entry_that_was_written_anew(self) -> None:
        of = Subject("map")
        of.state.update(b=1)
        of.time.advance(LIFE - 1)
        of.state.update(a=1)
        of.store.states["s"].entries = dict(sorted(of.stored.items()))
        of.time.advance(1)

        for key in of.state:
            if key == "a":
                of.state["b"] = 2

        assert of.state == {"a": 1, "b": 2}

    @pytest.mark.parametrize("value", [5, None])
    def test_setdefault_reads_an_expired_entry_of_an_optional_type_once(self, value: int | None) -> None:
        time = RecordTime()
        ttl = StateTtlConfig(timedelta(milliseconds=LIFE), visibility=SHOWS_EXPIRED)
        state = keyed_state(PlainStore(), time).get_map_state(MapStateDescriptor("s", str, int | None, ttl))
        state["a"] = value
        time.advance(LIFE)

        assert [state.setdefault("a", 7), state.setdefault("a", 7)] == [value, 7]


class TestEventTime:
    @each_kind
    def test_an_element_lives_until_the_watermark_is_its_time_past_the_record(self, kind: str) -> None:
        of = Subject(kind, time=TtlTime.EVENT_TIME)
        of.time.timestamp = 5000
        of.write()
        of.time.advance(100 * LIFE)  # the clock does not count

        of.time.watermark = 5000 + LIFE - 1
        assert of.read() == 5
        of.time.watermark += 1

        assert of.read() is None
        assert of.stored == {}

    @each_kind
    def test_before_there_is_a_watermark_nothing_expires(self, kind: str) -> None:
        of = Subject(kind, time=TtlTime.EVENT_TIME)
        of.time.timestamp = -(2**60)

        of.write()

        assert of.read() == 5

    @pytest.mark.parametrize("kind", ["value", "reducing", "aggregating", "map"])
    def test_a_late_record_does_not_make_an_element_older(self, kind: str) -> None:
        of = Subject(kind, time=TtlTime.EVENT_TIME)
        of.time.timestamp = 5000
        of.write()
        of.time.timestamp = 3000
        of.write()

        of.time.watermark = 5000 + LIFE - 1

        assert of.read() in (5, 10)

    @each_kind
    def test_a_read_touches_at_the_timestamp_of_its_record(self, kind: str) -> None:
        of = Subject(kind, time=TtlTime.EVENT_TIME, update_type=READ_TOUCHES)
        of.time.timestamp = 5000
        of.write()
        for of.time.timestamp in (7000, 6000, None):  # a late one, and none at all, change nothing
            assert of.read() == 5

        of.time.watermark = 7000 + LIFE - 1
        assert of.read() == 5
        of.time.watermark += 1

        assert of.read() is None

    @each_kind
    def test_a_write_without_a_timestamp_is_a_clear_error(self, kind: str) -> None:
        of = Subject(kind, time=TtlTime.EVENT_TIME)

        with pytest.raises(StateAccessError, match='"s" of operator "op" expires by event time') as caught:
            of.write()

        assert "Assign timestamps" in str(caught.value)
        assert of.stored == {}


class TestCleanup:
    @each_kind
    def test_every_access_sweeps_as_many_entries_as_asked_for(self, kind: str) -> None:
        of = Subject(kind, cleanup=(CleanupIncrementally(7),))
        of.write()
        of.read()
        of.state.clear()

        assert of.store.states["s"].sweeps == [7, 7, 7]

    @each_kind
    def test_expired_entries_of_other_keys_leave_that_way(self, kind: str) -> None:
        of = Subject(kind, cleanup=(CleanupIncrementally(3),))
        for of.store.current_key in "abc":
            of.write()
        of.time.advance(LIFE)
        of.store.current_key = "d"

        of.read()

        assert of.stored == {}

    @each_kind
    def test_without_incremental_cleanup_nothing_is_swept(self, kind: str) -> None:
        of = Subject(kind, cleanup=None)
        of.write()
        of.read()
        of.state.clear()

        assert of.store.states["s"].sweeps == []

    @each_kind
    def test_what_may_still_be_seen_is_read_before_it_is_swept(self, kind: str) -> None:
        of = Subject(kind, visibility=SHOWS_EXPIRED, cleanup=(CleanupIncrementally(1),))
        of.write()
        of.time.advance(LIFE)

        assert [of.read(), of.read()] == [5, None]

    def test_iterating_a_map_counts_as_one_access(self) -> None:
        of = Subject("map", cleanup=(CleanupIncrementally(7),))
        of.state.update(a=1, b=2)
        of.store.states["s"].sweeps.clear()

        assert sorted(of.state) == ["a", "b"]

        assert of.store.states["s"].sweeps == [7]

    @each_kind
    def test_a_state_that_asks_for_it_is_swept_with_every_record(self, kind: str) -> None:
        of = Subject(kind, cleanup=(CleanupIncrementally(2, run_for_every_record=True),))
        of.write()
        of.time.advance(LIFE)
        sweep = of.keyed.for_every_record()
        assert sweep is not None

        sweep()

        assert of.stored == {}

    @each_kind
    def test_one_that_does_not_ask_costs_a_record_nothing(self, kind: str) -> None:
        assert Subject(kind, cleanup=(CleanupIncrementally(2),)).keyed.for_every_record() is None


class TestExpiry:
    def test_an_element_is_kept_as_the_same_object_or_not_at_all(self) -> None:
        fresh, old = ("a", 11), ("b", 10)

        assert fresh_element(fresh, 10) is fresh
        assert fresh_element(old, 10) is None

    def test_a_list_loses_what_has_expired(self) -> None:
        fresh = [("a", 11), ("b", 12)]

        assert fresh_elements(fresh, 10) is fresh
        assert fresh_elements(fresh, 11) == [("b", 12)]
        assert fresh_elements(fresh, 12) is None
        assert fresh == [("a", 11), ("b", 12)]

    def test_a_stopped_clock_does_not_see_time_move_on(self) -> None:
        now = [10]
        expiry = Expiry(lambda: now[0], fresh_element)
        stopped = as_of_now(expiry)

        now[0] = 20

        assert stopped(("a", 15)) == ("a", 15)
        assert expiry(("a", 15)) is None

    def test_in_bulk_the_time_is_asked_for_once_in_so_many_elements(self) -> None:
        asked = []
        expiry = Expiry(lambda: asked.append(1) or len(asked), fresh_element)  # type: ignore[func-returns-value]

        prune = in_bulk(expiry, 100)
        for _ in range(250):
            prune(("a", 1000))

        assert len(asked) == 3

    def test_a_shortened_life_ends_earlier_by_so_much(self) -> None:
        now = [10]
        shorter = shortened(Expiry(lambda: now[0], fresh_element), 5)

        assert (shorter(("a", 15)), shorter(("a", 16))) == (None, ("a", 16))
        now[0] = 11
        assert shorter(("a", 16)) is None

    def test_a_prune_without_a_clock_is_used_as_it_is(self) -> None:
        def prune(stored: Any) -> Any:
            return stored

        assert as_of_now(prune) is prune
        assert in_bulk(prune, 10) is prune
        assert shortened(prune, 10) is prune


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("update_type", "ON_READ_AND_WRITE"),
        ("visibility", TtlUpdateType.ON_READ_AND_WRITE),
        ("time", "event time"),
        ("time", None),
    ],
)
def test_a_choice_that_is_none_of_its_enum_is_refused(option: str, wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        StateTtlConfig(timedelta(seconds=1), **{option: wrong})

    assert f"{option} of a time to live" in str(caught.value)
    assert f"{option}=Ttl" in str(caught.value.hint)
