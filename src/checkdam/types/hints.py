"""Type hints beyond plain Python types: aliases, pickled and Avro values, Spark and Arrow types."""

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

    State written under a former name is restored into the field. The current name is tried first, then the aliases in
    order; several may be given, in one Alias or in several.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise JobGraphError("an Alias needs the former name of the field", hint='Write Alias("old_name").')
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class PickleType(Generic[T]):
    """Marks values of this class as pickled: `ValueStateDescriptor("model", PickleType(Model))`.

    For classes that have no durable form. The state is recorded as pickled: it cannot be read without the code of the
    class, the class itself handles added and removed fields, and a class with another name cannot read it. Allowed for
    state values, not for keys.
    """

    of: type[T]

    def __post_init__(self) -> None:
        if not isinstance(self.of, type):
            raise JobGraphError(f"PickleType needs a class, not {self.of!r}", hint="Write PickleType(MyClass).")


@dataclass(frozen=True, init=False)
class AvroType:
    """Stores values in Avro's binary form with this schema: `ValueStateDescriptor("order", AvroType({…}))`.

    The schema is a dict, a list, or JSON text. Values have the Python types that fastavro uses: records are dicts. The
    snapshot holds the schema that values were written with; state restores under another schema by Avro's rules of
    schema resolution (defaults, aliases, promotions). For a class of your own, pass it to `register_type` as the
    schema.
    """

    schema: str
    info: Any = dataclasses.field(repr=False, compare=False)

    def __init__(self, schema: Any) -> None:
        from checkdam.types.avro import avro_type, schema_text  # imports types, which import this module

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
"""Hints that define the type at run time only; a type checker sees Any."""


def resolve_annotations(of: type) -> None:
    """Replace string annotations of a dataclass, NamedTuple or TypedDict by types, if all names can be resolved."""
    own = inspect.get_annotations(of)
    has_fields = dataclasses.is_dataclass(of) or hasattr(of, "_fields") or typing.is_typeddict(of)
    if not has_fields or all(not isinstance(each, str | typing.ForwardRef) for each in own.values()):
        return
    with contextlib.suppress(NameError, TypeError, AttributeError):  # names imported for the type checker only
        hints = typing.get_type_hints(of, include_extras=True)
        of.__annotations__ = {name: hints[name] for name in own}


def aliases_of(hints: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the former names of each of these fields, from their annotations."""
    marks = [[mark for mark in typing.get_args(hints.get(name))[1:] if isinstance(mark, Alias)] for name in names]
    return tuple(tuple(former for mark in each for former in mark.names) for each in marks)


def spark_as_arrow(hint: Any) -> pa.Schema | pa.DataType | None:
    """Return the Arrow form of a Spark type; None for anything else. Never imports Spark's types itself."""
    spark_types = sys.modules.get("pyspark.sql.types")
    if spark_types is None or not isinstance(hint, spark_types.DataType):
        return None
    to_arrow = importlib.import_module("pyspark.sql.pandas.types")
    convert = to_arrow.to_arrow_schema if isinstance(hint, spark_types.StructType) else to_arrow.to_arrow_type
    found: pa.Schema | pa.DataType = convert(hint, timezone="UTC")
    return found
