"""What a filter lets Spark leave unread: never what it might find equal."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, In
from tests.support.snapshot_files import written

from checkdam.state_reader import Savepoint
from checkdam.state_reader.spark_source import CheckdamReader
from checkdam.testing import MemoryStorage
from checkdam.testing.mounts import mount

KEY = ("key",)


def read(keys: list[Any], *filters: Filter) -> list[Any]:
    """The keys in what is read with these filters, which Spark filters again."""
    storage = MemoryStorage()
    path = written(storage, {"op": {("held", type(keys[0]), int): dict.fromkeys(keys, 1)}}, max_parallelism=16)
    uri = f"{mount(storage)}/{'/'.join(path.split('/')[-2:])}"
    reader = CheckdamReader(uri, "op", "held")
    assert list(reader.pushFilters(list(filters))) == list(filters)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    found = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert len(found) == len(set(found))
    assert set(found) <= set(Savepoint.load(uri).keyed_state("op", "held").to_arrow().column("key").to_pylist())
    return found


WORDS = [f"k{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ((EqualTo(KEY, "k7"),), {"k7"}),
        ((In(KEY, ("k7", "k8")),), {"k7", "k8"}),
        ((In(KEY, ("k7", "k8")), EqualTo(KEY, "k8")), {"k8"}),
        ((EqualTo(KEY, "nobody"),), set()),
    ],
)
def test_only_the_key_groups_of_the_keys_named_are_read(filters: tuple[Filter, ...], found: set[str]) -> None:
    keys = read(WORDS, *filters)

    assert found <= set(keys)
    assert len(keys) < len(WORDS) / 2


@pytest.mark.parametrize("value", [None, 17, ("k7",)])
def test_what_is_no_key_prunes_nothing(value: Any) -> None:
    assert sorted(read(WORDS, In(KEY, ("k7", value)))) == sorted(WORDS)


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_numbers_that_spark_finds_equal_are_read(value: float) -> None:
    assert 0.0 in read([0.0, 1.0, 2.0], EqualTo(KEY, value))


def test_a_decimal_is_found_in_whatever_scale_spark_writes_it() -> None:
    assert Decimal("1.5") in read([Decimal("1.50"), Decimal(2)], EqualTo(KEY, Decimal("1.500000000000000000")))
