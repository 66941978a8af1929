"""register_type: classes kept in the form of another type."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import cloudpickle
import pytest

from checkdam import register_type
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.state.handle_checks import Fit
from checkdam.state.key_groups import key_group_of
from checkdam.types.evolution import Compatibility, compare
from checkdam.types.json_values import key_from_json, to_json
from checkdam.types.record_copies import Copier
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_check import is_hashable
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of


class Money:
    def __init__(self, amount: Decimal, currency: str) -> None:
        self.amount, self.currency = amount, currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.amount, self.currency))


@dataclass
class MoneyForm:
    amount: Decimal
    currency: str


@dataclass
class NewForm:
    amount: Decimal
    currency: str
    note: str = "-"


@dataclass
class Purchase:
    id: UUID
    price: Money | None
    others: dict[UUID, list[Money]]


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    register_money(MoneyForm)
    register_type(UUID, to=str, from_=UUID, schema=str, immutable=True)
    register_type(Rights, to=lambda rights: rights.value, from_=Rights, schema=int)


def register_money(form: type) -> None:
    register_type(
        Money,
        to=lambda money: form(money.amount, money.currency),
        from_=lambda kept: Money(kept.amount, kept.currency),
        schema=form,
        immutable=True,
    )


PRICE = Money(Decimal("1.50"), "EUR")
ID = UUID(int=7)
PURCHASE = Purchase(ID, None, {ID: [PRICE]})

VALUES: list[tuple[Any, Any, Any]] = [
    (Money, PRICE, {"amount": Decimal("1.50"), "currency": "EUR"}),
    (UUID, ID, str(ID)),
    (UUID | None, None, None),
    (Rights, Rights.READ | Rights.WRITE, 3),
    (tuple[UUID, int], (ID, 1), (str(ID), 1)),
    (dict[UUID, Rights], {ID: Rights.READ}, {str(ID): 1}),
    (
        Purchase,
        PURCHASE,
        {
            "id": str(ID),
            "price": None,
            "others": {str(ID): [{"amount": Decimal("1.50"), "currency": "EUR"}]},
        },
    ),
]


@pytest.mark.parametrize(("hint", "value", "plain"), VALUES)
def test_a_value_is_kept_as_its_form_which_can_be_read_without_the_class(hint: Any, value: Any, plain: Any) -> None:
    of = type_info(hint)
    by_type = serializer(of)

    data = by_type.encode_checked([value])

    assert by_type.decode(data) == [value]
    assert serializer_from_spec(by_type.spec).decode(data) == [plain]
    assert from_arrow(of, to_arrow(of, [value])) == [value]
    assert compare(by_type.spec, of).kind is Compatibility.AS_IS
    assert cloudpickle.loads(cloudpickle.dumps(of)) == of


def test_a_registered_class_can_be_a_key() -> None:
    of = type_info(Money)
    keys = serializer(of)

    assert of.is_immutable
    assert is_hashable(of)
    assert keys.encode_key(PRICE) == keys.encode_key(Money(Decimal("1.5"), "EUR"))
    assert key_group_of(ID, type_info(UUID), 128) == key_group_of(str(ID), type_info(str), 128)
    assert key_group_of(PRICE, of, 128) == key_group_of(
        (PRICE.amount, PRICE.currency), type_info(tuple[Decimal, str]), 128
    )
    assert to_json(ID, type_info(UUID)) == str(ID)
    assert key_from_json(str(ID), type_info(UUID)) == ID
    assert type_info(Rights).is_immutable
    assert Copier(of).exact is Money  # records are handed on as they are
    register_type(Money, to=str, from_=str, schema=str)
    assert not type_info(Money).is_immutable


def test_the_form_evolves() -> None:
    old = text_of(type_info(Money))

    register_money(NewForm)
    verdict = compare(old, type_info(Money))

    assert verdict.kind is Compatibility.MIGRATES
    assert verdict.convert is not None
    assert verdict.convert({"amount": Decimal(1), "currency": "EUR"}) == Money(Decimal(1), "EUR")
    assert compare(text_of(type_info(MoneyForm)), type_info(Money | None)).kind is Compatibility.MIGRATES
    assert compare(text_of(type_info(str)), type_info(Money)).kind is Compatibility.INCOMPATIBLE


def test_a_value_next_to_a_field_that_migrates_is_made_again() -> None:
    old = text_of(type_info(tuple[int, UUID]))

    verdict = compare(old, type_info(tuple[int | None, UUID]))

    assert verdict.convert is not None
    assert verdict.convert((1, str(ID))) == (1, ID)


@pytest.mark.parametrize("wrong", [str(ID), 7, PRICE])
def test_a_value_of_another_class_is_refused(wrong: Any) -> None:
    with pytest.raises(JobGraphError, match="expected UUID"):
        serializer(type_info(UUID)).encode_checked([wrong])
    with pytest.raises(StateAccessError, match="must be of type UUID"):
        Fit(type_info(UUID), "it", hint="").check(wrong)


def test_what_the_functions_raise_is_named() -> None:
    register_type(Money, to=lambda money: money.none, from_=lambda form: form["x"], schema=str)
    of = type_info(Money)

    with pytest.raises(JobGraphError, match=r"to\(\) of register_type\(Money\) failed: AttributeError"):
        serializer(of).encode_checked([PRICE])
    with pytest.raises(JobGraphError, match=r"from_\(\) of register_type\(Money\) failed for 'a': TypeError"):
        serializer(of).decode_one(b"\xa1a")


def test_a_form_that_to_does_not_give_is_refused() -> None:
    register_type(Money, to=lambda money: 1, from_=lambda form: form, schema=str)

    with pytest.raises(JobGraphError, match="does not fit the declared type Money"):
        serializer(type_info(Money)).encode_checked([PRICE])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"of": int}, "class of your own"),
        ({"of": list[int]}, "class of your own"),
        ({"to": "text"}, "needs functions"),
        ({"schema": set[int]}, r"schema is set\[int\], which cannot be a durable form"),
        ({"schema": set}, "schema is set, which cannot be a durable form"),
        ({"schema": str | None}, "cannot be a durable form"),
        ({"schema": None}, "cannot be a durable form"),
    ],
)
def test_what_cannot_be_registered_is_refused(arguments: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"of": Money, "to": str, "from_": str, "schema": str, **arguments}

    with pytest.raises(JobGraphError, match=words):
        register_type(given.pop("of"), **given)
