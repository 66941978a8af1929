"""A value of the wrong type, on the real runtime: an error of the record that brought it, whatever keeps the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from checkdam import HashMapStateBackend, RocksDBStateBackend
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import UserFunctionError
from checkdam.graph.contexts import RuntimeContext
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import LocalJob

BACKENDS = pytest.mark.parametrize(
    "backend", [HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"]
)


class Longest(KeyedProcessFunction):
    """Keeps a word where its length was meant."""

    def open(self, ctx: RuntimeContext) -> None:
        self.length = ctx.get_state(ValueStateDescriptor("length", int))

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        self.length.update(len(value) if value != "wrong" else value)  # type: ignore[arg-type]  # what is found out
        yield value


@BACKENDS
def test_a_state_that_is_given_another_type_tells_state_type_value_and_record(backend: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        stream.key_by(lambda word: word[0], key_type=str).process(Longest()).uid("longest").name("longest").print()

    with pytest.raises(UserFunctionError) as refused:
        LocalJob(build, [["a", "wrong", "b"]], MemoryStorage(), parallelism=1).run()

    assert refused.value.operator == "longest"
    assert refused.value.record == "'wrong'"
    assert 'value state "length" of operator "longest" must be of type int, but was \'wrong\'' in refused.value.cause


@BACKENDS
def test_a_reduce_that_returns_another_type_is_an_error_of_the_record_it_was_given(backend: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        stream.key_by(lambda word: word[0], key_type=str).reduce(lambda kept, added: len(kept + added)).uid(
            "lengths"
        ).name("lengths").print()

    with pytest.raises(UserFunctionError) as refused:
        LocalJob(build, [["a1", "b1", "b2"]], MemoryStorage(), parallelism=1).run()

    assert (refused.value.operator, refused.value.record) == ("lengths", "'b2'")
    assert 'what operator "lengths" keeps must be of type str, but was 4 of type int' in refused.value.cause
