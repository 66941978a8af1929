"""A slot and Spark's shuffle must place every key alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from checkdam.state.key_groups import key_groups, key_hasher
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import named_tuple_type, type_info

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@dataclass(frozen=True)
class Item:
    color: str
    shape: int | None


class Pair(NamedTuple):
    word: str
    day: date


_random = random.Random(3)
_moment = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
_words = ["", "a", "stream", "naïve", "水坝", "x" * 31, "y" * 32, "z" * 33, "🌊" * 40, "\0"]
_numbers = [0, 1, -1, 42, 2**63 - 1, -(2**63), *[_random.getrandbits(64) - 2**63 for _ in range(50)]]
_floats = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308]
_decimals = [
    Decimal(text)
    for text in [
        "0",
        "1.5",
        "-1.5",
        "12345678901234567890.123456789012345678",
        "-0.000000000000000001",
        "128e-18",
        "-128e-18",
        "127e-18",
        "-129e-18",
        "255e-18",
        "256e-18",
    ]
]
_dates = [date(1970, 1, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)]
_narrow = named_tuple_type(
    pa.schema(
        [("a", pa.int32()), ("b", pa.int16()), ("c", pa.float32()), ("d", pa.decimal128(10, 2)), ("e", pa.int8())]
    )
)

_cases: list[tuple[Any, list[Any]]] = [
    (str, _words),
    (bytes, [word.encode() for word in _words]),
    (int, _numbers),
    (bool, [True, False]),
    (float, _floats),
    (datetime, [_moment, _moment - timedelta(days=40_000), datetime(1970, 1, 1, tzinfo=UTC)]),
    (date, _dates),
    (Decimal, _decimals),
    (str | None, ["a", None]),
    (tuple[str, int], [(word, number) for word, number in zip(_words, _numbers, strict=False)]),
    (tuple[int, str | None, bool], [(1, None, True), (2, "b", False)]),
    (tuple[str, tuple[int, str]], [("a", (1, "b")), ("c", (2, "d"))]),
    (list[int], [[1, 2, 3], [], [4]]),
    (Item, [Item("red", 1), Item("blue", None)]),
    (Pair, [Pair(word, day) for word, day in zip(_words, _dates, strict=False)]),
    (_narrow, [_narrow.hint(1, -2, 1.5, Decimal("3.25"), -4), _narrow.hint(None, 7, -0.0, Decimal("-0.01"), 0)]),
]


@pytest.mark.parametrize(("hint", "keys"), _cases, ids=[type_info(hint).name for hint, _ in _cases])
def test_a_key_has_the_hash_and_group_that_spark_gives_it(session: SparkSession, hint: Any, keys: list[Any]) -> None:
    of = type_info(hint)
    columns = ", ".join(f"`{column.name}`" for column in of.columns)
    frame = session.createDataFrame(pa.Table.from_batches([to_arrow(of, keys)]))

    rows = frame.selectExpr(f"xxhash64({columns}) h", f"pmod(xxhash64({columns}), 128) g").collect()

    assert list(map(key_hasher(of), keys)) == [row.h for row in rows]
    assert key_groups(keys, of, 128).tolist() == [row.g for row in rows]
