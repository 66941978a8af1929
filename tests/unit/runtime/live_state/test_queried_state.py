"""A state as a client knows it, from the text of its types alone, finds keys where the job has them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from checkdam import register_type
from checkdam.runtime.live_state.queried_state import QueriedState
from checkdam.runtime.live_state.query_messages import StateFacts
from checkdam.state.state_count import StateCount
from checkdam.types.json_values import key_from_json, to_json
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of, type_from_text


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Pair(NamedTuple):
    first: str
    second: int


@dataclass(frozen=True)
class User:
    name: str
    born: date


@dataclass(frozen=True)
class Account:
    user: User
    numbers: tuple[int, str]


@dataclass(frozen=True)
class Spelled:
    word: str


register_type(Spelled, to=lambda key: key.word, from_=Spelled, schema=str, immutable=True)

ADA = User("ada", date(1815, 12, 10))
KEYS: list[tuple[Any, Any]] = [
    (str, "w7"),
    (str, "ä" * 40),
    (int, -(2**63)),
    (int, 12),
    (bytes, b"\x00\xff"),
    (float, -0.0),
    (float, 1e300),
    (bool, True),
    (datetime, datetime(2024, 5, 1, 12, 0, 0, 17, tzinfo=UTC)),
    (date, date(2024, 5, 1)),
    (Decimal, Decimal("1.50")),
    (Colour, Colour.BLUE),
    (tuple[str, int], ("a", 1)),
    (tuple[str, tuple[int, Colour]], ("a", (1, Colour.RED))),
    (Pair, Pair("a", 1)),
    (User, ADA),
    (Account, Account(ADA, (1, "x"))),
    (Spelled, Spelled("word")),
    (str | None, None),
    (str | None, "w"),
]


@pytest.mark.parametrize(("of", "key"), KEYS, ids=repr)
def test_a_key_has_the_same_bytes_and_the_same_place(of: Any, key: Any) -> None:
    facts = StateFacts("uid", "name", "value", text_of(type_info(int)), None, None, False, StateCount())
    own = type_info(of)
    in_job, outside = (QueriedState(facts, each, 3, 128) for each in (own, type_from_text(text_of(own))))

    told = key_from_json(to_json(key, own), outside.key_type)

    assert outside.encoded(told) == in_job.encoded(key)
    assert outside.key_group_of(told) == in_job.key_group_of(key)
    assert to_json(told, outside.key_type) == to_json(key, own)
