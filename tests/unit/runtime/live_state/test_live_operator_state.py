"""Broadcast state, operator lists and timers of a running job: whole epochs, and nothing kept while nobody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.every_state import RULE, EveryState
from tests.support.programs import Numbers
from tests.unit.runtime.live_state.test_live_state import Watched

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.errors import StateAccessError
from checkdam.graph.contexts import BroadcastContext
from checkdam.graph.functions import BroadcastProcessFunction
from checkdam.runtime.job_control import ElementsPage
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.state.snapshot_handles import Redistribution
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Moment, Step, Trouble

BACKENDS: Mapping[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend()}
EPOCHS = [
    [(RULE, 1), ("ada", 2), ("bob", 3)],
    [(RULE, 2), (RULE, 3), ("ada", 4)],
    [(RULE, 4), ("eve", 5)],
    [("ada", 6)],
]


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


def all_elements(live: LiveState, uid: str, name: str, limit: int = 50, text: str | None = None) -> list[ElementsPage]:
    pages = [live.elements(uid, name, None, limit, text)]
    while pages[-1].cursor is not None:
        pages.append(live.elements(uid, name, pages[-1].cursor, limit, text))
    return pages


def rules(live: LiveState) -> tuple[int, dict[int, str]]:
    [page] = all_elements(live, "everything", "rules")
    return page.epoch, dict(each for _, each in page.entries)


def rule(*numbers: int) -> dict[int, str]:
    return {number: f"rule {number}" for number in numbers}


def test_the_rules_in_force_are_those_of_the_last_whole_epoch(backend: KeyedStateBackend) -> None:
    seen = Watched(EveryState(EPOCHS, backend).job).run(
        [
            (Step.BEFORE_EPOCH, 2, rules),  # the first question: from here on they are published
            (Step.EPOCH_DONE, 2, rules),  # the slots have the new rules already
            (Step.BEFORE_EPOCH, 3, rules),
            (Step.BEFORE_EPOCH, 4, rules),
        ]
    )

    assert seen == [(1, rule(1)), (1, rule(1)), (2, rule(1, 2, 3)), (3, rule(1, 2, 3, 4))]


@pytest.mark.parametrize(("text", "limit", "numbers"), [("3", 50, [3]), (None, 2, [1, 2, 3]), ("x", 1, [])])
def test_broadcast_state_is_paged_and_filtered_by_its_keys(text: str | None, limit: int, numbers: list[int]) -> None:
    def look(live: LiveState) -> Any:
        return all_elements(live, "everything", "rules", limit, text)

    [pages] = Watched(EveryState(EPOCHS, BACKENDS["hashmap"]).job).run([(Step.BEFORE_EPOCH, 3, look)])

    assert dict(each for page in pages for _, each in page.entries) == rule(*numbers)
    assert all(len(page.entries) <= limit for page in pages)
    assert {page.mode for page in pages} == {Redistribution.BROADCAST}


def test_lists_are_told_with_the_subtask_that_keeps_each_element() -> None:
    def look(live: LiveState) -> Any:
        pages = all_elements(live, "buffer", "counts")
        return sorted((subtask, *element) for page in pages for subtask, element in page.entries)

    [seen] = Watched(EveryState(EPOCHS, BACKENDS["hashmap"]).job).run([(Step.BEFORE_EPOCH, 3, look)])

    assert [(subtask, of) for subtask, of, _ in seen] == [(0, 0), (1, 1)]
    assert sum(count for *_, count in seen) == 6  # as of the checkpoint behind epoch 2, when the function wrote them


def test_the_overview_counts_rules_once_and_lists_over_all_subtasks(backend: KeyedStateBackend) -> None:
    [found] = Watched(EveryState(EPOCHS, backend).job).run([(Step.BEFORE_EPOCH, 3, lambda live: live.overview())])

    of = {(each.uid, each.name): (each.mode, each.elements) for each in found.operator}
    assert of == {
        ("buffer", "records"): (Redistribution.SPLIT, 6),
        ("buffer", "counts"): (Redistribution.UNION, 2),
        ("everything", "rules"): (Redistribution.BROADCAST, 3),
    }
    assert [(each.uid, each.domain, each.count, each.next) for each in found.timers] == [
        ("everything", "event time", 3, 7)
    ]
    assert {each.name for each in found.keyed if each.uid == "everything"} == {"count", "numbers", "total", "by number"}


def test_the_next_timers_are_told_in_their_order_as_of_the_last_whole_epoch(backend: KeyedStateBackend) -> None:
    def next_timers(live: LiveState) -> Any:
        found = live.timers("everything", 10)
        return found.epoch, [(each.domain, each.time, each.key) for each in found.timers], found.count

    seen = Watched(EveryState(EPOCHS, backend).job).run(
        [(Step.BEFORE_EPOCH, 3, next_timers), (Step.EPOCH_DONE, 3, next_timers), (Step.BEFORE_EPOCH, 4, next_timers)]
    )

    before = 2, [("event time", 7, "ada"), ("event time", 8, "bob"), ("event time", 9, "ada")], 3
    assert seen[:2] == [before, before]
    assert seen[2] == (3, [*before[1], ("event time", 10, "eve")], 4)


def test_timers_are_limited_and_filtered_by_their_keys() -> None:
    def look(live: LiveState) -> Any:
        two, ada = live.timers("everything", 2), live.timers("everything", 10, "AD")
        return [each.time for each in two.timers], [each.time for each in ada.timers], ada.count

    [seen] = Watched(EveryState(EPOCHS, BACKENDS["hashmap"]).job).run([(Step.BEFORE_EPOCH, 3, look)])

    assert seen == ([7, 8], [7, 9], 3)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda live: live.elements("nobody", "rules", None, 1), 'no operator "nobody"'),
        (lambda live: live.elements("everything", "count", None, 1), 'no operator state "count". It has "rules"'),
        (lambda live: live.elements("everything", "rules", "9.MA", 1), "no page"),
        (lambda live: live.elements("everything", "rules", "0.eA", 1), "no such place"),
        (lambda live: live.timers("buffer", 1), 'no operator "buffer" with keyed state'),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(ask: Callable[[LiveState], Any], words: str) -> None:
    [refused] = Watched(EveryState(EPOCHS, BACKENDS["hashmap"]).job).run([(Step.BEFORE_EPOCH, 2, ask)])

    assert isinstance(refused, StateAccessError)
    assert words in str(refused)


def test_elements_and_timers_are_kept_for_readers_only_once_they_are_asked_for() -> None:
    kept: list[Any] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        tasks = [slot._task for slot in engine.slots]
        kept.append([(task.queries._elements._published, task.queries._timers._published) for task in tasks if task])

    Watched(EveryState(EPOCHS, BACKENDS["hashmap"]).job).run(
        [(Step.BEFORE_EPOCH, 2, lambda live: live.overview())], Trouble(Step.BEFORE_EPOCH, look, number=4)
    )

    assert kept == [[(None, None), (None, None)]]


@dataclass
class Limit:
    most: int
    tags: list[str]


LIMITS = MapStateDescriptor("limits", str, Limit)


class Check(BroadcastProcessFunction[str, str, str]):
    """Changes the rules in place, which only a copy at the epoch's end hides from readers."""

    def process_broadcast_element(self, value: str, ctx: BroadcastContext) -> None:
        limits = ctx.get_broadcast_state(LIMITS)
        limit = limits.get("one") or Limit(0, [])
        limit.most += 1
        limit.tags.append(value)
        limits["one"] = limit

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        yield value


def check_limits(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.connect(stream.broadcast(LIMITS)).process(Check(), output_type=str).uid("check").print()


def test_a_rule_that_is_changed_in_place_shows_at_the_end_of_the_epoch() -> None:
    def look(live: LiveState) -> Any:
        [page] = all_elements(live, "check", "limits")
        return [each for _, each in page.entries]

    def job(**options: Any) -> LocalJob:
        return LocalJob(check_limits, [["a"], ["b"], []], MemoryStorage(), record_type=str, **options)

    seen = Watched(job).run([(Step.BEFORE_EPOCH, 2, look), (Step.AFTER_LEVEL, 2, look), (Step.BEFORE_EPOCH, 3, look)])

    one = ("one", {"most": 1, "tags": ["a"]})
    assert seen == [[one], [one], [("one", {"most": 2, "tags": ["a", "b"]})]]


def count_numbers(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    numbers = environment.add_source(Numbers(5000), output_type=tuple[str, int]).uid("numbers")
    numbers.key_by(0, key_type=str).sum(1).uid("sum").print()


def test_a_source_function_shows_the_place_of_the_last_record_that_is_counted() -> None:
    """Its thread is ahead of the epoch, and so are its own variables."""

    def look(live: LiveState) -> tuple[list[int], int]:
        [page] = all_elements(live, "numbers", "next")
        [counted] = [each.held.entries for each in live.states() if each.uid == "sum"]
        return [element for _, element in page.entries], counted

    def job(**options: Any) -> LocalJob:
        return LocalJob(count_numbers, [], MemoryStorage(), record_type=str, parallelism=1, **options)

    [(place, counted)] = Watched(job).run([(Step.EPOCH_ENDED, 1, look)])

    assert place == [counted]
