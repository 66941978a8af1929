"""Type checks at state handles: a wrong value is refused when it is written, not later when a snapshot is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.types.serializers import serializer
from checkdam.types.type_check import REFUSED, class_of, encode, has_floats, has_nan
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

_CHECKED_BY_CLASS = frozenset({Kind.INT, Kind.STR, Kind.BYTES, Kind.FLOAT, Kind.BOOL, Kind.DATE, Kind.DECIMAL})
LEAST_INT, GREATEST_INT = -(2**63), 2**63 - 1


class Fit:
    """Checks values before a state accepts them.

    A value fits if the serializer accepts it for the type: a NumPy number for an int, an int for a float, a list for a
    tuple, but not a bool for an int. For a pickled value only the class is checked. None never fits, even if the type
    is optional: it means no value.
    """

    takes_none = False

    exact: type | None
    """Values of exactly this class fit, except an int of more than 64 bits and a str that cannot be encoded."""

    by_class: type | None
    """All values of exactly this class fit."""

    def __init__(self, of: TypeInfo, subject: str, *, hint: str, is_own_class: bool = False) -> None:
        """Build the check; `subject` names the checked thing in errors.

        With `is_own_class` a value must also be an instance of the declared class: a list is no tuple then.
        """
        is_enum = of.kind is Kind.ENUM and of.codec is not None
        self.exact = class_of(of) if is_enum or of.kind in _CHECKED_BY_CLASS else None
        self.by_class = None if self.exact in (int, str) else self.exact
        self._check = serializer(of).check
        self.decode_to_check = self._check.decode_one
        self._outer = _outer_class(of) if is_own_class else object
        self._of = of
        self._subject = subject
        self._hint = hint

    def check(self, value: Any) -> None:
        """Check one value.

        Raises:
            StateAccessError: it does not fit; names the subject, the type and the value.
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
        """Return a new list of the values after checking all of them."""
        found = list(values)
        self.check_all(found)
        return found

    def check_all(self, values: list[Any]) -> None:
        """Check all values; faster than `check` for each."""
        classes = set(map(type, values))
        if not classes - {self.by_class}:
            return
        decode = self._check.decode_all
        if decode is not None and self._outer is object and (self.takes_none or type(None) not in classes):
            with contextlib.suppress(*REFUSED):  # the culprit is found below
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
    """As `Fit`, for elements of lists and values of maps: None fits if the type is optional."""

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        super().__init__(of, subject, hint=hint)
        self.takes_none = _allows_none(of)

    def _misfit(self, value: Any) -> StateAccessError:
        if value is not None:
            return super()._misfit(value)
        return StateAccessError(f"{self._subject} was None", hint=f"Leave it out, or declare {self._of.name} | None.")


class KeyFit(Fit):
    """As `Fit`, for map keys, which must also be hashable. None fits if the type is None or optional. A key must not
    be or contain NaN, which is not equal to itself.

    A key of the class `exact` can be looked up without a check.
    """

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        super().__init__(of, subject, hint=hint, is_own_class=True)
        self.takes_none = _allows_none(of)
        self._has_floats = has_floats(of)
        if self._has_floats:
            self.exact = self.by_class = None  # every key must be inspected

    def check(self, value: Any) -> None:
        super().check(value)
        try:
            hash(value)
        except TypeError as refusal:
            raise self._misfit(value) from refusal
        if self._has_floats and has_nan(self._of, value):
            raise StateAccessError(
                f"{self._subject} is {ascii(value)[:200]}: NaN cannot be a key, because it equals no value",
                hint="Leave such records out, or let another value stand for them.",
            )


def _outer_class(of: TypeInfo) -> type:
    """Return the class that values must be instances of: encoded, a list equals a tuple, a dict a dataclass."""
    if of.kind is Kind.NAMED_TUPLE:
        return tuple
    if of.kind in COMPOUND or of.kind in (Kind.LIST, Kind.MAP) or of.codec is not None:
        return class_of(of) or object
    return object  # also for PickleType: a class of the job file is a different object after a restart
