"""apply_to_keyed_state: the broadcast side reads and changes the state of every key of its subtask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from checkdam import (
    BroadcastContext,
    BroadcastProcessFunction,
    HashMapStateBackend,
    KeyedBroadcastProcessFunction,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyContext,
    RocksDBStateBackend,
    ValueState,
    ValueStateDescriptor,
)
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.errors import StateRequestError
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import Build, Heard, LocalJob
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.types.type_info import type_info

COMMANDS = MapStateDescriptor("commands", str, str)
TOTAL = ValueStateDescriptor("total", int, default=0)
SEEN = ListStateDescriptor("seen", int)
WORDS = [f"w{number}" for number in range(12)]

Item = tuple[str, int]


@pytest.fixture(params=[HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    found: KeyedStateBackend = request.param
    return found


class Account(KeyedBroadcastProcessFunction):
    """Adds up what each key is given; a command doubles all totals, reports them or closes those below 4."""

    def process_element(self, value: Item, ctx: ReadOnlyContext) -> None:
        total, seen = ctx.get_state(TOTAL), ctx.get_list_state(SEEN)
        total.update(total.value() + value[1])
        seen.add(value[1])

    def process_broadcast_element(self, value: str, ctx: BroadcastContext[str]) -> Iterator[str]:
        reported: list[str] = []

        def close(key: str, total: ValueState[int]) -> None:
            if total.value() < 4:
                total.clear()
                ctx.get_list_state(SEEN).clear()

        def report(key: str, seen: ListState[int]) -> None:
            reported.append(f"{key} {ctx.get_state(TOTAL).value()} {seen.get()}")

        if value == "double":
            ctx.apply_to_keyed_state(TOTAL, lambda key, total: total.update(2 * total.value()))
        elif value == "close":
            ctx.apply_to_keyed_state(TOTAL, close)
        else:
            ctx.apply_to_keyed_state(SEEN, report)
        yield from reported


def accounts(backend: KeyedStateBackend, *commands: list[str]) -> Build:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        spec = ScriptedSource(tuple(map(tuple, commands)))
        told = env._source("commands", spec, type_info(str)).broadcast(COMMANDS)
        by_word = stream.key_by(lambda item: item[0], key_type=str)
        by_word.connect(told).process(Account(), output_type=str).uid("accounts").print()

    return build


def run(build: Build, storage: MemoryStorage, *epochs: list[Item], parallelism: int = 2) -> list[str]:
    return printed(LocalJob(build, epochs, storage, parallelism=parallelism, record_type=tuple[str, int]).run())


def printed(heard: Heard) -> list[str]:
    return sorted(line.rpartition("> ")[2] for line in heard.printed_lines)


def test_every_key_of_every_subtask_is_read_and_changed_also_after_a_restore_with_another_parallelism(
    backend: KeyedStateBackend,
) -> None:
    storage = MemoryStorage()
    items: list[Item] = [(word, number) for number, word in enumerate(WORDS)]
    first = [[], ["double"], ["report"], ["close"]]
    reported = run(accounts(backend, *first), storage, items, [], [], [])

    again = run(accounts(backend, *first, ["double", "report"]), storage, items, [], [], [], [], parallelism=3)

    assert reported == sorted(f"w{number} {2 * number} [{number}]" for number in range(12))
    assert again == sorted(f"w{number} {4 * number} [{number}]" for number in range(2, 12))


class Misled(KeyedBroadcastProcessFunction):
    DESCRIPTOR: Any = "total"

    def process_element(self, value: Item, ctx: Any) -> None:
        """Keep nothing."""

    def process_broadcast_element(self, value: str, ctx: BroadcastContext) -> None:
        ctx.apply_to_keyed_state(self.DESCRIPTOR, print)


class WithoutKeys(BroadcastProcessFunction):
    process_element = Misled.process_element
    process_broadcast_element = Misled.process_broadcast_element
    DESCRIPTOR = TOTAL


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (Misled(), "operator \"op\" calls apply_to_keyed_state\\(\\) with 'total', which takes the descriptor"),
        (WithoutKeys(), r'operator "op" \(connect\): apply_to_keyed_state.* where the other stream has no keys'),
    ],
)
def test_wrong_use_is_a_clear_error_and_not_tried_again(function: Any, told: str) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        commands = env._source("commands", ScriptedSource((("x",),)), type_info(str)).broadcast(COMMANDS)
        items = stream.key_by(lambda item: item[0], key_type=str) if isinstance(function, Misled) else stream
        items.connect(commands).process(function, output_type=str).uid("op").print()

    job = LocalJob(build, [[("a", 1)]], MemoryStorage(), record_type=tuple[str, int])

    with pytest.raises(StateRequestError, match=told):
        job.run()

    assert job.heard.restarts == []
