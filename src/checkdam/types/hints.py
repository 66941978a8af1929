"""What users write beside or instead of plain Python types where state needs to know more."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from checkdam.errors import JobGraphError

T = TypeVar("T")


@dataclass(frozen=True, init=False)
class Alias:
    """Former names of a field of a dataclass or NamedTuple: `total: Annotated[int, Alias("sum")]`.

    State written under one of them is restored into the field. The field's present name goes first, then the aliases
    in order; several may be given, in one Alias or in several.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise JobGraphError("an Alias needs the former name of the field", hint='Write Alias("old_name").')
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class PickleType(Generic[T]):
    """Values of this class are kept pickled: `ValueStateDescriptor("model", PickleType(Model))`.

    The way out for classes that have no durable form of their own. The state is recorded as pickled: it cannot be read
    without the code of the class, fields that come and go are the class's own affair, and a class of another
    name cannot take it over. For values of state, not for keys.
    """

    of: type[T]

    def __post_init__(self) -> None:
        if not isinstance(self.of, type):
            raise JobGraphError(f"PickleType needs a class, not {self.of!r}", hint="Write PickleType(MyClass).")


@dataclass(frozen=True, init=False)
class AvroType:
    """Values are kept in Avro's binary form, by this schema: `ValueStateDescriptor("order", AvroType({…}))`.

    The schema is a dict, a list, or JSON text. Values are what fastavro makes of it: records are dicts. The schema that
    values were written with is in the snapshot; state restores under another schema by Avro's rules of resolution
    (defaults, aliases, promotions). For a class of your own, give it to `register_type` as the schema.
    """

    schema: str
    info: Any = dataclasses.field(repr=False, compare=False)

    def __init__(self, schema: Any) -> None:
        from checkdam.types.avro import avro_type, schema_text  # they know types, which know this hint

        try:
            text = schema_text(schema)
            info = avro_type(text)
        except (TypeError, ValueError) as error:
            raise JobGraphError(
                f"AvroType cannot be made of {ascii(schema)[:200]}: {error}",
                hint='Give it an Avro schema, such as {"type": "record", "name": …, "fields": […]}.',
            ) from error
        object.__setattr__(self, "schema", text)
        object.__setattr__(self, "info", dataclasses.replace(info, hint=self))

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroType, (self.schema,)


class SparkType(Protocol):
    """A type of pyspark.sql.types."""

    def simpleString(self) -> str: ...  # noqa: N802  Spark's name


class ArrowType(Protocol):
    """A type of pyarrow."""

    def to_pandas_dtype(self) -> Any: ...


SchemaType: TypeAlias = AvroType | SparkType | ArrowType
"""Hints that say at run time alone what the values are; to a type checker these are Any."""


def resolve_annotations(of: type) -> None:
    """Put types in place of text in the annotations of a dataclass, NamedTuple or TypedDict, if all are in reach."""
    own = inspect.get_annotations(of)
    has_fields = dataclasses.is_dataclass(of) or hasattr(of, "_fields") or typing.is_typeddict(of)
    if not has_fields or all(not isinstance(each, str | typing.ForwardRef) for each in own.values()):
        return
    with contextlib.suppress(NameError, TypeError, AttributeError):  # names imported for the type checker only
        hints = typing.get_type_hints(of, include_extras=True)
        of.__annotations__ = {name: hints[name] for name in own}


def aliases_of(hints: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The former names of each of these fields, as their annotations tell."""
    marks = [[mark for mark in typing.get_args(hints.get(name))[1:] if isinstance(mark, Alias)] for name in names]
    return tuple(tuple(former for mark in each for former in mark.names) for each in marks)


def spark_as_arrow(hint: Any) -> pa.Schema | pa.DataType | None:
    """The Arrow form of a Spark type; None for anything else. Who has one has imported Spark's types already."""
    spark_types = sys.modules.get("pyspark.sql.types")
    if spark_types is None or not isinstance(hint, spark_types.DataType):
        return None
    to_arrow = importlib.import_module("pyspark.sql.pandas.types")
    convert = to_arrow.to_arrow_schema if isinstance(hint, spark_types.StructType) else to_arrow.to_arrow_type
    found: pa.Schema | pa.DataType = convert(hint, timezone="UTC")
    return found
