"""Refuses values that are not of a state's type where a handle takes them, not when a snapshot is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.types.serializers import serializer
from checkdam.types.type_check import REFUSED, class_of, encode, has_floats, has_nan
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

_TOLD_BY_CLASS = frozenset({Kind.INT, Kind.STR, Kind.BYTES, Kind.FLOAT, Kind.BOOL, Kind.DATE, Kind.DECIMAL})
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
        is_enum = of.kind is Kind.ENUM and of.codec is not None
        self.exact = class_of(of) if is_enum or of.kind in _TOLD_BY_CLASS else None
        self.by_class = None if self.exact in (int, str) else self.exact
        self._check = serializer(of).check
        self.decode_to_check = self._check.decode_one
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
            self._check.check_one(value)
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
        decode = self._check.decode_all
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


def _outer_class(of: TypeInfo) -> type:
    """What a value must at least be an instance of: on the wire a list and a tuple, a dict and a dataclass are one."""
    if of.kind is Kind.NAMED_TUPLE:
        return tuple
    if of.kind in COMPOUND or of.kind in (Kind.LIST, Kind.MAP) or of.codec is not None:
        return class_of(of) or object
    return object  # also for PickleType: a class of the job file is another object after a restart
