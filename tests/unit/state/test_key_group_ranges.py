"""Key groups: the ranges of subtasks, and the hash that places a key."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from checkdam.errors import JobGraphError
from checkdam.state.key_groups import (
    DEFAULT_MAX_PARALLELISM,
    KeyGroupRange,
    key_group_of,
    key_group_range,
    key_groups,
    key_hasher,
    subtask_of,
)
from checkdam.types.type_info import type_info


@pytest.mark.parametrize("max_parallelism", [1, 7, 128, 4096])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 100])
def test_every_key_group_lies_in_the_range_of_its_subtask_and_no_other(parallelism: int, max_parallelism: int) -> None:
    parallelism = min(parallelism, max_parallelism)

    ranges = [key_group_range(subtask, parallelism, max_parallelism) for subtask in range(parallelism)]

    assert [group for each in ranges for group in each] == list(range(max_parallelism))
    for group in range(max_parallelism):
        assert [i for i, each in enumerate(ranges) if group in each] == [
            subtask_of(group, parallelism, max_parallelism)
        ]


def test_ranges_are_those_of_flink() -> None:
    assert [key_group_range(i, 3, 128) for i in range(3)] == [
        KeyGroupRange(0, 42),
        KeyGroupRange(43, 85),
        KeyGroupRange(86, 127),
    ]


def test_a_range_includes_both_ends() -> None:
    owned = KeyGroupRange(3, 5)

    assert list(owned) == [3, 4, 5]
    assert len(owned) == 3
    assert 5 in owned
    assert 6 not in owned
    assert len(KeyGroupRange(0, -1)) == 0


def test_hashes_stay_those_that_spark_gave() -> None:
    assert key_hasher(type_info(str))("stream") == -967371225967720174
    assert key_hasher(type_info(int))(1) == -7001672635703045582
    assert key_hasher(type_info(tuple[str, int]))(("stream", 1)) == 5087756914050607107


def test_the_bulk_hash_of_integers_is_the_hash_of_each() -> None:
    numbers = [random.Random(7).getrandbits(64) - 2**63 for _ in range(500)] + [0, -1, 2**63 - 1, -(2**63)]
    hasher = key_hasher(type_info(int))

    groups = key_groups(numbers, type_info(int), DEFAULT_MAX_PARALLELISM)

    assert groups.tolist() == [hasher(number) % DEFAULT_MAX_PARALLELISM for number in numbers]


@pytest.mark.parametrize(
    ("hint", "one", "other"),
    [
        (float, 0.0, -0.0),
        (float, 1, 1.0),
        (Decimal, Decimal("1.5"), Decimal("1.50")),
        (datetime, datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_equal_keys_share_a_hash(hint: Any, one: Any, other: Any) -> None:
    assert one == other

    assert key_hasher(type_info(hint))(one) == key_hasher(type_info(hint))(other)


@pytest.mark.parametrize("hint", [str, int, tuple[str, int]])
def test_no_keys_have_no_groups(hint: Any) -> None:
    assert key_groups([], type_info(hint), 128).tolist() == []


@pytest.mark.parametrize("hint", [str, int, str | None])
def test_none_among_the_keys_is_placed_by_the_seed(hint: Any) -> None:
    assert key_group_of(None, type_info(hint), 128) == 42


@pytest.mark.parametrize(
    ("hint", "keys", "offender"),
    [
        (int, [1, "a"], "'a'"),
        (int, [1, True], "True"),
        (int, [2**63], str(2**63)),
        (int, [1.5], "1.5"),
        (str, ["a", 1], "1"),
        (bool, [1], "1"),
        (tuple[int, int], [(1,)], "(1,)"),
        (Decimal, [Decimal("1e-19")], "1E-19"),
    ],
)
def test_a_key_that_is_not_of_its_type_is_named(hint: Any, keys: list[Any], offender: str) -> None:
    with pytest.raises(JobGraphError, match="does not fit the declared key type") as caught:
        key_groups(keys, type_info(hint), 128)

    assert offender in str(caught.value)


@pytest.mark.parametrize("hint", [object, dict[str, int], tuple[str, object]])
def test_a_type_that_spark_cannot_hash_is_refused(hint: Any) -> None:
    with pytest.raises(JobGraphError, match="cannot be hashed"):
        key_hasher(type_info(hint))
