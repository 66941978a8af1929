"""Whether a value is of a declared type, told where it is handed over instead of when a snapshot is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.types.rows import columns_of
from checkdam.types.serializers import REFUSED, encode, serializer
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo, fields_of

UNCHANGING = frozenset({int, str, bytes, float, bool, datetime, date, Decimal, type(None)})
_CLASSES: dict[Kind, type] = {
    Kind.INT: int,
    Kind.STR: str,
    Kind.BYTES: bytes,
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.DATETIME: datetime,
    Kind.DATE: date,
    Kind.DECIMAL: Decimal,
    Kind.LIST: list,
    Kind.MAP: dict,
}
_TOLD_BY_CLASS: dict[Kind, type] = {
    kind: _CLASSES[kind] for kind in (Kind.INT, Kind.STR, Kind.BYTES, Kind.FLOAT, Kind.BOOL, Kind.DATE, Kind.DECIMAL)
}
LEAST_INT, GREATEST_INT = -(2**63), 2**63 - 1


class Fit:
    """Refuses values that are not of a type where they are handed over, before a state takes them.

    A value fits if the serializer takes it for one of the type: a NumPy number for an int, an int for a float, a list
    for a tuple, but no bool for an int. Of a pickled value only the class is checked. None never fits, also where the
    type is optional: it stands for no value.
    """

    takes_none = False

    exact: type | None
    """Values of exactly this class fit, but for an int of more than 64 bits and a str that cannot be encoded."""

    by_class: type | None
    """Values of exactly this class fit, whatever they are."""

    def __init__(self, of: TypeInfo, subject: str, *, hint: str, is_own_class: bool = False) -> None:
        """`subject` names in errors what has to be of the type.

        With `is_own_class` it must also be of the declared class itself, or a subclass: no list for a tuple.
        """
        self.exact = of.maker if of.kind is Kind.ENUM and of.codec is not None else _TOLD_BY_CLASS.get(of.kind)
        self.by_class = None if self.exact in (int, str) else self.exact
        self._serializer = serializer(of)
        self.decode_to_check = self._serializer.decode_to_check
        self._outer = _outer_class(of) if is_own_class else object
        self._of = of
        self._subject = subject
        self._hint = hint

    def check(self, value: Any) -> None:
        """
        Raises:
            StateAccessError: naming the subject, the type and what came instead.
        """
        if (kind := type(value)) is self.exact and (
            (kind is not int or LEAST_INT <= value <= GREATEST_INT) and (kind is not str or value.isascii())
        ):
            return
        if value is None:
            if not self.takes_none:
                raise self._misfit(value)
            return
        if not isinstance(value, self._outer):
            raise self._misfit(value)
        if self.decode_to_check is not None:
            try:
                self.decode_to_check(encode(value))
            except REFUSED as refusal:
                raise self._misfit(value) from refusal
            return
        try:
            self._serializer.check_one(value)
        except JobGraphError as refusal:
            raise self._misfit(value) from refusal

    def checked(self, values: Iterable[Any]) -> list[Any]:
        """A list of their own, with all of them checked."""
        found = list(values)
        self.check_all(found)
        return found

    def check_all(self, values: list[Any]) -> None:
        """As `check` for each of them, in less time."""
        classes = set(map(type, values))
        if not classes - {self.by_class}:
            return
        decode = self._serializer.decode_all_to_check
        if decode is not None and self._outer is object and (self.takes_none or type(None) not in classes):
            with contextlib.suppress(*REFUSED):  # which of them it is, is found below
                decode(encode(values))
                return
        for value in values:
            self.check(value)

    def _misfit(self, value: Any) -> StateAccessError:
        came = "None" if value is None else f"{ascii(value)[:200]} of type {type(value).__name__}"
        if self.exact in (int, str) and type(value) is self.exact:
            why = "does not fit into 64 bits" if self.exact is int else "cannot be encoded as UTF-8"
            came = f"{ascii(value)[:200]}, which {why}"
        return StateAccessError(f"{self._subject} must be of type {self._of.name}, but was {came}", hint=self._hint)


def _allows_none(of: TypeInfo) -> bool:
    return of.nullable or of.kind is Kind.NONE


class ElementFit(Fit):
    """The same for elements of lists and values of maps, where None fits if the type is optional."""

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        super().__init__(of, subject, hint=hint)
        self.takes_none = _allows_none(of)

    def _misfit(self, value: Any) -> StateAccessError:
        if value is not None:
            return super()._misfit(value)
        return StateAccessError(f"{self._subject} was None", hint=f"Leave it out, or declare {self._of.name} | None.")


class KeyFit(Fit):
    """The same for map keys, which must be hashable too. None fits if the type is None or optional. No key is or holds
    NaN, which is not even equal to itself.

    A key of the class `exact` may be looked up without a check.
    """

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        super().__init__(of, subject, hint=hint, is_own_class=True)
        self.takes_none = _allows_none(of)
        self._has_floats = has_floats(of)
        if self._has_floats:
            self.exact = self.by_class = None  # each has to be looked at

    def check(self, value: Any) -> None:
        super().check(value)
        try:
            hash(value)
        except TypeError as refusal:
            raise self._misfit(value) from refusal
        if self._has_floats and has_nan(self._of, value):
            raise StateAccessError(
                f"{self._subject} is {ascii(value)[:200]}, and NaN cannot be looked up by",
                hint="Leave such records out, or let another value stand for them.",
            )


def are_exact(of: TypeInfo, values: Sequence[Any]) -> bool:
    """Whether all values are of the classes that the type names, at every depth and without any other in between.

    What can never change does for any scalar: whether it is the right one, the serializer tells.
    """
    kinds = set(map(type, values))
    if of.nullable and type(None) in kinds:
        values = [value for value in values if value is not None]
        kinds.discard(type(None))
    if not kinds or of.kind in (Kind.PICKLE, Kind.AVRO):
        return True
    if of.codec is not None:
        return kinds == {of.maker}
    if not of.fields:
        return kinds <= UNCHANGING
    if kinds != {_class_of(of)}:
        return False
    if of.kind is Kind.LIST:
        return are_exact(of.fields[0][1], list(chain.from_iterable(values)))
    if of.kind is Kind.MAP:
        items = chain.from_iterable(map(dict.values, values))
        return are_exact(of.fields[0][1], list(chain.from_iterable(values))) and are_exact(of.fields[1][1], list(items))
    if of.kind is not Kind.DATACLASS:
        if not any(each.fields or each.kind is Kind.PICKLE or each.codec is not None for _, each in of.fields):
            return set(map(type, chain.from_iterable(values))) <= UNCHANGING  # a seal waits for this: one pass for all
        if set(map(len, values)) != {len(of.fields)}:
            return False
    columns = columns_of(of, values)
    return all(are_exact(each, column) for (_, each), column in zip(of.fields, columns, strict=True))


def has_floats(of: TypeInfo) -> bool:
    return any(each.kind is Kind.FLOAT or (each.form is not None and has_floats(each.form)) for each in fields_of(of))


def has_nan(of: TypeInfo, value: Any) -> bool:
    """Whether a value of the type is NaN, or a compound that holds NaN."""
    if value is None:
        return False
    if of.codec is not None and of.form is not None:
        return has_nan(of.form, of.codec.to(value))
    if of.kind in COMPOUND:
        inner = zip(of.fields, columns_of(of, [value]), strict=True)
        return any(has_nan(each, part) for (_, each), (part,) in inner)
    return of.kind is Kind.FLOAT and bool(value != value)


def is_hashable(of: TypeInfo) -> bool:
    """Whether values of the type can be looked up by."""
    return not any(
        each.kind in (Kind.LIST, Kind.MAP, Kind.PICKLE, Kind.AVRO)
        or (each.kind in (Kind.DATACLASS, Kind.REGISTERED) and getattr(each.maker, "__hash__", None) is None)
        for each in fields_of(of)
    )


def _class_of(of: TypeInfo) -> type | None:
    if of.kind is Kind.PICKLE:
        kept: type = of.hint.of
        return kept
    found = of.maker if of.kind in COMPOUND or of.codec is not None else _CLASSES.get(of.kind)
    return found if isinstance(found, type) else None


def _outer_class(of: TypeInfo) -> type:
    """What a value must at least be an instance of: on the wire a list and a tuple, a dict and a dataclass are one."""
    if of.kind is Kind.NAMED_TUPLE:
        return tuple
    if of.kind in COMPOUND or of.kind in (Kind.LIST, Kind.MAP) or of.codec is not None:
        return _class_of(of) or object
    return object  # also for PickleType: a class of the job file is another object after a restart
