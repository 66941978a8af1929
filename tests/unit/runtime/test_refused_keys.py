"""None and NaN as keys, on the real runtime: an error of the record that brings them, whatever keeps the state."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from checkdam import HashMapStateBackend, RocksDBStateBackend
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import UserFunctionError
from checkdam.runtime.slot.record_check import check_keys
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_check import holds_stray_none
from checkdam.types.type_info import type_info

BACKENDS = pytest.mark.parametrize(
    "backend", [HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"]
)


def _by_number(stream: DataStream[Any]) -> Any:
    return stream.map(float, output_type=float).key_by(lambda number: number, key_type=float)


def _by_pair(stream: DataStream[Any]) -> Any:
    return stream.map(float, output_type=float).key_by(lambda number: ("a", number), key_type=tuple[str, float])


@BACKENDS
@pytest.mark.parametrize("keyed", [_by_number, _by_pair])
def test_a_key_that_is_nan_is_refused_with_the_record(backend: Any, keyed: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        keyed(stream).reduce(lambda kept, added: kept + added).name("total").uid("total").print()

    assert LocalJob(build, [["1.5", "1.5"]], MemoryStorage(), parallelism=1).run().printed_lines == ["1.5", "3.0"]
    with pytest.raises(UserFunctionError, match=r"the key is .*nan.*, and NaN cannot be a key") as refused:
        LocalJob(build, [["1.5", "nan"]], MemoryStorage(), parallelism=1).run()
    assert (refused.value.operator, refused.value.record) == ("total", "nan")


def _named(word: str) -> tuple[str | None, int]:
    return (word or None, len(word))


def _by_column(stream: DataStream[Any]) -> Any:
    return stream.map(_named, output_type=tuple[str | None, int]).key_by(0)


def _by_captured_field(stream: DataStream[Any]) -> Any:
    return stream.map(_named, output_type=tuple[str | None, int]).key_by(lambda pair: pair[0])


def _by_function(stream: DataStream[Any]) -> Any:
    return stream.map(_named, output_type=tuple[str | None, int]).key_by(lambda pair: pair[0] or None, key_type=str)


def _by_compound(stream: DataStream[Any]) -> Any:
    key = tuple[str, int]
    return stream.map(_named, output_type=tuple[str | None, int]).key_by(lambda p: p if p[0] else None, key_type=key)


def _by_part(stream: DataStream[Any]) -> Any:
    of: Any = tuple[str, int]  # not what the function returns
    return stream.map(_named, output_type=of).key_by(lambda pair: (pair[0], pair[1]))


@BACKENDS
@pytest.mark.parametrize("keyed", [_by_column, _by_captured_field, _by_function, _by_compound, _by_part])
def test_a_key_that_is_none_is_an_error_of_its_record_whichever_way_keys_are_found(backend: Any, keyed: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        keyed(stream).reduce(lambda kept, added: kept).uid("first").name("first").print()

    with pytest.raises(UserFunctionError, match=r"the key is .*None.*filter\(\)") as refused:
        LocalJob(build, [["a", "", "b"]], MemoryStorage(), parallelism=2).run()

    assert refused.value.record == "(None, 0)"


@BACKENDS
def test_none_in_an_optional_part_is_a_key_like_any_other_also_at_another_parallelism(backend: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        counted = stream.map(lambda word: (word or None, len(word), 1), output_type=tuple[str | None, int, int])
        counted.key_by(lambda record: (record[0], record[1])).sum(2).uid("count").print()

    storage = MemoryStorage()
    LocalJob(build, [["a", "", "b", ""]], storage, parallelism=2).run()
    resumed = LocalJob(build, [["a", "", "b", ""], ["", "a"]], storage, parallelism=3).run()

    assert sorted(line.rpartition("> ")[2] for line in resumed.printed_lines) == ["('a', 1, 2)", "(None, 0, 3)"]


class Place(NamedTuple):
    city: str
    at: tuple[int | None, int] | None


@pytest.mark.parametrize(
    ("of", "good", "wrong"),
    [
        (str | None, "a", None),
        (tuple[str | None, int], (None, 1), (None, None)),
        (tuple[str, int] | None, ("a", 1), None),
        (tuple[str, int] | None, ("a", 1), ("a", None)),
        (Place, Place("a", None), Place("a", (1, None))),  # type: ignore[arg-type]
        (Place, Place("a", (None, 1)), Place(None, None)),  # type: ignore[arg-type]
    ],
)
def test_columns_and_keys_agree_on_where_none_may_be(of: Any, good: Any, wrong: Any) -> None:
    info, records = type_info(of), Batch(type_info(int), rows=[1, 2, 3])

    def keys(*found: Any) -> Batch:
        return Batch(info, columns=to_arrow(info, list(found)))

    check_keys(records, keys(good, good, good), "it")
    assert not holds_stray_none(info, good)
    assert holds_stray_none(info, wrong)
    with pytest.raises(UserFunctionError, match="the key is") as refused:
        check_keys(records, keys(good, wrong, good), "it")
    assert (refused.value.operator, refused.value.record) == ("it", "2")


def test_good_keys_are_not_turned_into_python_values() -> None:
    class Columns(Batch):
        @property
        def rows(self) -> list[Any]:
            raise AssertionError("rows were made")

    column = pa.record_batch([pa.array(["a", "b"])], names=["value"])
    check_keys(Columns(type_info(int), rows=[1, 2]), Columns(type_info(str), columns=column), "it")
