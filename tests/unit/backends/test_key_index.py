from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkdam.backends.key_index import KeyIndex, _WordTable
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import type_info


class Color(Enum):
    RED = 1
    BLUE = 2


def numbered(of: Any, batches: list[list[Any]]) -> tuple[KeyIndex, list[list[int]]]:
    index, key_type = KeyIndex(type_info(of)), type_info(of)
    found = [index.numbers(Batch(key_type, columns=to_arrow(key_type, keys))).tolist() for keys in batches]
    return index, found


def expected(batches: list[list[Any]]) -> list[list[int]]:
    known: dict[Any, int] = {}
    return [[known.setdefault(key, len(known)) for key in keys] for keys in batches]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["a", "a\0", "a\0\0", "", "\0", "x" * 63])
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXTS),
    (int, INTEGERS),
    (bytes, st.binary(max_size=3)),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False)),
    (date, st.dates()),
    (Color, st.sampled_from(list(Color))),
    (tuple[str, int], st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))),
    (str | None, st.none() | st.sampled_from(["a", "b"])),
]


@pytest.mark.parametrize(("of", "keys"), TYPED, ids=[str(of) for of, _ in TYPED])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_keys_get_the_numbers_that_a_dict_would_give(of: Any, keys: st.SearchStrategy[Any], data: Any) -> None:
    batches = data.draw(st.lists(st.lists(keys, max_size=12), max_size=5))

    index, found = numbered(of, batches)

    assert found == expected(batches)
    assert index.keys == list(dict.fromkeys(key for batch in batches for key in batch))


@settings(deadline=None)
@given(st.lists(st.lists(TEXTS | st.just("y" * 200), max_size=8), max_size=5))
@example([["a"], ["b" * 65, "a"], ["b" * 65, "c"]])
@example([["a" * 8, "a" * 7], ["a" * 9, "a" * 64, "a" * 8]])
def test_numbers_stay_when_longer_keys_come(batches: list[list[str]]) -> None:
    assert numbered(str, batches)[1] == expected(batches)


@pytest.mark.parametrize("of", [str, int])
def test_many_keys_are_found_again(of: Any) -> None:
    keys = [of(number) for number in range(-30_000, 30_000)]
    index, [first, again] = numbered(of, [keys, keys[::-1]])

    assert first == list(range(60_000))
    assert again == first[::-1]
    assert index.keys == keys


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_strings_are_read_from_slices_of_any_layout(arrow_type: pa.DataType) -> None:
    of = type_info(str)
    column = pa.array(["left out", "a", "bc", "a", "left out"], arrow_type).slice(1, 3)
    index = KeyIndex(of)

    found = index.numbers(Batch(of, columns=pa.record_batch([column], names=["value"])))

    assert found.tolist() == [0, 1, 0]
    assert index.keys == ["a", "bc"]


def test_distinct_keys_are_in_order_of_their_first_record() -> None:
    index, [found] = numbered(str, [["c", "a", "b"]])

    numbers, firsts, place = index.distinct(np.array([2, 0, 2, 1, 0]))

    assert found == [0, 1, 2]
    assert numbers.tolist() == [2, 0, 1]
    assert firsts.tolist() == [0, 1, 3]
    assert place.tolist() == [0, 1, 0, 2, 1]


@settings(deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=12), max_size=4))
@example([["12345678a", "12345678b", "12345678c"], ["12345678c", "12345678b", "12345678a"]])
def test_keys_of_the_same_hash_are_told_apart(batches: list[list[str]]) -> None:
    def same_for_all(table: Any, words: list[Any]) -> Any:
        return np.full(len(words[0]), len(table._slots) - 2, np.int64)  # so that probing goes past the end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_WordTable, "_home", same_for_all)

        assert numbered(str, batches)[1] == expected(batches)
