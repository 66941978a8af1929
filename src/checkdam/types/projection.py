"""Recognises functions that only pick fields, so that they run as column selections instead of Python calls."""

from __future__ import annotations

import collections
import dis
import inspect
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from checkdam.types.type_info import Kind, TypeInfo, tuple_of, type_info

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class FieldRef:
    """The column of the input at this position."""

    column: int


@dataclass(frozen=True)
class Constant:
    value: Scalar


@dataclass(frozen=True)
class Projection:
    """The result of such a function on a record: one part, or a tuple of parts.

    A single part that is a compound stays in one column, although a record of its type has several columns.
    `is_identity` marks a function that returns its record unchanged; its parts are then all the columns.
    """

    parts: tuple[FieldRef | Constant, ...]
    is_tuple: bool
    is_identity: bool = False

    def result_type(self, of: TypeInfo) -> TypeInfo:
        """Return the type of the results for records of type `of`."""
        if self.is_identity:
            return of
        types_of_parts = [self._type_of(part, of) for part in self.parts]
        return tuple_of(types_of_parts) if self.is_tuple else types_of_parts[0]

    def columns(self, of: TypeInfo, to: TypeInfo) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """Return a function from the columns of records of type `of` to those of the results as type `to`.

        None if these types need a conversion: then only the user's function gives the results.
        """
        is_unpacked = to.is_compound and not self.is_tuple  # one column becomes several
        if is_unpacked or self.result_type(of) != to or len(self.parts) != len(to.columns):
            return None

        def project(columns: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [
                columns.column(part.column).cast(column.arrow_type)  # Spark's may differ in what can be null
                if isinstance(part, FieldRef)
                else pa.repeat(pa.scalar(part.value, column.arrow_type), columns.num_rows)
                for part, column in zip(self.parts, to.columns, strict=True)
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=to.arrow_schema)

        return project

    def key_columns(self) -> tuple[int, ...] | None:
        """Return the columns that make up the result, in order; None if a constant is among the parts."""
        columns = tuple(part.column for part in self.parts if isinstance(part, FieldRef))
        return columns if len(columns) == len(self.parts) else None

    def _type_of(self, part: FieldRef | Constant, of: TypeInfo) -> TypeInfo:
        if isinstance(part, Constant):
            return type_info(type(part.value))
        return of.field_type(part.column) if of.is_compound else of


def projection_of(function: Any, of: TypeInfo) -> Projection | None:
    """Return the projection that `function` performs on records of type `of`; None unless that is certain.

    Certain means: the result consists of fields of the record and constants in the function's own code, and computing
    it runs nothing else that could fail, vary or have side effects.
    """
    result = _result_of(function)
    if result is None or (of.is_compound and not _has_plain_access(of)):
        return None
    if result is _RECORD:
        columns = tuple(FieldRef(i) for i in range(len(of.columns)))
        return Projection(columns, is_tuple=of.is_compound, is_identity=True)
    if isinstance(result, _Tuple):
        parts = [_part(item, of) for item in result.items]
        certain = [part for part in parts if part is not None]
        return Projection(tuple(certain), is_tuple=True) if certain and len(certain) == len(parts) else None
    part = _part(result, of)
    return None if part is None else Projection((part,), is_tuple=False)


def looked_up_type(function: Any, of: TypeInfo) -> TypeInfo | None:
    """Return the value type of a dict if the function looks up a value in one; None for any other function."""
    result = _result_of(function)
    is_lookup = of.kind is Kind.MAP and not of.nullable and isinstance(result, _Item) and not result.is_attribute
    return of.fields[1][1] if is_lookup else None


class _Record:
    """The function's argument during symbolic execution."""


@dataclass(frozen=True)
class _Item:
    """One field of the record: by position (`p[0]`), by attribute (`p.word`) or by key (`p["word"]`)."""

    key: int | str
    is_attribute: bool = False


@dataclass(frozen=True)
class _Tuple:
    items: tuple[Any, ...]


_RECORD = _Record()
_Value = _Record | _Item | Constant | _Tuple


def _part(value: _Value, of: TypeInfo) -> FieldRef | Constant | None:
    if isinstance(value, Constant):
        return value if _fits_a_column(value.value) else None
    if value is _RECORD:
        return None if of.is_compound else FieldRef(0)
    if not isinstance(value, _Item) or not of.is_compound:
        return None
    index = _index_of(value, of)
    return None if index is None else FieldRef(index)


def _index_of(item: _Item, of: TypeInfo) -> int | None:
    if isinstance(item.key, int):
        return None if of.kind is Kind.DATACLASS else of.field_index(item.key)
    if of.maker is dict:
        return None if item.is_attribute else of.field_index(item.key)
    if not item.is_attribute:
        return None
    if of.kind is Kind.NAMED_TUPLE and hasattr(of.maker, "_fields"):
        return of.maker._fields.index(item.key) if item.key in of.maker._fields else None  # may be renamed here
    return of.field_index(item.key) if of.kind is Kind.DATACLASS else None


def _fits_a_column(value: Scalar) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, str) or not any("\ud800" <= character <= "\udfff" for character in value)


def _has_plain_access(of: TypeInfo) -> bool:
    """Return whether reading a field runs no user code: no properties, no custom access methods."""
    if of.maker is dict:
        return True
    if of.kind is Kind.DATACLASS:
        descriptors = (inspect.getattr_static(of.maker, name, None) for name, _ in of.fields)
        own = [each for each in descriptors if hasattr(each, "__get__") and not inspect.ismemberdescriptor(each)]
        return not own and of.maker.__getattribute__ is object.__getattribute__
    getters = (inspect.getattr_static(of.maker, name) for name in getattr(of.maker, "_fields", ()))
    plain_items = of.maker.__getitem__ is tuple.__getitem__ and all(type(each) is _TupleGetter for each in getters)
    return plain_items and of.maker.__getattribute__ is tuple.__getattribute__


_TupleGetter = type(inspect.getattr_static(collections.namedtuple("_Sample", ["field"]), "field"))


def _result_of(function: Any) -> _Value | None:
    if type(function) in (operator.itemgetter, operator.attrgetter):
        return _result_of_getter(function)
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    takes_one = code.co_argcount == 1 and code.co_nlocals == 1 and not function.__defaults__
    unusual = (
        inspect.CO_VARARGS
        | inspect.CO_VARKEYWORDS
        | inspect.CO_GENERATOR
        | inspect.CO_COROUTINE
        | inspect.CO_ITERABLE_COROUTINE
        | inspect.CO_ASYNC_GENERATOR
    )
    # the cells of a closure may be reassigned later, so even a constant in one is not certain
    if not takes_one or code.co_flags & unusual or code.co_freevars or code.co_cellvars or code.co_exceptiontable:
        return None
    return _follow(code)


def _result_of_getter(getter: Any) -> _Value | None:
    kind, keys = getter.__reduce__()
    is_attribute = kind is operator.attrgetter
    if any(type(key) not in (int, str) for key in keys) or (is_attribute and any("." in key for key in keys)):
        return None
    items = tuple(_Item(key, is_attribute) for key in keys)
    return items[0] if len(items) == 1 else _Tuple(items)


class _UncertainError(Exception):
    """The code does something that is not followed here."""


def _follow(code: types.CodeType) -> _Value | None:
    """Return the result of the code, found by symbolic execution; any instruction not listed ends the attempt."""
    stack: list[_Value] = []
    try:
        for instruction in dis.get_instructions(code):
            if instruction.opname == "RETURN_VALUE":
                return stack.pop()
            if instruction.opname == "RETURN_CONST":  # 3.12 and 3.13
                return _constant(instruction.argval)
            _STEPS.get(instruction.opname, _give_up)(instruction, stack)
    except _UncertainError:
        return None
    return None


_Step = Callable[[dis.Instruction, list[_Value]], None]


def _give_up(instruction: dis.Instruction, stack: list[_Value]) -> None:
    raise _UncertainError(instruction.opname)


def _pass(instruction: dis.Instruction, stack: list[_Value]) -> None:
    """Do nothing: the instruction cannot affect the result."""


def _load_record(instruction: dis.Instruction, stack: list[_Value]) -> None:
    stack.append(_RECORD)  # the argument is the only local variable, because there are no stores


def _load_record_twice(instruction: dis.Instruction, stack: list[_Value]) -> None:
    stack += [_RECORD, _RECORD]


def _load_constant(instruction: dis.Instruction, stack: list[_Value]) -> None:
    stack.append(_constant(instruction.argval))


def _constant(value: Any) -> Constant:
    if type(value) not in (str, int, float, bool, type(None)):
        raise _UncertainError(type(value).__name__)
    return Constant(value)


def _load_attribute(instruction: dis.Instruction, stack: list[_Value]) -> None:
    _take(stack, _RECORD)
    stack.append(_Item(str(instruction.argval), is_attribute=True))


def _subscript(instruction: dis.Instruction, stack: list[_Value]) -> None:
    index = stack.pop()
    if not isinstance(index, Constant) or not isinstance(index.value, int | str) or isinstance(index.value, bool):
        raise _UncertainError("index")
    _take(stack, _RECORD)
    stack.append(_Item(index.value))


def _binary_operation(instruction: dis.Instruction, stack: list[_Value]) -> None:
    if instruction.argrepr != "[]":  # since 3.14 a subscript is a binary operation
        raise _UncertainError(instruction.argrepr)
    _subscript(instruction, stack)


def _build_tuple(instruction: dis.Instruction, stack: list[_Value]) -> None:
    length = instruction.arg or 0
    items = tuple(stack[len(stack) - length :])
    del stack[len(stack) - length :]
    stack.append(_Tuple(items))


def _take(stack: list[_Value], expected: _Value) -> None:
    if stack.pop() is not expected:
        raise _UncertainError("a field of a field")


_STEPS: dict[str, _Step] = {
    "RESUME": _pass,
    "NOP": _pass,
    "CACHE": _pass,
    "LOAD_FAST": _load_record,
    "LOAD_FAST_BORROW": _load_record,
    "LOAD_FAST_LOAD_FAST": _load_record_twice,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": _load_record_twice,
    "LOAD_CONST": _load_constant,
    "LOAD_SMALL_INT": _load_constant,
    "LOAD_ATTR": _load_attribute,
    "BINARY_SUBSCR": _subscript,
    "BINARY_OP": _binary_operation,
    "BUILD_TUPLE": _build_tuple,
}
