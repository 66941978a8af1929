"""What a slot does for readers: nothing until the first comes, and nothing more once they stay away."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from checkdam.backends import HashMapStateBackend, KeyedStateStore, StoreOwner
from checkdam.ids import Attempt, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.live_state.query_messages import (
    Answer,
    Ask,
    FoundKeys,
    FoundPage,
    FoundStates,
    GetKeys,
    GetPage,
    ListStates,
    Refused,
    pack,
    unpack_answers,
)
from checkdam.runtime.live_state.slot_queries import SlotQueries
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info

COUNT = StateSpec("count", StateKind.VALUE, type_info(int))
TIMERS = StateSpec("_timers/event", StateKind.TIMER, type_info(bool), type_info(int))
KEY = serializer(type_info(str)).encode_key("a")
ASK = GetKeys("op", "count", [KEY])


class Slot:
    """One operator that counts a single key, and what a slot has around it."""

    def __init__(self, **options: Any) -> None:
        groups = KeyGroupRange(0, 127)
        owner = StoreOwner(OperatorUid("op"), SubtaskIndex(0), Attempt("a"), groups, 128, type_info(str))
        self.store: KeyedStateStore = HashMapStateBackend().open(owner, (), None, claim=True)
        self.count = self.store.cells(COUNT)
        self.epoch = 0
        self.is_inside = False
        self.now = 0.0
        self.lock = threading.RLock()
        self.changes: list[bool] = []
        self.queries = SlotQueries(SubtaskIndex(0), {"op": self.store}, self._border, seconds=self._seconds, **options)
        self.queries.on_change = self.changes.append

    def _border(self) -> Epoch | None:
        return None if self.is_inside else Epoch(self.epoch)

    def _seconds(self) -> float:
        return self.now

    def begin_epoch(self) -> None:
        self.is_inside = True
        self.store.current_key = "a"
        self.count.update(self.epoch + 1)

    def end_epoch(self) -> None:
        with self.lock:
            self.epoch += 1
            self.is_inside = False
            self.queries.epoch_ended(Epoch(self.epoch))

    def ask(self, *asks: Ask) -> list[Answer]:
        return unpack_answers(self.queries.answer(pack(list(asks)), self.lock))


def one(value: int) -> bytes:
    return serializer(type_info(int)).encode_one(value)


def test_while_nobody_asks_nothing_is_kept() -> None:
    slot = Slot()

    slot.begin_epoch()
    slot.end_epoch()

    assert slot.store.published is None
    assert not slot.queries.is_published


def test_between_epochs_the_first_question_is_answered_at_once() -> None:
    slot = Slot()
    slot.begin_epoch()
    slot.end_epoch()

    assert slot.ask(ASK) == [FoundKeys(1, [one(1)])]
    assert slot.changes == [True]


def test_in_the_middle_of_an_epoch_the_last_whole_one_is_told() -> None:
    slot = Slot()
    slot.begin_epoch()
    slot.end_epoch()
    slot.ask(ASK)

    slot.begin_epoch()
    with slot.lock:  # as processing holds it: a question does not need it
        answers: list[list[Answer]] = []
        asking = threading.Thread(target=lambda: answers.append(slot.ask(ASK)))
        asking.start()
        asking.join(30)

    assert answers == [[FoundKeys(1, [one(1)])]]
    slot.end_epoch()
    assert slot.ask(ASK) == [FoundKeys(2, [one(2)])]


def test_the_first_question_in_the_middle_of_an_epoch_waits_for_its_end() -> None:
    slot = Slot()
    slot.begin_epoch()
    answers: list[list[Answer]] = []
    asking = threading.Thread(target=lambda: answers.append(slot.ask(ASK)))
    slot.lock.acquire()
    asking.start()
    slot.end_epoch()
    slot.lock.release()
    asking.join(30)

    assert answers == [[FoundKeys(1, [one(1)])]]


def test_an_epoch_that_does_not_end_is_told_to_whoever_waits() -> None:
    slot = Slot(patience_seconds=0.0)
    slot.begin_epoch()
    clock = iter(range(100))
    slot.queries._seconds = lambda: float(next(clock))

    [refused] = slot.ask(ASK)

    assert isinstance(refused, Refused)
    assert not refused.is_wrong
    assert "has not ended" in refused.message


def test_without_questions_for_a_while_it_is_dropped_and_comes_back_with_the_next() -> None:
    slot = Slot(kept_seconds=60)
    slot.ask(ASK)
    slot.now = 61

    slot.begin_epoch()
    slot.end_epoch()

    assert slot.store.published is None
    assert slot.changes == [True, False]
    assert slot.ask(ASK) == [FoundKeys(1, [one(1)])]


def test_one_wrong_question_does_not_spoil_the_others() -> None:
    slot = Slot()
    slot.begin_epoch()
    slot.end_epoch()

    answers = slot.ask(GetKeys("nobody", "count", [KEY]), ASK, GetPage("op", "count", b"no place", 1))

    assert answers[1] == FoundKeys(1, [one(1)])
    assert [isinstance(answer, Refused) and answer.is_wrong for answer in answers] == [True, False, True]


def test_a_slot_whose_function_has_not_asked_for_a_state_has_nothing_of_it() -> None:
    slot = Slot()
    slot.begin_epoch()
    slot.end_epoch()

    answers = slot.ask(GetKeys("op", "late", [KEY, KEY]), GetPage("op", "late", b"", 10))

    assert answers == [FoundKeys(1, [None, None]), FoundPage(1, [], None)]


def test_timers_are_not_listed() -> None:
    slot = Slot()
    slot.store.maps(TIMERS)

    [found] = slot.ask(ListStates())

    assert isinstance(found, FoundStates)
    assert [facts.name for facts in found.states] == ["count"]


def test_a_slot_that_has_ended_says_so() -> None:
    slot = Slot()
    slot.queries.close()

    [refused] = slot.ask(ASK)

    assert isinstance(refused, Refused)
    assert not refused.is_wrong


def test_whoever_waits_for_the_first_answer_hears_of_the_end() -> None:
    slot = Slot()
    slot.begin_epoch()
    answers: list[list[Answer]] = []
    asking = threading.Thread(target=lambda: answers.append(slot.ask(ASK)))
    asking.start()
    slot.queries.close()
    asking.join(30)

    assert [isinstance(answer, Refused) for answer in answers[0]] == [True]


@pytest.mark.parametrize("count", [1, 50])
def test_every_question_has_its_answer(count: int) -> None:
    assert len(Slot().ask(*[ASK] * count)) == count


def test_a_state_asked_for_in_the_middle_of_an_epoch_is_listed_from_its_end_on() -> None:
    slot = Slot()
    slot.ask(ASK)
    slot.begin_epoch()
    slot.store.cells(StateSpec("more", StateKind.VALUE, type_info(int)))

    [inside] = slot.ask(ListStates())
    slot.end_epoch()
    [after] = slot.ask(ListStates())

    assert isinstance(inside, FoundStates)
    assert isinstance(after, FoundStates)
    assert [facts.name for facts in inside.states] == ["count"]
    assert [facts.name for facts in after.states] == ["count", "more"]


def test_whatever_goes_wrong_with_one_question_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot()
    slot.ask(ASK)

    def fail(*of: Any) -> Any:
        raise RuntimeError("the database is closed")

    monkeypatch.setattr(type(slot.store.published), "page", fail)
    refused, told = slot.ask(GetPage("op", "count", b"", 5), ASK)

    assert isinstance(refused, Refused)
    assert not refused.is_wrong
    assert told == FoundKeys(0, [None])
