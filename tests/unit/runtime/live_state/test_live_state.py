"""The state of a running job, asked for from outside: whole epochs, of the slot that owns the key, and clear errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from queue import Queue
from typing import Any, NamedTuple, cast

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.graph.contexts import ProcessContext, RuntimeContext
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.runtime.job_control import KeysPage, QueryAnswer
from checkdam.runtime.live_state.query_channel import SlotChannel
from checkdam.runtime.live_state.query_messages import ListStates, Refused, pack, unpack_answers
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.state.key_groups import key_group_of, subtask_of
from checkdam.state.state_count import StateCount
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Moment, Step, Trouble, kill_slot
from checkdam.types.type_info import type_info

SUM = "_op_state"
WORDS = [f"w{number}" for number in range(20)]


class Watched:
    """A job that is looked at from within: at each step given, `look(live state)` is called and its result kept."""

    def __init__(self, make: Callable[..., LocalJob]) -> None:
        self.seen: list[Any] = []
        self.live: LiveState | None = None
        self._job: LocalJob
        self._make = make

    def run(self, looks: list[tuple[Step, int, Callable[[LiveState], Any]]], *more: Trouble) -> list[Any]:
        troubles = [
            # a level is done when the last slot has done it
            Trouble(step, self._looking(look), number=number, subtask=1 if step is Step.AFTER_LEVEL else None)
            for step, number, look in looks
        ]
        self._job = self._make(troubles=[*troubles, *more])
        self._job.run()
        return self.seen

    def _looking(self, look: Callable[[LiveState], Any]) -> Callable[[LocalEngine, Moment], None]:
        def do(engine: LocalEngine, moment: Moment) -> None:
            if self.live is None:
                self.live = LiveState(self._job.control.live_slots)  # type: ignore[attr-defined]  # it is the master
            try:
                self.seen.append(look(self.live))
            except CheckdamError as error:
                self.seen.append(error)

        return do


def count_of(*words: str) -> Callable[[LiveState], list[tuple[int, Any]]]:
    return lambda live: [(each.epoch, each.value and each.value[1]) for each in live.get(UID, SUM, words)]


def test_in_the_middle_of_an_epoch_the_one_before_is_told() -> None:
    job = WordCount([["a", "b"], ["a"], ["a", "b"], ["a"]])

    seen = Watched(job.job).run(
        [
            (Step.EPOCH_ENDED, 1, count_of("a", "b", "c")),  # the first question: from here on it is published
            (Step.BEFORE_LEVEL, 3, count_of("a", "b")),
            (Step.AFTER_LEVEL, 3, count_of("a", "b")),
            (Step.BEFORE_EPOCH, 4, count_of("a", "b")),
        ]
    )

    assert seen == [
        [(1, 1), (1, 1), (1, None)],
        [(2, 2), (2, 1)],
        [(2, 2), (2, 1)],
        [(3, 3), (3, 2)],
    ]


def test_the_first_question_waits_for_the_end_of_the_epoch() -> None:
    answers: list[Any] = []
    asked = threading.Thread()

    def ask_without_waiting(live: LiveState) -> None:
        nonlocal asked
        asked = threading.Thread(target=lambda: answers.append(count_of("a")(live)))
        asked.start()

    job = WordCount([["a"], ["a"], ["a"]])
    Watched(job.job).run(
        [(Step.AFTER_LEVEL, 2, ask_without_waiting)], Trouble(Step.BEFORE_EPOCH, lambda *_: asked.join(30), number=3)
    )

    assert answers == [[(2, 2)]]


def test_in_the_middle_of_an_epoch_a_slot_without_readers_has_nothing_to_tell() -> None:
    """Between two calls of an epoch its lock is free, and its state is not that of an epoch's end."""
    answers: list[Any] = []

    def ask(engine: LocalEngine, moment: Moment) -> None:
        for slot in engine.slots:
            assert slot._task is not None
            slot._task.queries._patience_seconds = 0.0
            answers.extend(unpack_answers(slot.query(pack([ListStates()]))))

    WordCount([["a"], ["a"]]).job(troubles=[Trouble(Step.AFTER_LEVEL, ask, number=2, subtask=1)]).run()

    assert [isinstance(answer, Refused) and not answer.is_wrong for answer in answers] == [True, True]


def test_every_key_is_asked_for_where_it_lives() -> None:
    job = WordCount([WORDS, WORDS])

    def look(live: LiveState) -> Any:
        return list(live.get(UID, SUM, [*WORDS, "nowhere"]))

    [answers] = Watched(job.job).run([(Step.BEFORE_EPOCH, 2, look)])

    for word, answer in zip([*WORDS, "nowhere"], answers, strict=True):
        group = key_group_of(word, type_info(str), 128)
        found = word in WORDS
        expected = QueryAnswer(1, subtask_of(group, 2, 128), group, found=found, value=(word, 1) if found else None)  # type: ignore[arg-type]
        assert answer == expected


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_hold_every_key_once(limit: int) -> None:
    def look(live: LiveState) -> list[KeysPage]:
        pages = [live.page(UID, SUM, None, limit)]
        while pages[-1].cursor is not None:
            pages.append(live.page(UID, SUM, pages[-1].cursor, limit))
        return pages

    [pages] = Watched(WordCount([WORDS, []]).job).run([(Step.BEFORE_EPOCH, 2, look)])

    assert sorted(entry for page in pages for entry in page.entries) == sorted((word, (word, 1)) for word in WORDS)
    assert all(len(page.entries) <= limit for page in pages)


class Place(NamedTuple):
    street: str
    number: int


@dataclass
class Visit:
    at: int
    tags: list[str]


class Visits(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.last = ctx.get_state(ValueStateDescriptor("last", Visit))
        self.all = ctx.get_list_state(ListStateDescriptor("all", int))
        self.by_day = ctx.get_map_state(MapStateDescriptor("by day", int, Visit))

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[Any]:
        number = value[1]
        last = self.last.value() or Visit(0, [])
        last.at = number
        last.tags.append(str(number))
        self.last.update(last)
        self.all.add(number)
        self.by_day[number % 2] = last
        yield value


def visits(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    places = stream.key_by(lambda value: Place(value[0], 1), key_type=Place)
    places.process(Visits(), output_type=tuple[str, int]).uid("visits").print()


def visited(**options: Any) -> LocalJob:
    return LocalJob(visits, [[("x", 1)], [("x", 2), ("y", 3)]], MemoryStorage(), record_type=tuple[str, int], **options)


def test_states_of_a_function_are_told_by_their_names_and_types() -> None:
    x = Place("x", 1)

    def look(live: LiveState) -> Any:
        states = [(each.name, each.kind, each.value_type.name, each.map_key_type, each.held) for each in live.states()]
        values = {name: live.get("visits", name, [x])[0].value for name in ("last", "all", "by day")}
        return states, values, live.get("visits", "by day", [x], map_key=1)[0].value

    first, second = Watched(visited).run([(Step.BEFORE_EPOCH, 2, look), (Step.AFTER_LEVEL, 2, look)])

    assert first == second  # the function has changed its objects in place by then
    assert first[0] == [
        ("last", "value", "Visit", None, StateCount(1, 1)),
        ("all", "list", "list[int]", None, StateCount(1, 1)),
        ("by day", "map", "Visit", type_info(int), StateCount(1, 1)),
    ]
    visit = {"at": 1, "tags": ["1"]}
    assert first[1] == {"last": visit, "all": [1], "by day": {1: visit}}
    assert first[2] == {1: visit}


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (("nobody", SUM, ["a"]), r'the job has no operator "nobody" with keyed state. It has "count".'),
        ((UID, "nothing", ["a"]), r'operator "count" has no keyed state "nothing". It has "_op_state".'),
        ((UID, SUM, [17]), r'17 is no key of state "_op_state" of operator "count". Ask by a key of type str.'),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(question: Any, message: str) -> None:
    [error] = Watched(WordCount([["a"], []]).job).run([(Step.BEFORE_EPOCH, 2, lambda live: live.get(*question))])

    assert isinstance(error, StateAccessError)
    assert str(error) == message


@pytest.mark.parametrize("cursor", ["x", "0", "7.", "-1.", "0.!!", "0.LTE", "0.eA"])
def test_a_cursor_that_is_none_is_an_error(cursor: str) -> None:
    [error] = Watched(WordCount([["a"], []]).job).run(
        [(Step.BEFORE_EPOCH, 2, lambda live: live.page(UID, SUM, cursor, 5))]
    )

    assert isinstance(error, StateAccessError)


def test_after_a_failover_the_restored_state_is_told() -> None:
    job = WordCount([["a"], ["a"], ["a"], ["a"]])

    seen = Watched(job.job).run(
        [
            (Step.BEFORE_EPOCH, 2, count_of("a")),
            (Step.BEFORE_EPOCH, 4, count_of("a")),
        ],
        Trouble(Step.AFTER_LEVEL, kill_slot(0), number=3),
    )

    assert seen == [[(1, 1)], [(3, 3)]]


def test_while_there_are_no_slots_asking_again_is_the_advice() -> None:
    live = LiveState(lambda: None)

    with pytest.raises(StateNotReadyError, match="ask again"):
        live.get(UID, SUM, ["a"])
    with pytest.raises(StateNotReadyError):
        live.states()


def test_a_slot_that_is_lost_meanwhile_is_no_reason_to_hang() -> None:
    def look(live: LiveState) -> Any:
        live.get(UID, SUM, WORDS)
        assert live._attempt is not None
        for channel in live._attempt.channels:
            channel._slot.kill()
        return live.get(UID, SUM, WORDS)

    seen = Watched(WordCount([WORDS, WORDS]).job).run([(Step.BEFORE_EPOCH, 2, look)])

    assert isinstance(seen[0], StateNotReadyError)


def amounts(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    keyed = stream.key_by(lambda value: Decimal(value), key_type=Decimal)
    keyed.process(Count(), output_type=int).uid("amounts").print()


class Count(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: int, ctx: ProcessContext) -> Iterator[int]:
        self.count.update(self.count.value() + 1)
        yield value


@pytest.mark.parametrize("digits", ["1E+50", "1E-30"])
def test_a_key_that_no_record_can_have_is_told_also_to_the_first_who_asks(digits: str) -> None:
    def job(**options: Any) -> LocalJob:
        return LocalJob(amounts, [[1], [2]], MemoryStorage(), record_type=int, **options)

    def look(live: LiveState) -> Any:
        return live.get("amounts", "count", [Decimal(digits)])

    [error] = Watched(job).run([(Step.BEFORE_EPOCH, 2, look)])

    assert isinstance(error, StateAccessError)
    assert "is no key of state" in str(error)


class Failing:
    subtask = 0

    def query(self, request: bytes) -> bytes:
        raise RuntimeError("nobody foresaw this")


def test_a_channel_outlives_what_nobody_foresaw() -> None:
    channel = SlotChannel(cast(Any, Failing()))
    answers: Queue[Any] = Queue()

    for _ in range(2):
        channel.ask(ListStates(), answers.put)
        told = answers.get(timeout=30)

        assert isinstance(told, Refused)
        assert not told.is_wrong
