"""Copies of records: later changes by the function that emitted a record do not affect it.

As in Flink without object reuse, every downstream operator gets its own record. Copying depends on the actual class of
a value, not on the declared one: a list emitted where a tuple is declared is copied like any list. Immutable values
are not copied.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import inspect
import re
import types
import uuid
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

_Memo = dict[int, Any]
_Way = Callable[[Any, _Memo], Any]

_NEVER_CHANGE: Final = frozenset(
    {
        *(int, str, bytes, float, bool, complex, type(None), type(...), range, type),
        *(date, datetime, time, timedelta, timezone, Decimal, Fraction, uuid.UUID, re.Pattern),
        *(types.FunctionType, types.BuiltinFunctionType),
    }
)
_SCALARS: Final = frozenset(
    {Kind.INT, Kind.STR, Kind.FLOAT, Kind.BOOL, Kind.DATETIME, Kind.DATE, Kind.DECIMAL, Kind.NONE, Kind.ENUM}
)  # without bytes: a bytearray is accepted for them
_MOST_CLASSES: Final = 1024


class Copier:
    """Copies records of one type. Records of class `exact` are immutable and passed on as they are."""

    exact: type | None
    copy: Callable[[Any], Any]

    def __init__(self, of: TypeInfo) -> None:
        self.exact = _exact_class(of)
        self.copy = _declared(of) or copy_of


def copier(of: TypeInfo) -> Copier | None:
    """Return a copier for records of a type; None if all its values are immutable."""
    return None if of.kind in _SCALARS else Copier(of)


def extending(produced: list[Any], copier: Copier | None) -> Callable[[Iterable[Any]], None]:
    """Return a function that appends emitted records to a list, copying each as soon as it is yielded."""
    if copier is None:
        return produced.extend
    append, exact, copy_one = produced.append, copier.exact, copier.copy

    def extend(some: Iterable[Any]) -> None:
        for each in some:
            append(each if type(each) is exact else copy_one(each))

    return extend


def _exact_class(of: TypeInfo) -> type | None:
    """Return the class whose instances are immutable if they match the type: bytes, a frozen compound of scalars, or a
    class registered as immutable; None if there is none.
    """
    if of.kind is Kind.REGISTERED:
        return of.maker if of.frozen else None
    if of.kind in COMPOUND and of.frozen and all(each.kind in _SCALARS for _, each in of.fields):
        return of.maker if isinstance(of.maker, type) else None
    return bytes if of.kind is Kind.BYTES else None


def _declared(of: TypeInfo) -> Callable[[Any], Any] | None:
    """Return a fast copy function for the declared class; other classes use `copy_of`. None: nothing to copy."""
    if of.kind in _SCALARS:
        return None
    if of.kind is Kind.LIST:
        return _declared_list(_declared(of.fields[0][1]))
    if of.kind is Kind.MAP and of.fields[0][1].kind in _SCALARS:
        return _declared_map(_declared(of.fields[1][1]))
    if (exact := _exact_class(of)) is not None:
        return lambda value: value if type(value) is exact else copy_of(value)
    way = _way_of(of.maker) if isinstance(of.maker, type) else None
    if way is _copy_tuple:
        return _declared_tuple(of.maker, [copier(each) for _, each in of.fields])
    if way is _copy_instance and not any(_is_kept_elsewhere(of.maker, name) for name, _ in of.fields):
        return _declared_instance(of.maker, {name: _declared(each) for name, each in of.fields})
    return copy_of


def _is_kept_elsewhere(kind: type, name: str) -> bool:
    """Return whether a descriptor, such as a property, keeps the field under another name."""
    return hasattr(inspect.getattr_static(kind, name, None), "__set__")


def _declared_list(item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def copy_list(value: Any) -> Any:
        if type(value) is not list:
            return copy_of(value)
        return value[:] if item is None else list(map(item, value))

    return copy_list


def _declared_map(of_value: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def copy_map(value: Any) -> Any:
        if type(value) is not dict:
            return copy_of(value)
        return value.copy() if of_value is None else {key: of_value(each) for key, each in value.items()}

    return copy_map


def _declared_tuple(kind: Any, fields: list[Copier | None]) -> Callable[[Any], Any]:
    changing = [(at, each.exact, each.copy) for at, each in enumerate(fields) if each is not None]

    def copy_tuple(value: Any) -> Any:
        if type(value) is not kind or len(value) != len(fields):
            return copy_of(value)
        parts = None
        for at, exact, copy_one in changing:
            each = value[at]
            if type(each) is not exact and (copied := copy_one(each)) is not each:
                parts = parts or list(value)
                parts[at] = copied
        if parts is None:
            return value
        return tuple(parts) if kind is tuple else tuple.__new__(kind, parts)

    return copy_tuple


def _declared_instance(kind: type, fields: dict[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any]:
    changing = [(name, step) for name, step in fields.items() if step is not None]
    count, new = len(fields), object.__new__

    def copy_instance(value: Any) -> Any:
        if type(value) is not kind or len(own := value.__dict__) != count:
            return copy_of(value)
        made = new(kind)
        copied = made.__dict__
        copied.update(own)
        for name, step in changing:
            copied[name] = step(copied[name])
        return made

    return copy_instance


def copy_of(value: Any) -> Any:
    """Return a copy that shares no mutable part with the value; the value itself if it is immutable.

    An object that occurs twice in the value occurs twice in the copy. Objects that cannot be copied, such as a lock or
    an open file, are shared.
    """
    return value if type(value) in _NEVER_CHANGE else _copy(value, {})


def _copy(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    if kind in _NEVER_CHANGE:
        return value
    found = memo.get(id(value))
    if found is not None:
        return found
    way = _WAYS.get(kind)
    if way is None:
        if len(_WAYS) >= _MOST_CLASSES:  # a job may create classes as it runs
            _WAYS.clear()
            _WAYS.update(_BUILT_IN)
        way = _WAYS[kind] = _way_of(kind)
    return way(value, memo)


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    made: list[Any] = []
    memo[id(value)] = made
    made.extend([each if type(each) in _NEVER_CHANGE else _copy(each, memo) for each in value])
    return made


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    memo[id(value)] = made
    for key, each in value.items():
        if type(key) not in _NEVER_CHANGE:
            key = _copy(key, memo)
        made[key] = each if type(each) in _NEVER_CHANGE else _copy(each, memo)
    return made


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    made = memo[id(value)] = {_copy(each, memo) for each in value}
    return made


def _copy_frozenset(value: frozenset[Any], memo: _Memo) -> frozenset[Any]:
    if all(_copy(each, memo) is each for each in value):
        return value
    made = memo[id(value)] = frozenset([_copy(each, memo) for each in value])
    return made


def _copy_tuple(value: tuple[Any, ...], memo: _Memo) -> Any:
    for each in value:
        if type(each) not in _NEVER_CHANGE and _copy(each, memo) is not each:
            break
    else:
        return value
    parts = [_copy(each, memo) for each in value]
    if (found := memo.get(id(value))) is not None:
        return found  # it contains itself, through a list
    made = memo[id(value)] = tuple(parts) if type(value) is tuple else tuple.__new__(type(value), parts)
    return made


def _copy_bytearray(value: bytearray, memo: _Memo) -> bytearray:
    made = memo[id(value)] = bytearray(value)
    return made


def _copy_instance(value: Any, memo: _Memo) -> Any:
    made = memo[id(value)] = object.__new__(type(value))
    own = made.__dict__
    for name, each in value.__dict__.items():
        own[name] = each if type(each) in _NEVER_CHANGE else _copy(each, memo)
    return made


def _copy_frozen_instance(value: Any, memo: _Memo) -> Any:
    for each in value.__dict__.values():
        if type(each) not in _NEVER_CHANGE and _copy(each, memo) is not each:
            found = memo.get(id(value))  # set if it contains itself
            return _copy_instance(value, memo) if found is None else found
    return value


def _copy_with_slots(names: tuple[str, ...]) -> _Way:
    def copy_instance(value: Any, memo: _Memo) -> Any:
        made = memo[id(value)] = object.__new__(type(value))
        held = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
        for name, each in (*held, *getattr(value, "__dict__", {}).items()):
            object.__setattr__(made, name, _copy(each, memo))
        return made

    return copy_instance


def _copy_otherwise(value: Any, memo: _Memo) -> Any:
    known = len(memo)
    try:
        return copy.deepcopy(value, memo)
    except (TypeError, copy.Error):
        while len(memo) > known:
            memo.popitem()  # an incomplete copy, which must not be reused if the same object occurs again
        return value  # it cannot be pickled either, so it can only reach an operator in the same chain


def _same(value: Any, memo: _Memo) -> Any:
    return value


def _way_of(kind: type) -> _Way:
    """Return how to copy instances of a class."""
    if kind in _BUILT_IN:
        return _BUILT_IN[kind]
    if kind is object or issubclass(kind, Enum | type):
        return _same
    if hasattr(kind, "__deepcopy__"):
        return copy.deepcopy  # the class defines copying; its errors are errors of the job
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__:
        return _copy_tuple
    slots = tuple(copyreg._slotnames(kind))  # type: ignore[attr-defined]  # what pickle asks, with mangled names
    if not _is_plain(kind, len(slots)):
        return _copy_otherwise
    if slots or not kind.__dictoffset__:
        return _copy_with_slots(slots)
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # no public way
        return _copy_frozen_instance
    return _copy_instance


def _is_plain(kind: type, slots: int) -> bool:
    """Return whether an instance consists of its `__dict__` and slots only and has no custom copying."""
    places = [f"slot{i}" for i in range(slots)]
    places += ["__dict__"] * bool(kind.__dictoffset__) + ["__weakref__"] * bool(kind.__weakrefoffset__)
    return (
        kind.__basicsize__ == type("Alike", (), {"__slots__": places}).__basicsize__  # no parts that only C code sees
        and all(getattr(kind, name) is getattr(object, name) for name in _COPIED_BY)
        and not any(hasattr(kind, name) for name in ("__setstate__", "__getnewargs__", "__getnewargs_ex__"))
    )


_COPIED_BY: Final = ("__new__", "__reduce_ex__", "__reduce__", "__getstate__")
_BUILT_IN: Final[dict[type, _Way]] = {
    list: _copy_list,
    dict: _copy_dict,
    set: _copy_set,
    frozenset: _copy_frozenset,
    tuple: _copy_tuple,
    bytearray: _copy_bytearray,
}
_WAYS: Final[dict[type, _Way]] = dict(_BUILT_IN)
