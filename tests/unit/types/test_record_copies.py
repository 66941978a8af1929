"""Copies of records: nothing that can change is shared, and what cannot change is not copied."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pytest

from checkdam.types.hints import PickleType
from checkdam.types.record_copies import copier, copy_of, extending
from checkdam.types.type_info import type_info


class Colour(Enum):
    RED = 1


@dataclass
class Account:
    owner: str
    amount: int = 0


@dataclass
class Book:
    name: str
    accounts: list[Account]
    by_day: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Path:
    points: list[int]


@dataclass(slots=True)
class Slotted:
    items: list[int]
    name: str = "a"


class Named(NamedTuple):
    name: str
    items: list[int]


class Plain:
    def __init__(self) -> None:
        self.items = [1]

    def __repr__(self) -> str:
        return f"Plain({self.items})"


class Own:
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: object) -> str:
        return "a copy"


UNCHANGING = [
    *(None, True, 1, 1.5, "a", b"a", Decimal(1), date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), timedelta(1)),
    *(Colour.RED, (1, "a"), (1, (2, (3,))), frozenset({1}), Point(1, 2), len, Point, object()),
]


@pytest.mark.parametrize("value", UNCHANGING, ids=lambda value: f"{type(value).__name__} {value!r:.12}")
def test_what_cannot_change_is_not_copied(value: Any) -> None:
    assert copy_of(value) is value


CHANGING: dict[str, tuple[Any, Any, Any]] = {  # the type it is declared as, the value, and how to change it
    "a list": (list[int], [1], lambda v: v.append(2)),
    "lists in a list": (list[list[int]], [[1]], lambda v: v[0].append(2)),
    "a dict": (dict[str, int], {"a": 1}, lambda v: v.update(a=2)),
    "lists in a dict": (dict[str, list[int]], {"a": [1]}, lambda v: v["a"].append(2)),
    "a dict by dataclasses": (object, {Point(1, 2): [1]}, lambda v: v[Point(1, 2)].append(2)),
    "a set": (object, {1}, lambda v: v.add(2)),
    "a bytearray as bytes": (bytes, bytearray(b"a"), lambda v: v.append(1)),
    "a list as a tuple": (tuple[int, str], [1, "a"], lambda v: v.append(2)),
    "a list as a named tuple": (Named, ["a", [1]], lambda v: v.append(2)),
    "a list in a tuple of tuples": (tuple[int, tuple[int, int]], (1, [2, 3]), lambda v: v[1].append(2)),
    "a tuple with a list": (tuple[str, list[int]], ("a", [1]), lambda v: v[1].append(2)),
    "a named tuple": (Named, Named("a", [1]), lambda v: v.items.append(2)),
    "a dataclass": (Account, Account("a"), lambda v: setattr(v, "amount", 2)),
    "a dataclass or none": (Account | None, Account("a"), lambda v: setattr(v, "amount", 2)),
    "another class than declared": (Point, Account("a"), lambda v: setattr(v, "amount", 2)),
    "a dataclass with others": (Book, Book("b", [Account("a")]), lambda v: setattr(v.accounts[0], "amount", 2)),
    "a dataclass with a dict": (Book, Book("b", [], {"a": [1]}), lambda v: v.by_day["a"].append(2)),
    "a frozen dataclass with a list": (Path, Path([1]), lambda v: v.points.append(2)),
    "a dataclass with slots": (Slotted, Slotted([1]), lambda v: v.items.append(2)),
    "a dataclass of unknown type": (object, Book("b", [Account("a")]), lambda v: v.accounts.append(2)),
    "a class of its own": (PickleType(Plain), Plain(), lambda v: v.items.append(2)),
    "a deque": (object, deque([1]), lambda v: v.append(2)),
    "a subclass of dict": (object, OrderedDict(a=[1]), lambda v: v["a"].append(2)),
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_copy_stays_as_it_is_when_the_original_changes(name: str) -> None:
    declared, value, change = CHANGING[name]
    fixed = copier(type_info(declared))
    assert fixed is not None
    before = repr(value)

    copied, again = fixed.copy(value), copy_of(value)
    change(value)

    assert repr(value) != before
    assert (repr(copied), repr(again)) == (before, before)
    assert type(copied) is type(value)


@pytest.mark.parametrize("declared", [int, str, float, bool, datetime, date, Decimal, None, str | None, int | None])
def test_a_scalar_type_has_nothing_to_copy(declared: Any) -> None:
    assert copier(type_info(declared)) is None


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (tuple[str, int], ("a", 1)),
        (Point, Point(1, 2)),
        (bytes, b"a"),
        (tuple[str, tuple[int, int]], ("a", (1, 2))),
        (tuple[str, int] | None, None),
    ],
)
def test_a_frozen_record_of_its_declared_class_is_handed_on(declared: Any, value: Any) -> None:
    fixed = copier(type_info(declared))
    assert fixed is not None

    assert fixed.copy(value) is value


def test_what_is_yielded_is_fixed_before_the_generator_goes_on() -> None:
    def counting(account: Account) -> Any:
        for _ in range(3):
            account.amount += 1
            yield account

    produced: list[Account] = []
    extending(produced, copier(type_info(Account)))(counting(Account("a")))

    assert [each.amount for each in produced] == [1, 2, 3]


def test_what_occurs_twice_in_a_value_occurs_twice_in_its_copy() -> None:
    shared: list[Any] = [1]
    value: dict[str, Any] = {"a": shared, "b": (shared,)}
    shared.append(value)

    copied = copy_of(value)

    assert copied["a"] is copied["b"][0]
    assert copied["a"][1] is copied
    assert copied["a"] is not shared


def test_what_an_instance_holds_beside_its_fields_is_copied_too() -> None:
    account = Account("a")
    account.notes = ["x"]  # type: ignore[attr-defined]
    fixed = copier(type_info(Account))
    assert fixed is not None

    copied = fixed.copy(account)

    assert copied.notes == ["x"]
    assert copied.notes is not account.notes  # type: ignore[attr-defined]


def test_what_cannot_be_copied_is_shared_and_the_rest_is_not() -> None:
    lock = threading.Lock()
    value = {"lock": lock, "items": [1]}

    copied = copy_of(value)

    assert copied["lock"] is lock
    assert copied["items"] is not value["items"]


def test_what_cannot_be_copied_is_whole_wherever_it_occurs() -> None:
    lock = threading.Lock()
    items: list[Any] = [1, lock]
    held = OrderedDict(items=items)

    copied = copy_of([held, held, items])

    assert copied == [held, held, items]
    assert copied[2] is not items


def test_a_frozen_instance_that_holds_itself_does_so_in_its_copy() -> None:
    path = Path([])
    path.points.append(path)  # type: ignore[arg-type]

    copied: Any = copy_of(path)

    assert copied is not path
    assert copied.points[0] is copied


class AsTuple:
    """Keeps what a field is set to under another name, as a tuple."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        return () if instance is None else list(getattr(instance, self.name))

    def __set__(self, instance: object, value: Any) -> None:
        setattr(instance, self.name, tuple(value))


@dataclass
class Described:
    items: AsTuple = AsTuple()  # as the dataclasses module allows


def test_a_field_that_a_descriptor_keeps_is_copied_with_the_rest() -> None:
    value = Described([1])
    fixed = copier(type_info(Described))
    assert fixed is not None

    copied = fixed.copy(value)
    value.items = [2]

    assert copied.items == [1]


def test_a_class_may_say_how_it_is_copied() -> None:
    assert copy_of([Own()]) == ["a copy"]


def test_an_error_of_a_class_that_says_how_it_is_copied_is_told() -> None:
    class Broken:
        def __deepcopy__(self, memo: object) -> Any:
            raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        copy_of([Broken()])
