"""The types that a class names as parameters of its base, through any number of classes between the two."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pytest

from checkdam.types.type_arguments import type_argument

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")


class Base(Generic[I, O]): ...


class Direct(Base[int, str]): ...


class Below(Direct): ...


class Swapped(Base[O, I], Generic[I, O]): ...


class SwappedBack(Swapped[int, str]): ...


class Many(Base[T, list[T]]): ...


class ManyInts(Many[int]): ...


class Mixin: ...


class Mixed(Mixin, Base[int, dict[str, int]]): ...


class Bare(Base): ...  # type: ignore[type-arg]  # as users may


class Forward(Base[int, "Later"]): ...


class Untold(Base[int, Any]): ...


class Nothing(Base[int, None]): ...


class Later: ...


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Direct, str),
        (Below, str),
        (SwappedBack, int),
        (ManyInts, list[int]),
        (Mixed, dict[str, int]),
        (Bare, None),
        (Base, None),
        (Many, None),
        (Swapped, None),
        (Forward, None),
        (Untold, None),
        (Nothing, None),
    ],
)
def test_the_argument_is_what_the_class_names_and_none_where_it_names_nothing(of: type, expected: Any) -> None:
    assert type_argument(of, Base, O) == expected
