"""Type information: how Python types of records, keys and state map to Arrow columns."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from checkdam.errors import StateNotRestorableError
from checkdam.types.hints import AvroType, PickleType, aliases_of, spark_as_arrow


class Kind(enum.Enum):
    """How values of a type are built; decides the conversion to Arrow and the durable form."""

    INT = "int"
    STR = "str"
    BYTES = "bytes"
    FLOAT = "float"
    BOOL = "bool"
    DATETIME = "datetime"
    DATE = "date"
    DECIMAL = "decimal"
    NONE = "none"
    LIST = "list"
    MAP = "map"
    TUPLE = "tuple"
    NAMED_TUPLE = "named tuple"
    DATACLASS = "dataclass"  # also a dict with fixed keys (a TypedDict), whose maker is dict
    ENUM = "enum"  # stored by the name of the member
    REGISTERED = "registered"  # stored in the form given to register_type
    AVRO = "avro"  # stored in Avro's binary form
    PICKLE = "pickle"  # stored pickled because the user declared it so
    ARROW = "arrow"  # an Arrow type without a matching Python type: can be sent, but not stored
    OPAQUE = "opaque"


COMPOUND = frozenset({Kind.TUPLE, Kind.NAMED_TUPLE, Kind.DATACLASS})
_NOT_AS_MAP_KEYS = frozenset({Kind.DATACLASS, Kind.LIST, Kind.MAP, Kind.PICKLE})  # by their stored form
_CHANGEABLE = frozenset({Kind.LIST, Kind.MAP, Kind.OPAQUE, Kind.PICKLE, Kind.ARROW, Kind.AVRO})


@dataclass(frozen=True)
class Codec:
    """Converts values of a class to values of another type, their form, and back."""

    to: Callable[[Any], Any]
    from_: Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    name: str
    arrow_type: pa.DataType


@dataclass(frozen=True)
class TypeInfo:
    """One Python type with its Arrow columns. Equal if the form is equal, in any process.

    `arrow_type` is the type as a single column (a struct for compounds); `columns` is the layout of a whole record: a
    compound has one column per field, any other type has one column called "value".
    """

    kind: Kind
    name: str
    arrow_type: pa.DataType
    hint: Any = field(compare=False, repr=False)
    fields: tuple[tuple[str, TypeInfo], ...] = ()  # of compounds; the item of a list; key and value of a map
    nullable: bool = False
    frozen: bool = field(default=True, compare=False)
    maker: Any = field(default=None, compare=False, repr=False)  # the class that builds a compound
    aliases: tuple[tuple[str, ...], ...] = field(default=(), compare=False, repr=False)  # former names, per field
    form: TypeInfo | None = field(default=None, repr=False)  # the type that values are sent and stored as, if another
    codec: Codec | None = field(default=None, compare=False, repr=False)  # to the form; None where the class is unknown
    members: tuple[str, ...] = field(default=(), compare=False, repr=False)  # of an enum
    avro: str = field(default="", repr=False)  # the schema of a value in Avro's form

    @property
    def is_compound(self) -> bool:
        """Whether a record of this type spans several columns; an optional compound does not."""
        return self.kind in COMPOUND and not self.nullable

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        if self.is_compound:
            return tuple(Column(name, of.arrow_type) for name, of in self.fields)
        return (Column("value", self.arrow_type),)

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.arrow_type) for column in self.columns])

    @property
    def is_opaque(self) -> bool:
        """Whether values are sent as a pickled payload."""
        return self.kind is Kind.OPAQUE

    @functools.cached_property
    def is_durable(self) -> bool:
        """Whether values can be stored without pickle."""
        if self.kind is Kind.MAP and any(of.kind in _NOT_AS_MAP_KEYS for of in _forms_of(self.fields[0][1])):
            return False
        if self.form is not None and not self.form.is_durable:
            return False
        return self.kind not in (Kind.OPAQUE, Kind.ARROW) and all(of.is_durable for _, of in self.fields)

    @functools.cached_property
    def is_immutable(self) -> bool:
        """Whether values are immutable, so that they can be kept by reference."""
        return self.kind not in _CHANGEABLE and self.frozen and all(of.is_immutable for _, of in self.fields)

    def field_index(self, key: int | str) -> int | None:
        """Return the position of a field by index (negative counts from the end) or name; None if there is none."""
        if not self.is_compound:
            return None
        if isinstance(key, str):
            return next((i for i, (name, _) in enumerate(self.fields) if name == key), None)
        return key % len(self.fields) if -len(self.fields) <= key < len(self.fields) else None

    def field_type(self, key: int | str) -> TypeInfo:
        """Return the type of one field of a compound.

        Raises:
            KeyError: there is no such field.
        """
        index = self.field_index(key)
        if index is None:
            raise KeyError(key)
        return self.fields[index][1]


SCALARS: dict[Any, tuple[Kind, pa.DataType]] = {
    int: (Kind.INT, pa.int64()),
    str: (Kind.STR, pa.string()),
    bytes: (Kind.BYTES, pa.binary()),
    float: (Kind.FLOAT, pa.float64()),
    bool: (Kind.BOOL, pa.bool_()),
    datetime: (Kind.DATETIME, pa.timestamp("us", tz="UTC")),
    date: (Kind.DATE, pa.date32()),
    Decimal: (Kind.DECIMAL, pa.decimal128(38, 18)),
    type(None): (Kind.NONE, pa.null()),
}

OPAQUE = TypeInfo(Kind.OPAQUE, "object", pa.binary(), object)

_registered: dict[type, TypeInfo] = {}
"""Classes registered by register_type. A slot receives the driver's (`registered_types`)."""


def type_info(hint: Any) -> TypeInfo:
    """Return the type information of a Python type hint; a type without columns is opaque."""
    return _of_hint(hint, ())


def _of_hint(hint: Any, inside: tuple[Any, ...]) -> TypeInfo:
    if isinstance(hint, TypeInfo):
        return hint
    if isinstance(hint, pa.Schema):
        return named_tuple_type(hint)
    if isinstance(hint, pa.DataType):
        return arrow_type_info(hint)
    if isinstance(hint, AvroType):
        return typing.cast(TypeInfo, hint.info)
    if isinstance(hint, PickleType):
        return TypeInfo(Kind.PICKLE, f"pickle[{hint.of.__qualname__}]", pa.binary(), hint)
    if (of_spark := spark_as_arrow(hint)) is not None:
        return _of_hint(of_spark, inside)
    hint = type(None) if hint is None else hint
    if isinstance(hint, type) and hint in SCALARS:
        kind, arrow_type = SCALARS[hint]
        return TypeInfo(kind, "None" if kind is Kind.NONE else hint.__name__, arrow_type, hint)
    if isinstance(hint, typing.NewType):
        return _of_hint(hint.__supertype__, inside)
    if isinstance(hint, type) and hint in _registered:
        return _registered[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Annotated, typing.Required):
        return _of_hint(arguments[0], inside)
    if origin is list:
        return list_of(_of_hint(arguments[0], inside), hint)
    if origin is dict:
        return map_of(_of_hint(arguments[0], inside), _of_hint(arguments[1], inside), hint)
    if origin is tuple and arguments and Ellipsis not in arguments:
        return tuple_of([_of_hint(argument, inside) for argument in arguments], hint)
    found = OPAQUE
    if origin in (typing.Union, types.UnionType):
        found = _of_union(arguments, hint, inside)
    elif isinstance(hint, type) and hint not in inside:  # a class that contains itself has no finite set of columns
        found = _of_class(hint, (*inside, hint))
    return dataclasses.replace(OPAQUE, hint=hint) if found is OPAQUE else found


def _of_union(arguments: tuple[Any, ...], hint: Any, inside: tuple[Any, ...]) -> TypeInfo:
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) != 1 or len(others) == len(arguments):
        return OPAQUE
    return optional_of(_of_hint(others[0], inside), hint)


def optional_of(of: TypeInfo, hint: Any) -> TypeInfo:
    """Return the type that also allows None; a pickled payload always allows it."""
    if of.nullable or of.kind in (Kind.OPAQUE, Kind.NONE):
        return of
    return dataclasses.replace(of, name=f"{of.name} | None", nullable=True, hint=hint)


def tuple_of(of: Sequence[TypeInfo], hint: Any = None) -> TypeInfo:
    """Return the type of a plain tuple with these elements."""
    hint = tuple[tuple(element.hint for element in of)] if hint is None else hint  # type: ignore[misc]
    name = f"tuple[{', '.join(element.name for element in of)}]"
    return compound_of(Kind.TUPLE, name, hint, [(f"f{i}", element) for i, element in enumerate(of)])


def list_of(item: TypeInfo, hint: Any) -> TypeInfo:
    return TypeInfo(Kind.LIST, f"list[{item.name}]", pa.list_(item.arrow_type), hint, (("item", item),))


def map_of(key: TypeInfo, value: TypeInfo, hint: Any) -> TypeInfo:
    arrow_type = pa.map_(key.arrow_type, value.arrow_type)
    return TypeInfo(Kind.MAP, f"dict[{key.name}, {value.name}]", arrow_type, hint, (("key", key), ("value", value)))


def compound_of(
    kind: Kind,
    name: str,
    hint: Any,
    of: list[tuple[str, TypeInfo]],
    *,
    frozen: bool = True,
    aliases: tuple[tuple[str, ...], ...] = (),
) -> TypeInfo:
    """Return the type of a class with these fields; `hint` is the class."""
    if not of:
        return OPAQUE  # a record without columns could not be counted
    arrow_type = pa.struct([pa.field(field_name, element.arrow_type) for field_name, element in of])
    maker = tuple if kind is Kind.TUPLE else dict if typing.is_typeddict(hint) else hint
    return TypeInfo(kind, name, arrow_type, hint, tuple(of), frozen=frozen, maker=maker, aliases=aliases)


def _of_class(hint: type, inside: tuple[Any, ...]) -> TypeInfo:
    row_schema = getattr(hint, "__row_schema__", None)
    if row_schema is not None:
        return named_tuple_type(row_schema)
    if issubclass(hint, enum.Enum):
        return _of_enum(hint)
    if typing.is_typeddict(hint):
        return _of_typed_dict(hint, inside)
    is_named_tuple = issubclass(hint, tuple) and hasattr(hint, "_fields")
    if not is_named_tuple and not dataclasses.is_dataclass(hint):
        return OPAQUE
    hints = _resolved_hints(hint)
    if hints is None:
        return OPAQUE
    if is_named_tuple:
        of = [(name, _of_hint(hints.get(name, object), inside)) for name in hint._fields]  # type: ignore[attr-defined]  # it is a named tuple
        return compound_of(Kind.NAMED_TUPLE, hint.__qualname__, hint, of, aliases=aliases_of(hints, hint._fields))  # type: ignore[attr-defined]
    names = [each.name for each in dataclasses.fields(hint)]  # type: ignore[arg-type]  # it is a dataclass
    if set(inspect.signature(hint).parameters) != set(names):
        return OPAQUE  # its fields alone are not enough to rebuild it
    of = [(name, _of_hint(hints.get(name, object), inside)) for name in names]
    frozen = bool(hint.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # no public way to ask
    return compound_of(Kind.DATACLASS, hint.__qualname__, hint, of, frozen=frozen, aliases=aliases_of(hints, names))


def _of_typed_dict(hint: Any, inside: tuple[Any, ...]) -> TypeInfo:
    hints = _resolved_hints(hint)
    if hints is None or hint.__optional_keys__:
        return OPAQUE  # a column cannot distinguish a missing key from a key that holds None
    of = [(name, _of_hint(each, inside)) for name, each in hints.items()]
    aliases = aliases_of(hints, list(hints))
    return compound_of(Kind.DATACLASS, hint.__qualname__, hint, of, frozen=False, aliases=aliases)


def row_dict_of(of: list[tuple[str, TypeInfo]]) -> TypeInfo:
    """Return the type of a dict with these fixed keys, each with its own type."""
    name = f"dict[{', '.join(f'{key}: {each.name}' for key, each in of)}]"
    return compound_of(Kind.DATACLASS, name, dict, of, frozen=False)


def _of_enum(hint: type[enum.Enum]) -> TypeInfo:
    """Return the type of an enum. Members are identified by name: values may change, and need not be storable."""
    members = tuple(member.name for member in hint)
    if not members or issubclass(hint, enum.Flag):
        return OPAQUE  # a combination of flags has no name that is certain to be recognised later
    codec = Codec(functools.partial(_member_name, hint), functools.partial(_member_of, hint))
    return enum_of(hint.__qualname__, members, hint, codec)


def enum_of(name: str, members: tuple[str, ...], hint: Any = str, codec: Codec | None = None) -> TypeInfo:
    """Return the type of an enum; without its class, members are read as their names."""
    form = type_info(str)
    return TypeInfo(Kind.ENUM, name, form.arrow_type, hint, maker=hint, form=form, codec=codec, members=members)


def _member_name(of: type[enum.Enum], value: Any) -> str:
    if not isinstance(value, of):
        raise TypeError(f"expected {of.__name__}, got {type(value).__name__}")
    return value.name


def _member_of(of: type[enum.Enum], name: str) -> enum.Enum:
    try:
        return of[name]
    except KeyError:
        raise StateNotRestorableError(
            f'enum {of.__qualname__} has no member "{name}"',
            hint=f"Keep the member, or keep its name for another one: {name} = {next(iter(of.__members__))}.",
        ) from None


def register(of: type, info: TypeInfo) -> None:
    """Map hints that name this class to this type."""
    _registered[of] = info


def registered_types() -> dict[type, TypeInfo]:
    """Return everything registered so far, to send to another process."""
    return dict(_registered)


def _resolved_hints(owner: Any) -> dict[str, Any] | None:
    """Return the annotations of a class or function with text resolved to types; None if a name cannot be resolved."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return None  # names imported only for the type checker do not exist at run time


@functools.lru_cache(maxsize=1024)
def arrow_type_info(arrow_type: pa.DataType) -> TypeInfo:
    """Return the type information of an Arrow column, preserving its width, unit and scale."""
    is_a = pa.types
    plain = next((of for of in map(type_info, SCALARS) if of.arrow_type == arrow_type), None)
    if plain is not None:
        return plain
    if is_a.is_struct(arrow_type):
        return dataclasses.replace(named_tuple_type(pa.schema(list(arrow_type))), arrow_type=arrow_type)
    if is_a.is_map(arrow_type):
        key, value = arrow_type_info(arrow_type.key_type), _of_field(arrow_type.item_field)
        return dataclasses.replace(map_of(key, value, dict[key.hint, value.hint]), arrow_type=arrow_type)  # type: ignore[name-defined]
    if is_a.is_list(arrow_type) or is_a.is_large_list(arrow_type):
        item = _of_field(arrow_type.value_field)
        return dataclasses.replace(list_of(item, list[item.hint]), arrow_type=arrow_type)  # type: ignore[name-defined]
    scalars: list[tuple[Callable[[pa.DataType], bool], type]] = [
        (is_a.is_integer, int),
        (is_a.is_floating, float),
        (lambda of: is_a.is_large_string(of) or is_a.is_string_view(of), str),
        (lambda of: is_a.is_large_binary(of) or is_a.is_fixed_size_binary(of) or is_a.is_binary_view(of), bytes),
        (is_a.is_timestamp, datetime),
        (is_a.is_date, date),
        (is_a.is_decimal128, Decimal),
    ]
    python_type = next((python_type for matches, python_type in scalars if matches(arrow_type)), None)
    if python_type is None:
        return TypeInfo(Kind.ARROW, str(arrow_type), arrow_type, object)
    name = "float32" if arrow_type == pa.float32() else str(arrow_type)  # Arrow's "float" would be Python's 64 bits
    return TypeInfo(SCALARS[python_type][0], name, arrow_type, python_type)


def _of_field(of: pa.Field) -> TypeInfo:
    element = arrow_type_info(of.type)
    return optional_of(element, element.hint | None) if of.nullable and element.kind is not Kind.ARROW else element


def named_tuple_type(schema: pa.Schema) -> TypeInfo:
    """Return the row type of a DataFrame: a NamedTuple called Row, with the schema's columns as its fields.

    A column whose name is not a Python identifier is accessed by position, or as `_0`, `_1`, …
    """
    return _row_type(schema.remove_metadata())


@functools.lru_cache(maxsize=256)
def _row_type(schema: pa.Schema) -> TypeInfo:
    of = [(column.name, _of_field(column)) for column in schema]
    return compound_of(Kind.NAMED_TUPLE, "Row", _row_class(schema, of), of)


def _row_class(schema: pa.Schema, of: list[tuple[str, TypeInfo]]) -> type:
    row = typing.cast(Any, collections.namedtuple("Row", [name for name, _ in of], rename=True))
    row.__annotations__ = {name: element.hint for name, (_, element) in zip(row._fields, of, strict=True)}
    row.__row_schema__ = schema
    row.__reduce__ = _reduce_row  # a worker rebuilds the class from the schema instead of receiving its code
    return typing.cast(type, row)


def _reduce_row(row: Any) -> tuple[Any, ...]:
    return _make_row, (row.__row_schema__, tuple(row))


def _make_row(schema: pa.Schema, values: tuple[Any, ...]) -> Any:
    return named_tuple_type(schema).hint(*values)


_MANY: tuple[Any, ...] = (
    *(list, set, frozenset, collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator),
    *(collections.abc.Sequence, collections.abc.Collection),
)


def result_type(function: Any, *, of: TypeInfo, many: bool) -> TypeInfo | None:
    """Return the type of a function's return annotation for a record of type `of`; None if it has none.

    With `many` the function returns an iterable, and the type is that of its elements.
    """
    hint = _return_hint(function, of)
    if many:
        hint = _element_hint(hint)
    return None if hint in (_NOTHING, Any, object) or isinstance(hint, typing.TypeVar) else type_info(hint)


_NOTHING = object()


def _return_hint(function: Any, of: TypeInfo) -> Any:
    if isinstance(function, functools.partial):
        return _return_hint(function.func, of)
    if isinstance(function, type):
        return function  # calling a class returns an instance of it
    if not isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        function = getattr(type(function), "__call__", function)  # noqa: B004  # the method itself is wanted
    hints = _resolved_hints(function) or {}
    hint = hints.pop("return", _NOTHING)
    if isinstance(hint, typing.TypeVar) and hint in hints.values():
        return of  # `def f(x: T) -> T` returns the type it takes
    return hint


def _element_hint(hint: Any) -> Any:
    if hint is str:
        return str
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if arguments and origin in _MANY:
        return arguments[0]
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return arguments[0]
    return _NOTHING


def _forms_of(of: TypeInfo) -> Iterator[TypeInfo]:
    """Yield types like `fields_of`, with forms in place of types that have one."""
    for each in fields_of(of):
        yield from (each,) if each.form is None else _forms_of(each.form)


def fields_of(of: TypeInfo) -> Iterator[TypeInfo]:
    """Yield the type itself and every type inside it."""
    yield of
    for _, inner in of.fields:
        yield from fields_of(inner)
