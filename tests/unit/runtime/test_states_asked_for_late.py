"""States that a function asks for while it processes records: one handle each, and whole over restores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from typing import Any

import pytest

from checkdam import (
    FlatMapFunction,
    HashMapStateBackend,
    KeyedProcessFunction,
    MapStateDescriptor,
    OnTimerContext,
    ProcessContext,
    ProcessFunction,
    RocksDBStateBackend,
    RuntimeContext,
    ValueStateDescriptor,
)
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.errors import CheckdamError, StateNotReadyError, StateNotRestorableError, StateRequestError
from checkdam.runtime.driver.restore import from_path
from checkdam.runtime.driver.restore_check import Fate, check_restore
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.source_position import SourceChoices
from checkdam.state.key_groups import key_group_of, subtask_of
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import Build, Heard, LocalJob
from checkdam.testing.trouble import Moment, Step, Trouble
from checkdam.types.type_info import type_info

SEEN = MapStateDescriptor("seen", str, int)
Count = make_dataclass("Count", [("word", str), ("times", int)])
Counted = make_dataclass("Count", [("word", str), ("times", int), ("note", str, "-")])
Mismatch = make_dataclass("Count", [("word", str), ("times", str)])
WORDS = [f"w{number}" for number in range(12)]


@pytest.fixture(params=[HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    found: KeyedStateBackend = request.param
    return found


class CountLate(KeyedProcessFunction):
    """Counts each word, unless it is told to look away; asks for its state with every record."""

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        word, _, command = value.partition(":")
        if command == "skip":
            return
        seen = ctx.get_map_state(SEEN)
        assert seen is ctx.get_map_state(MapStateDescriptor("seen", str, int))
        seen["n"] = seen.get("n", 0) + 1
        yield f"{word} {seen['n']}"


def counting(backend: KeyedStateBackend, function: Callable[[], Any] = CountLate) -> Build:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        by_word = stream.key_by(lambda value: value.split(":")[0], key_type=str)
        by_word.process(function(), output_type=str).uid("late").print()

    return build


def printed(heard: Heard) -> list[str]:
    """The lines without the subtask that printed them, in order."""
    return sorted(line.rpartition("> ")[2] for line in heard.printed_lines)


def test_what_is_asked_for_late_is_restored_and_carried_on_while_it_is_not_asked_for(
    backend: KeyedStateBackend,
) -> None:
    storage, epochs = MemoryStorage(), [WORDS]
    LocalJob(counting(backend), epochs, storage).run()
    for parallelism in (2, 3, 1):  # three lives in which no function asks for the state, each with a checkpoint
        epochs = [*epochs, ["w1:skip"], ["w2:skip"]]
        LocalJob(counting(backend), epochs, storage, parallelism=parallelism).run()

    heard = LocalJob(counting(backend), [*epochs, WORDS], storage, parallelism=4).run()

    assert printed(heard) == sorted(f"{word} 2" for word in WORDS)


def test_checkpoints_between_the_restore_and_the_question_lose_nothing(backend: KeyedStateBackend) -> None:
    """Deltas on what was restored, before and after the state is asked for, in one life."""
    storage = MemoryStorage()
    first = [WORDS, WORDS]
    LocalJob(counting(backend), first, storage).run()
    second = [*first, ["w1:skip"], ["w1"], ["w2:skip"], ["w1", "w2"]]
    LocalJob(counting(backend), second, storage).run()

    heard = LocalJob(counting(backend), [*second, WORDS], storage).run()

    expected = dict.fromkeys(WORDS, 3) | {"w1": 5, "w2": 4}
    assert printed(heard) == sorted(f"{word} {times}" for word, times in expected.items())


class OfType(KeyedProcessFunction):
    """Keeps a value of some class; a field tells which."""

    def __init__(self, of: Any, **fields: Any) -> None:
        self._of, self._fields = of, fields

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        if not value.endswith(":skip"):
            kept = ctx.get_state(ValueStateDescriptor("kept", self._of))
            yield repr(None if kept.value() is None else vars(kept.value()))
            kept.update(self._of(**self._fields))


def test_a_changed_type_migrates_when_it_is_asked_for(backend: KeyedStateBackend) -> None:
    storage, epochs = MemoryStorage(), [["a", "b"]]
    LocalJob(counting(backend, lambda: OfType(Count, word="x", times=3)), epochs, storage).run()
    epochs = [*epochs, ["a:skip"], ["a"], ["a:skip"]]
    changed = counting(backend, lambda: OfType(Counted, word="y", times=4, note="!"))

    migrated = LocalJob(changed, epochs, storage).run()
    again = LocalJob(changed, [*epochs, ["a"], ["b"]], storage).run()

    assert printed(migrated) == ["{'word': 'x', 'times': 3, 'note': '-'}"]
    assert printed(again) == ["{'word': 'x', 'times': 3, 'note': '-'}", "{'word': 'y', 'times': 4, 'note': '!'}"]


def test_an_incompatible_type_fails_the_job_when_it_is_asked_for_and_is_not_tried_again(
    backend: KeyedStateBackend,
) -> None:
    storage = MemoryStorage()
    LocalJob(counting(backend, lambda: OfType(Count, word="x", times=3)), [["a"]], storage).run()
    job = LocalJob(
        counting(backend, lambda: OfType(Mismatch, word="x", times="3")), [["a"], ["a:skip"], ["a"]], storage
    )

    with pytest.raises(
        StateNotRestorableError, match=r'state "kept" of operator "late" cannot be restored: field "times"'
    ):
        job.run()

    assert job.heard.restarts == []


class TwoOfOneName(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> None:
        ctx.get_map_state(SEEN)
        ctx.get_state(ValueStateDescriptor("seen", int))


class WithoutKeys(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> None:
        ctx.get_map_state(SEEN)


def test_a_state_that_cannot_be_had_fails_the_job_at_once() -> None:
    two = LocalJob(counting(HashMapStateBackend(), TwoOfOneName), [["a"]], MemoryStorage())
    unkeyed = LocalJob(
        lambda _, stream: stream.process(WithoutKeys(), output_type=str).uid("plain").print(), [["a"]], MemoryStorage()
    )

    with pytest.raises(StateRequestError, match='asks for state "seen" with a MapStateDescriptor and then with a Val'):
        two.run()
    with pytest.raises(StateRequestError, match='asks for keyed state "seen" on a stream without keys'):
        unkeyed.run()

    assert two.heard.restarts == unkeyed.heard.restarts == []


class KeptContext(FlatMapFunction):
    """Has no context with its records but the one of `open`."""

    def open(self, ctx: RuntimeContext) -> None:
        self._ctx = ctx

    def flat_map(self, value: str) -> Iterator[str]:
        count = self._ctx.get_state(ValueStateDescriptor("count", int, default=0))
        count.update(count.value() + 1)
        yield f"{value} {count.value()}"


class CountInTimer(KeyedProcessFunction):
    def process_element(self, value: str, ctx: ProcessContext) -> None:
        ctx.timer_service.register_processing_time_timer(0)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[str]:
        seen = ctx.get_map_state(SEEN)
        seen["n"] = seen.get("n", 0) + 1
        yield f"{ctx.current_key} {seen['n']}"


def test_the_context_of_open_and_of_timers_have_the_same_states(backend: KeyedStateBackend) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        by_word = stream.key_by(lambda value: value, key_type=str)
        by_word.flat_map(KeptContext(), output_type=str).uid("kept").print()
        by_word.process(CountInTimer(), output_type=str).uid("timers").print()

    storage = MemoryStorage()
    LocalJob(build, [["a"]], storage).run()

    heard = LocalJob(build, [["a"], ["a"]], storage).run()

    assert printed(heard) == ["a 2", "a 2"]


def test_a_check_tells_what_is_kept_until_it_is_asked_for(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    job = LocalJob(counting(backend), [WORDS], storage)
    job.run()
    restored = from_path(f"{job.uri}/chk-1")

    reports = check_restore(job.job().plan, restored, SourceChoices())

    assert [(each.state, each.fate, each.is_refused) for each in reports] == [
        ("position", Fate.AS_IS, False),
        ("seen", Fate.CARRIED, False),
    ]


def test_live_state_is_told_where_it_is_asked_for_and_refused_where_it_only_waits(backend: KeyedStateBackend) -> None:
    storage, parallelism = MemoryStorage(), 2
    LocalJob(counting(backend), [WORDS], storage, parallelism=parallelism).run()
    of_slot: dict[int, list[str]] = {}
    for word in WORDS:
        group = key_group_of(word, type_info(str), 128)
        of_slot.setdefault(subtask_of(group, parallelism, 128), []).append(word)
    here, there = of_slot[0][0], of_slot[1][0]
    answers: list[Any] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        live = LiveState(job.control.live_slots)  # type: ignore[attr-defined]  # it is the master
        for word in (here, there):
            try:
                answers.append([each.value for each in live.get("late", "seen", [word])])
            except CheckdamError as error:
                answers.append(error)

    epochs = [WORDS, [f"{here}:skip"], [here], [there]]
    looks = [Trouble(Step.EPOCH_ENDED, look, number=number) for number in (2, 3, 4)]
    job = LocalJob(counting(backend), epochs, storage, parallelism=parallelism, troubles=looks)
    job.run()

    refused = [each for each in answers if isinstance(each, StateNotReadyError)]
    told = [each for each in answers if not isinstance(each, CheckdamError)]
    assert told == [[{"n": 2}], [{"n": 2}], [{"n": 2}]]
    assert answers[:2] == refused[:2]
    assert answers[3] is refused[2]
    assert 'state "seen" of operator "late" is restored, but the function has not asked for it yet' in str(refused[0])


def test_a_slot_that_never_had_a_record_has_nothing_of_a_state_that_others_have(backend: KeyedStateBackend) -> None:
    answers: list[Any] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        live = LiveState(job.control.live_slots)  # type: ignore[attr-defined]  # it is the master
        answers.append([each.value for each in live.get("late", "seen", WORDS)].count(None))
        answers.append(live.page("late", "seen", None, 100).entries)

    job = LocalJob(counting(backend), [["w1"]], MemoryStorage(), troubles=[Trouble(Step.EPOCH_ENDED, look, number=1)])
    job.run()

    assert answers == [len(WORDS) - 1, [("w1", {"n": 1})]]


def test_a_state_that_only_some_subtasks_have_migrated_is_not_restored_with_another_parallelism(
    backend: KeyedStateBackend,
) -> None:
    storage = MemoryStorage()
    LocalJob(counting(backend, lambda: OfType(Count, word="x", times=3)), [WORDS], storage).run()
    changed = counting(backend, lambda: OfType(Counted, word="y", times=4, note="!"))
    epochs = [WORDS, ["w1"]]
    LocalJob(changed, epochs, storage).run()

    with pytest.raises(StateNotRestorableError, match=r'state "kept" .* ask for it in open\(\)'):
        LocalJob(changed, [*epochs, WORDS], storage, parallelism=1).run()
    whole = LocalJob(changed, [*epochs, WORDS], storage).run()
    rescaled = LocalJob(changed, [*epochs, WORDS, ["w1"]], storage, parallelism=1).run()

    assert len(whole.printed_lines) == len(WORDS)
    assert rescaled.printed_lines == ["{'word': 'y', 'times': 4, 'note': '!'}"]
