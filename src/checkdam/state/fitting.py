"""Whether a value is of a declared type, told where it is handed over instead of when a snapshot is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.state.rows import columns_of
from checkdam.state.serializers import Serializer, serializer
from checkdam.state.types import COMPOUND, Kind, TypeInfo, fields_of

_UNCHANGING = frozenset({int, str, bytes, float, bool, datetime, date, Decimal, type(None)})
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


class Fit:
    """Refuses values that are not of a type, at the price of comparing classes for those that are.

    A value whose class is `exact` fits; callers compare that first and call `check` for all others. Compounds are
    compared field by field, one level deep: what lies deeper is the snapshot's to find. A value of another class fits
    where the serializer takes it for one of the type: a NumPy number for an int, an int for a float, but no bool.
    None never fits, also where the type is optional.
    """

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        """`subject` names in errors what has to be of the type."""
        self._of = of
        self._subject = subject
        self._hint = hint
        self.exact: type | None = None if of.kind in COMPOUND else _class_of(of)
        self._layout = _layout(of) if of.kind in COMPOUND else None

    def check(self, value: Any) -> None:
        """
        Raises:
            StateAccessError: naming the subject, the type and what came instead.
        """
        if self._layout is not None:
            of_class, fields, classes = self._layout
            if type(value) is of_class and tuple(map(type, fields(value))) == classes:
                return
        elif self.exact is not None and type(value) is self.exact:
            return
        self._look_closely(value)

    def _look_closely(self, value: Any) -> None:
        if value is None or not isinstance(value, _outer_class(self._of)):
            raise self._misfit(value)
        if self._of.kind is Kind.PICKLE:
            return
        try:
            self._serializer.encode_checked([value])
        except JobGraphError as refusal:
            raise self._misfit(value) from refusal

    @cached_property
    def _serializer(self) -> Serializer:
        return serializer(self._of)

    def _misfit(self, value: Any) -> StateAccessError:
        came = "None" if value is None else f"{ascii(value)[:200]} of type {type(value).__name__}"
        return StateAccessError(f"{self._subject} must be of type {self._of.name}, but was {came}", hint=self._hint)


class KeyFit(Fit):
    """The same for keys at any depth, since keys of another type are looked up in vain. They must be hashable too.

    No key is or holds NaN, which is not even equal to itself.
    """

    def __init__(self, of: TypeInfo, subject: str, *, hint: str) -> None:
        super().__init__(of, subject, hint=hint)
        self._has_floats = has_floats(of)
        self._is_deep = self._has_floats or any(each.kind in COMPOUND for _, each in of.fields)
        if self._has_floats:
            self.exact = None  # each has to be looked at

    def check(self, value: Any) -> None:
        if not self._is_deep:
            super().check(value)
        elif not _has_classes(self._of, value):
            self._look_closely(value)
        if self._has_floats and has_nan(self._of, value):
            raise StateAccessError(
                f"{self._subject} is {ascii(value)[:200]}, and NaN cannot be looked up by",
                hint="Leave such records out, or let another value stand for them.",
            )

    def _look_closely(self, value: Any) -> None:
        super()._look_closely(value)
        try:
            hash(value)
        except TypeError as refusal:
            raise self._misfit(value) from refusal


def are_exact(of: TypeInfo, values: Sequence[Any]) -> bool:
    """Whether all values are of the classes that the type names, at every depth and without any other in between.

    What can never change does for any scalar: whether it is the right one, the serializer tells.
    """
    kinds = set(map(type, values))
    if of.nullable and type(None) in kinds:
        values = [value for value in values if value is not None]
        kinds.discard(type(None))
    if not kinds or of.kind is Kind.PICKLE:
        return True
    if not of.fields:
        return kinds <= _UNCHANGING
    if kinds != {_class_of(of)}:
        return False
    if of.kind is Kind.LIST:
        return are_exact(of.fields[0][1], list(chain.from_iterable(values)))
    if of.kind is Kind.MAP:
        items = chain.from_iterable(map(dict.values, values))
        return are_exact(of.fields[0][1], list(chain.from_iterable(values))) and are_exact(of.fields[1][1], list(items))
    if of.kind is not Kind.DATACLASS:
        if not any(each.fields or each.kind is Kind.PICKLE for _, each in of.fields):
            return set(map(type, chain.from_iterable(values))) <= _UNCHANGING  # a seal waits for this: one pass for all
        if set(map(len, values)) != {len(of.fields)}:
            return False
    columns = columns_of(of, values)
    return all(are_exact(each, column) for (_, each), column in zip(of.fields, columns, strict=True))


def _has_classes(of: TypeInfo, value: Any) -> bool:
    """Whether a key is of exactly the declared classes, at every depth."""
    found: Any = type(value)
    if found is not _class_of(of):
        return False
    if of.kind not in COMPOUND:
        return True
    parts = [getattr(value, name) for name, _ in of.fields] if of.kind is Kind.DATACLASS else value
    if len(parts) != len(of.fields):
        return False
    return all(_has_classes(each, part) for (_, each), part in zip(of.fields, parts, strict=True))


def has_floats(of: TypeInfo) -> bool:
    return any(each.kind is Kind.FLOAT for each in fields_of(of))


def has_nan(of: TypeInfo, value: Any) -> bool:
    """Whether a value of the type is NaN, or a compound that holds NaN."""
    if value is None:
        return False
    if of.kind in COMPOUND:
        inner = zip(of.fields, columns_of(of, [value]), strict=True)
        return any(has_nan(each, part) for (_, each), (part,) in inner)
    return of.kind is Kind.FLOAT and bool(value != value)


def is_hashable(of: TypeInfo) -> bool:
    """Whether values of the type can be looked up by."""
    return not any(
        each.kind in (Kind.LIST, Kind.MAP, Kind.PICKLE)
        or (each.kind is Kind.DATACLASS and getattr(each.maker, "__hash__", None) is None)
        for each in fields_of(of)
    )


def _class_of(of: TypeInfo) -> type | None:
    if of.kind is Kind.PICKLE:
        kept: type = of.hint.of
        return kept
    found = of.maker if of.kind in COMPOUND else _CLASSES.get(of.kind)
    return found if isinstance(found, type) else None


def _outer_class(of: TypeInfo) -> type:
    """What a value must at least be an instance of: on the wire a list and a tuple, a dict and a dataclass are one."""
    if of.kind is Kind.NAMED_TUPLE:
        return tuple
    if of.kind in COMPOUND or of.kind in (Kind.LIST, Kind.MAP, Kind.PICKLE):
        return _class_of(of) or object
    return object


def _layout(of: TypeInfo) -> tuple[type | None, Callable[[Any], Iterable[Any]], tuple[type | None, ...]]:
    """The class of a compound, a way to its fields, and their classes."""
    fields: Callable[[Any], Iterable[Any]] = iter
    if of.kind is Kind.DATACLASS:
        names = [name for name, _ in of.fields]
        one = attrgetter(names[0])
        fields = attrgetter(*names) if len(names) > 1 else lambda value: (one(value),)
    return _class_of(of), fields, tuple(_class_of(each) for _, each in of.fields)
