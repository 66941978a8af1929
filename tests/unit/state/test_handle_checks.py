"""Which values count as of a type before they are encoded."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from checkdam.errors import StateAccessError
from checkdam.state.handle_checks import Fit, KeyFit
from checkdam.types.type_check import are_exact
from checkdam.types.type_info import type_info


class Pair(NamedTuple):
    left: int
    right: bytes


@dataclass(frozen=True)
class Frozen:
    x: int


@dataclass(frozen=True)
class Sub(Frozen):
    pass


EXACT = [
    (int, [1, True, 2**40]),
    (int | None, [1, None]),
    (Decimal, [Decimal(1)]),
    (tuple[int, bytes], [(1, b"a"), (2, b"b")]),
    (tuple[int, bytes] | None, [(1, b"a"), None]),
    (Pair, [Pair(1, b"")]),
    (Frozen, [Frozen(1)]),
    (tuple[Frozen, tuple[int, int]], [(Frozen(1), (1, 2))]),
    (list[Pair], [[Pair(1, b"")], []]),
    (dict[str, Frozen], [{"a": Frozen(1)}]),
]
OTHERS = [
    (bytes, [b"a", bytearray(b"a")]),
    (int, [[1]]),
    (tuple[int, int], [(1, 1), [1, 1]]),
    (tuple[int, bytes], [(1, bytearray(b"a"))]),
    (tuple[tuple[int, int], int], [([1, 1], 1)]),
    (Pair, [(1, b"")]),
    (Pair, [Pair(1, bytearray())]),  # type: ignore[arg-type]
    (Frozen, [{"x": 1}]),
    (Frozen, [Sub(1)]),
    (tuple[Frozen, int], [({"x": 1}, 1)]),
    (list[Pair], [[(1, b"")]]),
    (list[int], [(1,)]),
    (dict[str, int], [OrderedDict(a=1)]),
]


@pytest.mark.parametrize(("of", "values"), EXACT)
def test_values_of_the_declared_classes_at_every_depth_are_exact(of: Any, values: list[Any]) -> None:
    assert are_exact(type_info(of), values)
    assert are_exact(type_info(of), [])


@pytest.mark.parametrize(("of", "values"), OTHERS)
def test_whatever_only_looks_alike_in_bytes_is_not(of: Any, values: list[Any]) -> None:
    assert not are_exact(type_info(of), values)


@pytest.mark.parametrize(
    ("of", "key", "wrong"),
    [
        (tuple[tuple[int, int], int], ((1, 1), 1), ((True, 1), 1)),
        (tuple[tuple[int, int], int], ((1, 1), 1), ((1, "1"), 1)),
        (tuple[tuple[int, int], int], ((1, 1), 1), ([1, 1], 1)),
        (tuple[Frozen, int], (Frozen(1), 1), (Frozen(True), 1)),
        (float, 1.5, float("nan")),
        (float, 1, float("nan")),
        (tuple[str, float], ("a", 1.5), ("a", float("nan"))),
        (tuple[str, tuple[float | None, int]], ("a", (None, 1)), ("a", (float("nan"), 1))),
    ],
)
def test_keys_are_looked_at_in_depth_and_are_never_nan(of: Any, key: Any, wrong: Any) -> None:
    fit = KeyFit(type_info(of), "a key", hint="Do.")

    fit.check(key)
    with pytest.raises(StateAccessError, match="a key"):
        fit.check(wrong)


def test_a_plain_float_key_is_no_way_round_the_check() -> None:
    assert KeyFit(type_info(float), "a key", hint="Do.").exact is None
    assert KeyFit(type_info(str), "a key", hint="Do.").exact is str


@pytest.mark.parametrize(
    ("of", "value", "told"),
    [
        (int, 2**63, f"but was {2**63}, which does not fit into 64 bits"),
        (str, "\ud800", r"but was '\ud800', which cannot be encoded as UTF-8"),
        (int, "1", "but was '1' of type str"),
    ],
)
def test_a_value_of_the_right_class_that_cannot_be_kept_is_told_with_the_reason(of: Any, value: Any, told: str) -> None:
    with pytest.raises(StateAccessError) as raised:
        Fit(type_info(of), "the value", hint="…").check(value)

    assert told in raised.value.message
