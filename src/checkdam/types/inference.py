"""Type inference from sample values, where the program declares no type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from checkdam.types.type_info import SCALARS, TypeInfo, list_of, map_of, optional_of, row_dict_of, tuple_of, type_info


def infer_type(values: Sequence[Any]) -> TypeInfo | None:
    """Return the type that all values share; None if they share none, or it cannot be inferred.

    A None among them makes the type optional. Dicts whose values have one type are a `dict[K, V]`; dicts with the same
    text keys but values of different types are rows with a column for each key.
    """
    present = [value for value in values if value is not None]
    of = _of_present(present)
    return optional_of(of, of.hint | None) if of is not None and len(present) < len(values) else of


def _of_present(values: list[Any]) -> TypeInfo | None:
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    [kind] = kinds
    if kind in SCALARS:
        return type_info(kind)
    if kind is tuple:
        elements = _columns(values, len(values[0])) if len(set(map(len, values))) == 1 else None
        return tuple_of(elements) if elements else None
    if kind is list:
        item = infer_type(list(chain.from_iterable(values)))
        return None if item is None else list_of(item, list[item.hint])  # type: ignore[name-defined]
    if kind is dict:
        return _of_dicts(values)
    declared = type_info(kind)
    return None if declared.is_opaque else declared


def _of_dicts(values: list[dict[Any, Any]]) -> TypeInfo | None:
    key = infer_type(list(chain.from_iterable(values)))
    value = infer_type(list(chain.from_iterable(map(dict.values, values))))
    if key is not None and value is not None:
        return map_of(key, value, dict[key.hint, value.hint])  # type: ignore[name-defined]
    names = list(values[0])
    if key != type_info(str) or any(each.keys() != values[0].keys() for each in values):
        return None
    columns = _columns([[each[name] for name in names] for each in values], len(names))
    return row_dict_of(list(zip(names, columns, strict=True))) if columns else None


def _columns(rows: list[Any], width: int) -> list[TypeInfo] | None:
    found = [infer_type([row[place] for row in rows]) for place in range(width)]
    known = [of for of in found if of is not None]
    return known if len(known) == width else None
