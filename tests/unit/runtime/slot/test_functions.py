"""Functions at work: what each kind of operator makes of its records, with timestamps, side outputs and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.unit.runtime.slot.one_operator import OneOperator

from checkdam.backends.hashmap.hashmap_store import HashMapStore
from checkdam.errors import JobGraphError, StateAccessError, UserFunctionError
from checkdam.graph.contexts import OutputTag, ProcessContext, RuntimeContext, SinkContext
from checkdam.graph.functions import (
    DiscardingSink,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SinkFunction,
)
from checkdam.graph.operators import (
    ConnectKind,
    FilterKind,
    FlatMapKind,
    Kind,
    MapKind,
    Operator,
    ProcessKind,
    SinkFunctionKind,
)
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.ids import CheckpointId
from checkdam.runtime.slot.plain_functions import ColumnMap
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.ttl import CleanupIncrementally, StateTtlConfig, TtlTime
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import type_info

LONG = OutputTag("long", str)


def letters(word: str) -> Iterator[str] | None:
    return iter(word) if word != "none" else None


class Process(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        yield from value


class Keyed(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        yield from value


EXPANDING: dict[str, tuple[Kind, Any, list[str], list[int]]] = {
    "map": (MapKind(str.upper), None, ["AB", "", "C"], [1, 2, 3]),
    "flat_map": (FlatMapKind(letters), None, ["a", "b", "c"], [1, 1, 3]),
    "filter": (FilterKind(bool), None, ["ab", "c"], [1, 3]),
    "process": (ProcessKind(Process()), None, ["a", "b", "c"], [1, 1, 3]),
    "keyed process": (ProcessKind(Keyed()), str, ["a", "b", "c"], [1, 1, 3]),
}


@pytest.mark.parametrize("case", EXPANDING)
def test_each_kind_gives_what_its_function_says(case: str) -> None:
    kind, key, expected, _ = EXPANDING[case]

    batch = OneOperator(kind, key=key).give_batch(["ab", "", "c"])

    assert batch is not None
    assert batch.rows == expected
    assert batch.timestamps is None


@pytest.mark.parametrize("case", EXPANDING)
def test_what_a_record_gives_has_the_records_timestamp(case: str) -> None:
    kind, key, expected, timestamps = EXPANDING[case]

    batch = OneOperator(kind, key=key).give_batch(["ab", "", "c"], timestamps=[1, 2, 3])

    assert batch is not None
    assert batch.rows == expected
    assert batch.timestamps == timestamps


class Visit(NamedTuple):
    who: str
    seconds: int | None
    at: tuple[str, int]


VISITS = [Visit("a", 1, ("x", 2)), Visit("b", None, ("y", 3))]
PICKS: dict[str, tuple[Callable[[Visit], Any], Any]] = {
    "a field": (lambda visit: visit.who, str),
    "a field with None": (lambda visit: visit[1], int | None),
    "a tuple": (lambda visit: (visit.seconds, visit.who, visit.who), tuple[int | None, str, str]),
    "constants": (lambda visit: (visit.at, 7, "x", True), tuple[tuple[str, int], int, str, bool]),
    "the record": (lambda visit: visit, Visit),
}


def _map(function: Callable[[Any], Any], of: Any) -> ColumnMap:
    return ColumnMap(Operator(1, "it", MapKind(function), (0,), type_info(of)), function)


@pytest.mark.parametrize("case", PICKS)
def test_a_map_that_picks_fields_keeps_columns(case: str) -> None:
    function, of = PICKS[case]
    columns = to_arrow(type_info(Visit), VISITS)

    batch = _map(function, of)(Batch(type_info(Visit), columns=columns, timestamps=[5, None]), None)

    assert not batch.has_rows
    assert batch.timestamps == [5, None]
    assert batch.columns.schema == type_info(of).arrow_schema
    assert batch.rows == [function(visit) for visit in VISITS]


CALLED: dict[str, tuple[Callable[[Visit], Any], Any]] = {
    "another type": (lambda visit: visit.seconds, float | None),
    "a field with fields": (lambda visit: visit.at, tuple[str, int]),
    "a computation": (lambda visit: visit.who.upper(), str),
}


@pytest.mark.parametrize("case", CALLED)
def test_a_map_that_does_more_is_called(case: str) -> None:
    function, of = CALLED[case]

    batch = _map(function, of)(Batch(type_info(Visit), columns=to_arrow(type_info(Visit), VISITS)), None)

    assert batch.has_rows
    assert batch.rows == [function(visit) for visit in VISITS]


def test_a_map_that_picks_fields_of_objects_is_called() -> None:
    record = Visit("a", 1, ("x", "no number"))  # type: ignore[arg-type]  # not of its type, and that part is not used

    batch = _map(lambda visit: visit.who, str)(Batch(type_info(Visit), rows=[record]), None)

    assert batch.rows == ["a"]


def test_a_flat_map_may_give_nothing_at_all() -> None:
    assert OneOperator(FlatMapKind(letters)).give("none", "a") == ["a"]


def refuse(word: str) -> Any:
    if word == "bad":
        next(iter(()))  # a StopIteration: it must not pass for the end of the records
    return [word]


@pytest.mark.parametrize("timestamps", [None, [1, 2, 3]])
@pytest.mark.parametrize("kind", [MapKind, FlatMapKind, FilterKind])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_failure_names_the_record(kind: Any, place: int, timestamps: list[int] | None) -> None:
    records = ["x", "y", "z"]
    records[place] = "bad"

    with pytest.raises(UserFunctionError, match="failed on record 'bad': StopIteration"):
        OneOperator(kind(refuse)).give(*records, timestamps=timestamps)


class Timestamps(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        yield f"{ctx.current_key} {value} {ctx.timestamp}"


def test_a_function_sees_the_timestamp_of_its_record_and_none_where_there_is_none() -> None:
    it = OneOperator(ProcessKind(Timestamps()), key=lambda value: value[0])

    assert it.give("a1", "b1", timestamps=[7, 9]) == ["a a1 7", "b b1 9"]
    assert it.give("a2") == ["a a2 None"]


class Counting(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        if value == "bad":
            raise ValueError("bad")
        self.count.update(self.count.value() + 1)
        yield f"{value}{self.count.value()}"


@pytest.mark.parametrize("timestamps", [None, [1]])
@pytest.mark.parametrize("last", ["a", "bad"])
def test_after_a_batch_there_is_no_key_whatever_happened(last: str, timestamps: list[int] | None) -> None:
    it = OneOperator(ProcessKind(Counting()), key=str)
    try:
        it.give(last, timestamps=timestamps)
    except UserFunctionError:
        assert last == "bad"

    with pytest.raises(StateAccessError, match="outside a keyed context"):
        it.function.count.value()


def test_a_function_that_changes_most_keys_does_not_record_changes_for_a_delta() -> None:
    it = OneOperator(ProcessKind(Counting()), key=str)
    it.give(*map(str, range(100)))
    it.snapshot(1)
    store = it.opened.store
    assert isinstance(store, HashMapStore)
    store.completed(CheckpointId(1))
    it.give(*map(str, range(49)))
    before = store._states["count"].state.changes

    it.give("49")

    assert before is not None
    assert store._states["count"].state.changes is None


class ReadsTooEarly(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(ValueStateDescriptor("early", int)).value()

    def map(self, value: str) -> str:
        return value


def test_reading_keyed_state_in_open_names_the_operator() -> None:
    with pytest.raises(
        StateAccessError, match=r'operator "the-operator" \(it\) in open\(\): keyed state.*outside a keyed context'
    ):
        OneOperator(MapKind(ReadsTooEarly()), key=str)


def test_keyed_state_without_keys_names_the_state() -> None:
    with pytest.raises(JobGraphError, match='keyed state "early" on a stream without keys'):
        OneOperator(MapKind(ReadsTooEarly()))


class Tagging(FlatMapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.told = (ctx.operator_name, ctx.subtask_index, ctx.parallelism, ctx.max_parallelism)

    def flat_map(self, value: str) -> list[Any]:
        return [self.told]


def test_a_function_is_told_where_it_lives() -> None:
    it = OneOperator(FlatMapKind(Tagging()), subtask=1, parallelism=3)

    assert it.give("a") == [("it", 1, 3, 128)]


class Sorting(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        if len(value) > 1:
            ctx.output(LONG, value)
            ctx.output(OutputTag("unread"), value)
        else:
            yield value


class KeyedSorting(KeyedProcessFunction):
    process_element = Sorting.process_element


class NamingItsOutput(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> None:
        ctx.output("late", value)


def test_a_side_output_is_written_with_its_tag_and_not_with_a_name() -> None:
    it = OneOperator(ProcessKind(NamingItsOutput()))

    with pytest.raises(UserFunctionError, match=r"TypeError: ctx.output\(\) takes an OutputTag, not 'late': write"):
        it.give("a")


SORTING = pytest.mark.parametrize(("function", "key"), [(Sorting(), None), (KeyedSorting(), str)])


MIXED: dict[str, tuple[Kind, Any]] = {
    "map": (MapKind(str.upper), None),
    "flat_map": (FlatMapKind(letters), None),
    "filter": (FilterKind(bool), None),
    "process": (ProcessKind(Process()), None),
    "keyed process": (ProcessKind(Keyed()), str),
    "keyed flat_map": (FlatMapKind(letters), str),
}


@pytest.mark.parametrize("timestamps", [[None, 7, None, 8], [7, None, 8, None], [None, None, 7, None]], ids=str)
@pytest.mark.parametrize("case", MIXED)
def test_records_with_and_without_timestamps_keep_their_own_in_one_batch(
    case: str, timestamps: list[int | None]
) -> None:
    kind, key = MIXED[case]

    batch = OneOperator(kind, key=key).give_batch("abcd", timestamps=timestamps)

    assert batch is not None
    assert [record.lower() for record in batch.rows] == list("abcd")
    assert batch.timestamps == timestamps


@pytest.mark.parametrize(("kind", "key"), [(ProcessKind(Process()), None), (ProcessKind(Keyed()), str)])
def test_fewer_timestamps_than_records_are_an_error_and_not_fewer_records(kind: Kind, key: Any) -> None:
    with pytest.raises(UserFunctionError, match="shorter"):
        OneOperator(kind, key=key).give_batch("abc", timestamps=[7, 8])


@SORTING
def test_side_outputs_with_and_without_timestamps_keep_their_own(function: Any, key: Any) -> None:
    it = OneOperator(ProcessKind(function), key=key, aside={"long": str})
    it.give("aa", "bb", "cc", timestamps=[None, 2, None])

    assert it.process.take_side_outputs()["long"].timestamps == [None, 2, None]


@SORTING
def test_side_outputs_are_taken_once_and_those_nobody_reads_are_dropped(function: Any, key: Any) -> None:
    it = OneOperator(ProcessKind(function), key=key, aside={"long": str})

    assert it.give("a", "bb", "ccc") == ["a"]
    assert it.aside() == {"long": ["bb", "ccc"]}
    assert it.aside() == {}


@SORTING
def test_side_outputs_have_the_records_timestamps(function: Any, key: Any) -> None:
    it = OneOperator(ProcessKind(function), key=key, aside={"long": str})
    it.give("a", "bb", "ccc", timestamps=[1, 2, 3])

    assert it.process.take_side_outputs()["long"].timestamps == [2, 3]
    it.give("dd")
    assert it.process.take_side_outputs()["long"].timestamps is None


class Joining(KeyedCoProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.left = ctx.get_state(ValueStateDescriptor("left", str))

    def process_element1(self, value: str, ctx: ProcessContext) -> None:
        self.left.update(value)

    def process_element2(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        yield f"{ctx.current_key}: {self.left.value()} {value}"


def test_both_sides_of_connected_streams_share_the_state_of_a_key() -> None:
    it = OneOperator(ConnectKind(Joining()), key=lambda value: value[0])
    it.give("a1", "b1")

    assert it.give("a2", "b2", "c2", side=1) == ["a: a1 a2", "b: b1 b2", "c: None c2"]


class Sink(SinkFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen: list[Any] = []

    def invoke(self, value: str, ctx: SinkContext) -> None:
        self.seen.append((value, ctx.timestamp, ctx.current_watermark, ctx.current_processing_time))


@pytest.mark.parametrize("key", [None, str])
def test_a_sink_function_gets_every_record_with_its_time_and_gives_nothing(key: Any) -> None:
    it = OneOperator(SinkFunctionKind(Sink()), key=key)
    it.advance(5)

    assert it.give("a", "b", timestamps=[7, 8]) == []
    assert it.function.seen == [("a", 7, 5, it.now), ("b", 8, 5, it.now)]


def test_a_discarding_sink_makes_no_objects_of_what_it_drops() -> None:
    it = OneOperator(SinkFunctionKind(DiscardingSink()))
    batch = Batch(type_info(str), columns=to_arrow(type_info(str), ["a", "b"]))

    assert it.process(batch, None) is None
    assert not batch.has_rows


def test_two_operators_with_one_function_object_do_not_share_it() -> None:
    shared = Sink()
    one, other = OneOperator(SinkFunctionKind(shared)), OneOperator(SinkFunctionKind(shared))

    one.give("a")

    assert len(one.function.seen) == 1
    assert other.function.seen == []


class Forgetting(KeyedProcessFunction):
    TTL = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupIncrementally(10, run_for_every_record=True),))

    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(ValueStateDescriptor("seen", str, ttl=self.TTL))

    def process_element(self, value: str, ctx: ProcessContext) -> None:
        if value != "other":
            ctx.get_state(ValueStateDescriptor("seen", str, ttl=self.TTL)).update(value)


class ForgettingLate(Forgetting):
    def open(self, ctx: RuntimeContext) -> None:
        """Leave it to process_element to ask for state."""


@pytest.mark.parametrize("function", [Forgetting(), ForgettingLate()])
@pytest.mark.parametrize("timestamps", [None, [1]])
def test_cleanup_for_every_record_removes_what_nobody_reads(function: Forgetting, timestamps: list[int] | None) -> None:
    it = OneOperator(ProcessKind(function), key=str)
    it.give("a", "b", "c")
    it.clock.advance(5)
    assert it.opened.store is not None
    assert it.opened.store.count().entries == 3

    it.give("other", timestamps=timestamps)

    assert it.opened.store.count().entries == 0


class Ageing(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        ttl = StateTtlConfig(timedelta(seconds=1), time=TtlTime.EVENT_TIME)
        self.seen = ctx.get_state(ValueStateDescriptor("seen", int, ttl=ttl))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[int]:
        seen = self.seen.value() or 0
        yield seen
        self.seen.update(seen + 1)


def test_state_ages_with_the_watermark_but_not_because_all_input_has_ended() -> None:
    it = OneOperator(ProcessKind(Ageing()), key=str)

    assert it.give("a", timestamps=[5000]) == [0]
    it.advance(5500)
    it.advance(MAX_WATERMARK)
    assert it.give("a", timestamps=[5600]) == [1]
    it.advance(7000)
    assert it.give("a", timestamps=[7001]) == [0]
