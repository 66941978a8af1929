"""Streams: each call adds an operator to the environment's graph and returns the stream behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from checkdam.connectors.files import FileSink
from checkdam.connectors.simple_sinks import PrintSink, SparkSink
from checkdam.errors import JobGraphError
from checkdam.graph.functions import KeyedProcessFunction, callable_of
from checkdam.graph.operators import (
    AggregateKind,
    FilterKind,
    FlatMapKind,
    KeySelector,
    Kind,
    MapKind,
    Operator,
    ProcessKind,
    ReduceKind,
    SinkKind,
)
from checkdam.ids import OperatorUid
from checkdam.state.projection import projection_of
from checkdam.state.types import TypeInfo, result_type, type_info

if TYPE_CHECKING:
    from checkdam.api.environment import StreamExecutionEnvironment


class _Step:
    """The operator a call has just added, open for a name, a uid and a parallelism."""

    def __init__(self, environment: StreamExecutionEnvironment, operator: int) -> None:
        self._environment = environment
        self._operator_id = operator

    def _change(self, **changes: Any) -> None:
        operators = self._environment._operators
        operators[self._operator_id] = replace(operators[self._operator_id], **changes)


class DataStreamSink(_Step):
    """The end of a stream."""

    def uid(self, uid: str) -> DataStreamSink:
        """The name under which a checkpoint finds the sink's unpublished output again."""
        self._change(uid=_checked_uid(uid))
        return self

    def name(self, name: str) -> DataStreamSink:
        self._change(name=name)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        self._change(parallelism=parallelism)
        return self


class DataStream(_Step):
    """Records of one type."""

    def __init__(self, environment: StreamExecutionEnvironment, operator: int, also: tuple[int, ...] = ()) -> None:
        super().__init__(environment, operator)
        self._inputs = (operator, *also)

    @property
    def type(self) -> TypeInfo:
        return self._environment._operators[self._operator_id].output_type

    def uid(self, uid: str) -> DataStream:
        """The name under which the operator's state is found again; required where there is state."""
        self._change(uid=_checked_uid(uid))
        return self

    def name(self, name: str) -> DataStream:
        """What the operator is called in messages; no meaning beyond that."""
        self._change(name=name)
        return self

    def set_parallelism(self, parallelism: int) -> DataStream:
        """How many subtasks the operator has; on the source side Spark's partitions decide instead."""
        self._change(parallelism=parallelism)
        return self

    def map(self, function: Any, output_type: Any = None) -> DataStream:
        """One record in, one out."""
        projection = projection_of(function, self.type)
        inferred = projection.result_type(self.type) if projection else result_type(function, of=self.type, many=False)
        return self._add("map", MapKind(function), _declared(output_type, inferred))

    def flat_map(self, function: Any, output_type: Any = None) -> DataStream:
        """One record in, any number out."""
        inferred = result_type(function, of=self.type, many=True)
        return self._add("flat_map", FlatMapKind(function), _declared(output_type, inferred))

    def filter(self, function: Any) -> DataStream:
        """Only the records for which the function is true."""
        return self._add("filter", FilterKind(function), self.type)

    def union(self, *others: DataStream) -> DataStream:
        """The records of all, in no particular order; their types must be the same."""
        for other in others:
            if other._environment is not self._environment:
                raise JobGraphError("streams of different environments cannot be united")
            if other.type != self.type:
                raise JobGraphError(
                    f"union of {self.type.name} with {other.type.name}: the types differ",
                    hint="Bring them to one type with map(…, output_type=…) first.",
                )
        also = tuple(i for other in others for i in other._inputs)
        return _Union(self._environment, self._operator_id, self._inputs[1:] + also)

    def key_by(self, key: Any, key_type: Any = None) -> KeyedStream:
        """Partition by key: a function of the record, or the name or index of a column.

        The key's type comes from `key_type`, from the function's annotation, or from the columns it picks.
        """
        return KeyedStream(self._environment, self._operator_id, self._inputs[1:], self._selector(key, key_type))

    def print(self, label: str = "") -> DataStreamSink:
        """Show the records on the driver's standard output, with each epoch."""
        return self._sink("print", PrintSink(label))

    def sink_to_files(self, path: str, format: str = "json") -> DataStreamSink:
        """Write part files below a directory, exactly once: visible when the checkpoint that covers them completes."""
        sink = FileSink(str(path), format)
        return self._sink(f"files({path})", sink, uid=sink.default_uid)

    def sink_to_spark(self, function: Callable[[Any, int], None]) -> DataStreamSink:
        """Call `function(dataframe, epoch)` in the driver with each epoch's records.

        An epoch may be seen again after a failover, under the same number: use it to write only once.
        """
        if self.type.is_opaque:
            raise JobGraphError(
                "records without a known type cannot become a DataFrame",
                hint="Give the operator in front an output_type such as tuple[str, int].",
            )
        return self._sink("spark", SparkSink(function))

    def _sink(self, name: str, spec: Any, uid: str | None = None) -> DataStreamSink:
        operator = self._new(name, SinkKind(spec), self.type, uid=uid)
        return DataStreamSink(self._environment, operator)

    def _selector(self, key: Any, key_type: Any) -> KeySelector:
        if isinstance(key, str | int) and not isinstance(key, bool):
            index = self.type.field_index(key)
            if index is None:
                raise JobGraphError(
                    f"key_by({key!r}): records of type {self.type.name} have no such column",
                    hint=f"The columns are {', '.join(c.name for c in self.type.columns)}.",
                )
            return KeySelector(self.type.field_type(index), None, (index,))
        projection = projection_of(key, self.type)
        columns = projection.key_columns() if projection is not None else None
        inferred = (
            projection.result_type(self.type) if projection is not None else result_type(key, of=self.type, many=False)
        )
        declared = _declared(key_type, inferred)
        if declared.is_opaque:
            raise JobGraphError(
                "the type of the key is not known",
                hint="Write key_by(…, key_type=str), or annotate the function's result.",
            )
        if not declared.is_immutable:
            raise JobGraphError(
                f"a key of type {declared.name} could change under its state",
                hint="Make the key of plain values or a tuple of them, such as key_type=tuple[str, int].",
            )
        if declared != inferred:
            columns = None  # the column has another type than the key is said to have
        is_tuple = projection is not None and projection.is_tuple
        return KeySelector(declared, key, columns, is_tuple)

    def _add(self, name: str, kind: Kind, output_type: TypeInfo) -> DataStream:
        return DataStream(self._environment, self._new(name, kind, output_type))

    def _new(self, name: str, kind: Kind, output_type: TypeInfo, uid: str | None = None) -> int:
        function = getattr(kind, "function", None)
        if function is not None:
            _check_callable(name, function)
        operators = self._environment._operators
        operators.append(
            Operator(
                id=len(operators),
                name=name,
                kind=kind,
                inputs=self._inputs,
                output_type=output_type,
                uid=OperatorUid(uid) if uid else None,
                key=self._key,
            )
        )
        return len(operators) - 1

    _key: KeySelector | None = None


class _Union(DataStream):
    """Several streams read as one; not an operator, so there is nothing to name."""

    def _change(self, **changes: Any) -> None:
        raise JobGraphError("a union has no uid, name or parallelism", hint="Set it on the operator behind the union.")


class KeyedStream(DataStream):
    """Records partitioned by key: all records of a key reach the same subtask, where the key's state is."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        operator: int,
        also: tuple[int, ...],
        key: KeySelector,
    ) -> None:
        super().__init__(environment, operator, also)
        self._key = key

    def _change(self, **changes: Any) -> None:
        raise JobGraphError("key_by has no uid, name or parallelism", hint="Set it on the operator behind key_by.")

    def process(self, function: KeyedProcessFunction, output_type: Any = None) -> DataStream:
        """Full control over each key's records and state."""
        if not isinstance(function, KeyedProcessFunction):
            raise JobGraphError(
                f"process() on a keyed stream takes a KeyedProcessFunction, not {type(function).__name__}",
                hint="Subclass KeyedProcessFunction and define process_element(value, ctx).",
            )
        inferred = result_type(callable_of(function), of=self.type, many=True)
        return self._add("process", ProcessKind(function), _declared(output_type, inferred))

    def reduce(self, function: Any) -> DataStream:
        """The records of a key combined one after the other; emits the result so far with each record."""
        _check_durable("reduce", self.type)
        return self._add("reduce", ReduceKind(function), self.type)

    def sum(self, field: int | str = 0) -> DataStream:
        """The running sum of one field; the other fields stay those of the key's first record."""
        return self._aggregate("sum", field)

    def min(self, field: int | str = 0) -> DataStream:
        """The running minimum of one field."""
        return self._aggregate("min", field)

    def max(self, field: int | str = 0) -> DataStream:
        """The running maximum of one field."""
        return self._aggregate("max", field)

    def _aggregate(self, how: str, field: int | str) -> DataStream:
        _check_durable(how, self.type)
        index: int | None = None
        if self.type.is_compound:
            index = self.type.field_index(field)
            if index is None:
                raise JobGraphError(
                    f"{how}({field!r}): records of type {self.type.name} have no such field",
                    hint=f"The fields are {', '.join(c.name for c in self.type.columns)}.",
                )
        column = self.type.columns[index or 0].arrow_type
        numeric = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
        if how == "sum" and not numeric:
            raise JobGraphError(f"sum({field!r}): the field is {column}, which cannot be summed", hint="Sum a number.")
        return self._add(how, AggregateKind(how, index), self.type)


def _declared(hint: Any, inferred: TypeInfo | None) -> TypeInfo:
    if hint is not None:
        return hint if isinstance(hint, TypeInfo) else type_info(hint)
    return inferred if inferred is not None else type_info(Any)


def _check_durable(what: str, type: TypeInfo) -> None:
    if not type.is_durable:
        raise JobGraphError(
            f"{what} keeps records of type {type.name} as state, and that type has no durable form",
            hint="Give the operator in front an output_type such as tuple[str, int].",
        )


def _check_callable(name: str, function: Any) -> None:
    try:
        callable_of(function)
    except TypeError as error:
        raise JobGraphError(f"{name}: {error}", hint="Pass a function, a lambda or a function object.") from None


def _checked_uid(uid: str) -> OperatorUid:
    if not isinstance(uid, str) or not uid:
        raise JobGraphError(f"a uid must be a non-empty text, not {uid!r}")
    return OperatorUid(uid)


def infer_common(values: Iterable[Any], infer: Callable[[Any], TypeInfo | None]) -> TypeInfo | None:
    """The one type that all values have; None if they have none or differ."""
    types = {infer(value) for value in values}
    return types.pop() if len(types) == 1 else None
