"""Types as durable text, stored beside their values so that they can be read without the job's code."""

from __future__ import annotations

import json
import re
import typing
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from checkdam.errors import StateNotRestorableError
from checkdam.types.avro import avro_type
from checkdam.types.type_info import (
    Kind,
    TypeInfo,
    arrow_type_info,
    compound_of,
    enum_of,
    list_of,
    map_of,
    optional_of,
    tuple_of,
    type_info,
)

_MOST_DEPTH = 100  # nesting of types; no job writes a deeper one


def text_of(of: TypeInfo) -> str:
    """Return the durable text of a type: equal for equal types, in every version."""
    return json.dumps(_node(of), separators=(",", ":"), ensure_ascii=False)


def type_from_text(text: str) -> TypeInfo:
    """Parse a durable text. Classes are unknown: dataclasses are read as dicts, named tuples as tuples.

    Raises:
        StateNotRestorableError: the text has no version known here.
    """
    try:
        return _of_node(json.loads(text))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateNotRestorableError(
            f"type description {text[:200]!r} is not understood", hint="It may be from a newer version."
        ) from error


def _node(of: TypeInfo) -> Any:
    node = _shape_node(of)
    return {"optional": node} if of.nullable and not (isinstance(node, dict) and "optional" in node) else node


def _shape_node(of: TypeInfo) -> Any:
    if of.kind is Kind.LIST:
        return {"list": _node(of.fields[0][1])}
    if of.kind is Kind.MAP:
        return {"map": [_node(of.fields[0][1]), _node(of.fields[1][1])]}
    if of.kind is Kind.TUPLE:
        return {"tuple": [_node(each) for _, each in of.fields]}
    if of.fields:
        name = of.name.removesuffix(" | None")
        return {of.kind.value: name, "fields": [[field_name, _node(each)] for field_name, each in of.fields]}
    if of.kind is Kind.REGISTERED and of.form is not None:
        return _node(of.form)  # so that its values can be read without the class, and evolve like those of the form
    name = of.name.removesuffix(" | None")
    if of.kind is Kind.ENUM:
        return {"enum": name, "members": list(of.members)}
    if of.kind is Kind.AVRO:
        return {"avro": json.loads(of.avro)}
    if of.kind is Kind.PICKLE:
        return {"pickle": name.removeprefix("pickle[").removesuffix("]")}
    return name if name in _NAMED else {"arrow": name}


_NAMED = {each.name: each for each in map(type_info, (int, str, bytes, float, bool, datetime, date, Decimal, None))}
_WITH_PARAMETERS = re.compile(
    r"decimal128\((\d+), (-?\d+)\)|timestamp\[(s|ms|us|ns), tz=(.+)\]|fixed_size_binary\[(\d+)\]"
)


def _of_node(node: Any, depth: int = _MOST_DEPTH) -> TypeInfo:
    if isinstance(node, str):
        return _NAMED[node]
    if not depth:
        raise ValueError("nested too deeply")
    inner = partial(_of_node, depth=depth - 1)
    if "optional" in node:
        of = inner(node["optional"])
        return optional_of(of, typing.Optional[of.hint])  # noqa: UP045
    if "list" in node:
        return list_of(inner(node["list"]), list)
    if "map" in node:
        key, value = node["map"]
        return map_of(inner(key), inner(value), dict)
    if "tuple" in node:
        return tuple_of([inner(each) for each in node["tuple"]])
    if "enum" in node:
        return enum_of(_text(node["enum"]), _members(node["members"]))
    if "avro" in node:
        return avro_type(json.dumps(node["avro"], separators=(",", ":"), ensure_ascii=False))
    if "pickle" in node:
        return TypeInfo(Kind.PICKLE, f"pickle[{node['pickle']}]", pa.binary(), None)
    if "arrow" in node:
        return arrow_type_info(_arrow_type(node["arrow"]))
    kind, maker = (Kind.DATACLASS, dict) if Kind.DATACLASS.value in node else (Kind.NAMED_TUPLE, tuple)
    return compound_of(kind, node[kind.value], maker, [(name, inner(each)) for name, each in node["fields"]])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _members(names: Any) -> tuple[str, ...]:
    members = tuple(map(_text, names))
    if not members or len(set(members)) != len(members):
        raise ValueError("an enum has members, each of another name")
    return members


def _arrow_type(text: str) -> pa.DataType:
    found = _WITH_PARAMETERS.fullmatch(text)
    if found is None:
        return pa.type_for_alias(text)
    precision, scale, unit, zone, width = found.groups()
    if precision:
        return pa.decimal128(int(precision), int(scale))
    return pa.timestamp(unit, tz=zone) if unit else pa.binary(int(width))
