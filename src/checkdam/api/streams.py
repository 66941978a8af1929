"""Streams: each call adds an operator to the environment's graph and returns the stream behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import pyarrow as pa
from typing_extensions import TypeForm

from checkdam.api.collect import CloseableIterator, execute_and_collect
from checkdam.api.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    KeyedBroadcastConnectedStream,
    not_connectable,
)
from checkdam.api.declarations import (
    accumulator_of,
    check_durable,
    check_kind,
    checked_number,
    checked_uid,
    declared,
    key_selector,
    plain_callable,
    produced_type,
    returned_type,
    yielded_type,
)
from checkdam.connectors.file_sink import FileSink
from checkdam.connectors.simple_sinks import PrintSink, SparkSink
from checkdam.errors import JobGraphError, NoSuchCallError
from checkdam.graph.contexts import OutputTag
from checkdam.graph.function_shapes import (
    Aggregates,
    Filter,
    FlatMapper,
    KeyedProcesses,
    Mapper,
    Processes,
    Reducer,
    Takes,
)
from checkdam.graph.functions import (
    AggregateFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SinkFunction,
)
from checkdam.graph.operators import (
    AggregateFunctionKind,
    AggregateKind,
    ConnectKind,
    FilterKind,
    FlatMapKind,
    KeySelector,
    Kind,
    MapKind,
    Operator,
    ProcessKind,
    ReduceKind,
    SideOutputKind,
    SinkFunctionKind,
    SinkKind,
    TimestampsKind,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.hints import PickleType, SchemaType
from checkdam.types.type_info import TypeInfo

if TYPE_CHECKING:
    from checkdam.api.environment import StreamExecutionEnvironment

__all__ = ["DataStream", "DataStreamSink", "KeyedStream", "Stream"]

T = TypeVar("T", covariant=True)
K = TypeVar("K", covariant=True)
Key = TypeVar("Key")
Value = TypeVar("Value")
A = TypeVar("A")
B = TypeVar("B")
O = TypeVar("O")  # noqa: E741  as Flink: the output


class _Step:
    """The operator a call has just added, open for a name, a uid and a parallelism."""

    def __init__(self, environment: StreamExecutionEnvironment, operator: int) -> None:
        self._environment = environment
        self._operator_id = operator

    def uid(self, uid: str) -> Self:
        """The name under which the operator finds its state again: keyed state, a source's position, a sink's output.

        Required with state.
        """
        self._change(uid=checked_uid(uid))
        return self

    def name(self, name: str) -> Self:
        """What the operator is called in messages; no meaning beyond that."""
        self._change(name=name)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """How many subtasks the operator has; on the source side Spark's partitions decide instead."""
        self._change(parallelism=checked_number("set_parallelism", parallelism))
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """How many key groups the operator's state has, and so how many subtasks it can ever have."""
        self._change(max_parallelism=checked_number("set_max_parallelism", max_parallelism))
        return self

    def _change(self, **changes: Any) -> None:
        operators = self._environment._operators
        operators[self._operator_id] = replace(operators[self._operator_id], **changes)


class DataStreamSink(_Step):
    """The end of a stream."""


class Stream(Generic[T]):
    """Records of type T: what streams with and without keys have in common."""

    def __init__(self, environment: StreamExecutionEnvironment, operator: int, also: tuple[int, ...] = ()) -> None:
        self._environment = environment
        self._operator_id = operator
        self._inputs = (operator, *also)

    @property
    def type(self) -> TypeInfo:
        return self._environment._operators[self._operator_id].output_type

    @overload
    def map(self, function: Mapper[T, O]) -> DataStream[O]: ...

    @overload
    def map(self, function: Mapper[T, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def map(self, function: Mapper[T, O], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def map(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """One record in, one out."""
        inferred = returned_type(function, plain_callable("map", function), self.type)
        return self._add("map", MapKind(function), declared(output_type, inferred))

    @overload
    def flat_map(
        self, function: FlatMapFunction[T, O], output_type: PickleType[O] | SchemaType | None = None
    ) -> DataStream[O]: ...

    @overload
    def flat_map(self, function: FlatMapper[T, O]) -> DataStream[O]: ...

    @overload
    def flat_map(self, function: FlatMapper[T, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def flat_map(self, function: FlatMapper[T, O], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def flat_map(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """One record in, any number out."""
        inferred = yielded_type(function, plain_callable("flat_map", function), self.type)
        return self._add("flat_map", FlatMapKind(function), declared(output_type, inferred))

    def filter(self, function: Filter[T]) -> DataStream[T]:
        """Only the records for which the function is true."""
        plain_callable("filter", function)
        return self._add("filter", FilterKind(function), self.type)

    def assign_timestamps_and_watermarks(self, strategy: WatermarkStrategy[T]) -> DataStream[T]:
        """Give every record its event time; event time behind this follows from what has been seen here.

        Takes the place of an assignment further in front. The result has no keys: assign before key_by.
        """
        if not isinstance(strategy, WatermarkStrategy):
            raise JobGraphError(
                f"assign_timestamps_and_watermarks() takes a WatermarkStrategy, not {type(strategy).__name__}",
                hint="Write WatermarkStrategy.for_monotonous_timestamps(lambda record: record.time).",
            )
        return DataStream(
            self._environment, self._new("timestamps", TimestampsKind(strategy), self.type, is_keyed=False)
        )

    def broadcast(self, *descriptors: MapStateDescriptor[Any, Any]) -> BroadcastStream[T]:
        """Every record to every subtask, for the second side of `connect`; the descriptors name what it may write."""
        return BroadcastStream(self, descriptors)

    def union(self, *others: Stream[T]) -> DataStream[T]:
        """The records of all, in no particular order; their types must be the same."""
        for other in others:
            if other._environment is not self._environment:
                raise JobGraphError("streams of different environments cannot be united")
            if self._is_rebalanced or other._is_rebalanced:
                raise JobGraphError("a rebalanced stream cannot be united", hint="Write a.union(b).rebalance().")
            if other.type != self.type:
                raise JobGraphError(
                    f"union of {self.type.name} with {other.type.name}: the types differ",
                    hint="Bring them to one type with map(…, output_type=…) first.",
                )
        also = tuple(i for other in others for i in other._inputs)
        return _Union(self._environment, self._operator_id, self._inputs[1:] + also)

    def rebalance(self) -> DataStream[T]:
        """Deal the records out evenly over the subtasks of the next operator, which is not chained then.

        Without it they stay together by origin, and in order: what one subtask, or one partition of a source, gives
        goes to one subtask. Rebalance where too few origins keep too few subtasks busy, and order does not matter.
        """
        return _Rebalanced(self._environment, self._operator_id, self._inputs[1:])

    @overload
    def key_by(self, key: Callable[[T], Key]) -> KeyedStream[Key, T]: ...

    @overload
    def key_by(self, key: Callable[[T], Key] | str | int, key_type: TypeForm[Key]) -> KeyedStream[Key, T]: ...

    @overload
    def key_by(self, key: str | int) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(self, key: Callable[[T], object] | str | int, key_type: SchemaType) -> KeyedStream[Any, T]: ...

    def key_by(self, key: Any, key_type: Any = None) -> KeyedStream[Any, T]:
        """Partition by key: a function of the record, or the name or index of a column.

        The key's type comes from `key_type`, from the function's annotation, or from the columns it picks.
        """
        return KeyedStream(
            self._environment, self._operator_id, self._inputs[1:], key_selector(key, key_type, self.type)
        )

    def print(self, label: str = "") -> DataStreamSink:
        """Show the records on the driver's standard output, with each epoch."""
        return self._sink("print", PrintSink(label))

    def sink_to_files(self, path: str, format: str = "json") -> DataStreamSink:
        """Write part files below a directory, exactly once: visible when the checkpoint that covers them completes."""
        sink = FileSink(str(path), format)
        return self._sink(f"files({path})", sink, uid=sink.default_uid)

    def sink_to_spark(self, function: Callable[[Any, int], None]) -> DataStreamSink:
        """Call `function(dataframe, epoch)` in the driver with each epoch's records.

        An epoch may be seen again after a failover, under the same number: use it to write only once. Not so in a job
        with timers, source functions or event time, whose epochs without records come by the clock: there the numbers
        may shift, and output is at least once.
        """
        if self.type.is_opaque:
            raise JobGraphError(
                "records without a known type cannot become a DataFrame",
                hint="Give the operator in front an output_type such as tuple[str, int].",
            )
        return self._sink("spark", SparkSink(function))

    def add_sink(self, function: Takes[T]) -> DataStreamSink:
        """Hand every record to a sink of your own; after a failover records may come again."""
        check_kind("add_sink()", function, SinkFunction, "invoke(value, ctx)")
        operator = self._new(type(function).__name__, SinkFunctionKind(function), self.type)
        return DataStreamSink(self._environment, operator)

    def execute_and_collect(self, job_name: str | None = None, limit: int | None = None) -> CloseableIterator[T]:
        """Run the job in the background and iterate over the records of this stream as they come.

        The job is cancelled when the iterator is closed, as by a with block, or has given `limit` records; what the job
        fails with is raised while iterating.
        """
        return execute_and_collect(self, job_name, limit)

    def _sink(self, name: str, spec: Any, uid: str | None = None) -> DataStreamSink:
        operator = self._new(name, SinkKind(spec), self.type, uid=uid)
        return DataStreamSink(self._environment, operator)

    def _add(self, name: str, kind: Kind, output_type: TypeInfo) -> DataStream[Any]:
        return DataStream(self._environment, self._new(name, kind, output_type))

    def _connected(
        self, kind: ConnectKind, second: Stream[Any], second_key: KeySelector | None, output_type: TypeInfo
    ) -> DataStream[Any]:
        operator = self._new("connect", kind, output_type)
        joined: DataStream[Any] = DataStream(self._environment, operator)
        joined._change(second_inputs=second._inputs, second_key=second_key)
        return joined

    def _new(
        self, name: str, kind: Kind, output_type: TypeInfo, uid: str | None = None, *, is_keyed: bool = True
    ) -> int:
        operators = self._environment._operators
        operators.append(
            Operator(
                id=len(operators),
                name=name,
                kind=kind,
                inputs=self._inputs,
                output_type=output_type,
                uid=OperatorUid(uid) if uid else None,
                key=self._key if is_keyed else None,
                is_rebalanced=self._is_rebalanced,
            )
        )
        return len(operators) - 1

    _key: KeySelector | None = None
    _is_rebalanced = False


class DataStream(Stream[T], _Step):
    """Records of type T; `uid`, `name` and the like are about the operator that makes them."""

    @overload
    def process(self, function: ProcessFunction[T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Full control over each record. Takes a ProcessFunction."""
        other = "One with keys goes behind key_by." if isinstance(function, KeyedProcessFunction) else ""
        check_kind("process() without keys", function, ProcessFunction, "process_element(value, ctx)", other)
        inferred = produced_type(function, ["process_element"], self.type)
        return self._add("process", ProcessKind(function), declared(output_type, inferred))

    def get_side_output(self, tag: OutputTag[Value]) -> DataStream[Value]:
        """What the function of this operator emits with `ctx.output(tag, value)`."""
        if not isinstance(tag, OutputTag):
            raise JobGraphError(f"get_side_output() takes an OutputTag, not {tag!r}", hint='Write OutputTag("late").')
        self._check_has_side_outputs()
        of = declared(tag.type, None)
        for known in self._environment._operators:
            if known.kind == SideOutputKind(tag.name) and known.inputs == (self._operator_id,):
                if known.output_type != of:
                    raise JobGraphError(
                        f'side output "{tag.name}" is said to be of type {known.output_type.name} and of {of.name}',
                        hint="Make one OutputTag and use it everywhere.",
                    )
                return _SideOutput(self._environment, known.id)
        kind = SideOutputKind(tag.name)
        return _SideOutput(self._environment, self._new(f"side output {tag.name}", kind, of))

    def connect(self, other: BroadcastStream[B]) -> BroadcastConnectedStream[T, B]:
        """This stream beside a broadcast one, in one function."""
        if isinstance(other, BroadcastStream):
            return BroadcastConnectedStream(self, other)
        raise not_connectable(self, other)

    def _check_has_side_outputs(self) -> None:
        operator = self._environment._operators[self._operator_id]
        if len(self._inputs) > 1 or not isinstance(operator.kind, ProcessKind | ConnectKind):
            raise JobGraphError(
                f'"{operator.name}" has no side outputs',
                hint="Call get_side_output(tag) on what process() returned, before anything else.",
            )


class _Union(DataStream[T]):
    """Several streams read as one; not an operator, so there is nothing to name."""

    def _change(self, **changes: Any) -> None:
        raise JobGraphError("a union has no uid, name or parallelism", hint="Set it on the operator behind the union.")


class _SideOutput(DataStream[T]):
    """What a function emits aside; runs with its operator, so there is nothing to set."""

    def _change(self, **changes: Any) -> None:
        raise JobGraphError(
            "a side output has no uid, name or parallelism", hint="Set it on the operator that emits it."
        )


class _Rebalanced(DataStream[T]):
    """Records on their way to whichever subtask is next; not an operator, so there is nothing to name."""

    _is_rebalanced = True

    def _change(self, **changes: Any) -> None:
        raise JobGraphError(
            "rebalance has no uid, name or parallelism", hint="Set it on the operator behind rebalance()."
        )

    def _check_has_side_outputs(self) -> None:
        raise JobGraphError("rebalance has no side outputs", hint="Call get_side_output(tag) before rebalance().")


class KeyedStream(Stream[T], Generic[K, T]):
    """Records partitioned by a key of type K: all of a key reach the same subtask, where the key's state is.

    Not an operator, so there is nothing to name: `uid` and the like go behind the operator that comes next.
    """

    _key: KeySelector

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        operator: int,
        also: tuple[int, ...],
        key: KeySelector,
    ) -> None:
        super().__init__(environment, operator, also)
        self._key = key

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "get_side_output":
                raise NoSuchCallError("key_by has no side outputs", hint="Call get_side_output(tag) before key_by.")
            if name in ("uid", "name", "set_parallelism", "set_max_parallelism"):
                raise NoSuchCallError(
                    "key_by has no uid, name or parallelism", hint="Set it on the operator behind key_by."
                )
            raise AttributeError(f"'KeyedStream' object has no attribute {name!r}")

    @overload
    def process(self, function: KeyedProcessFunction[K, T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedProcesses[K, T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedProcesses[K, T, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedProcesses[K, T, O], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Full control over each record, and over the key's state and timers. Takes a KeyedProcessFunction."""
        check_kind("process() on a keyed stream", function, KeyedProcessFunction, "process_element(value, ctx)")
        inferred = produced_type(function, ["process_element", "on_timer"], self.type)
        return self._add("process", ProcessKind(function), declared(output_type, inferred))

    @overload
    def connect(self, other: BroadcastStream[B]) -> KeyedBroadcastConnectedStream[K, T, B]: ...

    @overload
    def connect(self, other: KeyedStream[K, B]) -> ConnectedStreams[K, T, B]: ...

    def connect(
        self, other: BroadcastStream[B] | KeyedStream[K, B]
    ) -> KeyedBroadcastConnectedStream[K, T, B] | ConnectedStreams[K, T, B]:
        """Two streams in one function: this one beside a broadcast one, or two with keys of the same type."""
        if isinstance(other, BroadcastStream):
            return KeyedBroadcastConnectedStream(self, other)
        if not isinstance(other, KeyedStream):
            raise not_connectable(self, other)
        return ConnectedStreams(self, other)

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, O],
        accumulator_type: PickleType[A] | SchemaType | None = None,
        output_type: PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, O],
        accumulator_type: TypeForm[A],
        output_type: PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    @overload
    def aggregate(self, function: Aggregates[T, A, O], *, output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def aggregate(
        self, function: Aggregates[T, A, O], accumulator_type: TypeForm[A], output_type: TypeForm[O]
    ) -> DataStream[O]: ...

    def aggregate(self, function: Any, accumulator_type: Any = None, output_type: Any = None) -> DataStream[Any]:
        """The records of a key gathered in an accumulator, which is its state; emits the result with each record.

        The types come from the annotations of `create_accumulator` and `get_result` where they are not given.
        """
        check_kind("aggregate()", function, AggregateFunction, "create_accumulator(), add() and get_result()")
        of = declared(accumulator_type, accumulator_of(function, self.type))
        if not of.is_durable:
            raise JobGraphError(
                f"the accumulator of {type(function).__name__} is of type {of.name}, which has no durable form",
                hint="Annotate the result of create_accumulator, or pass accumulator_type=tuple[int, int].",
            )
        inferred = returned_type(function, function.get_result, self.type)
        return self._add("aggregate", AggregateFunctionKind(function, of), declared(output_type, inferred))

    def reduce(self, function: Reducer[T]) -> DataStream[T]:
        """The records of a key combined one after the other; emits the result so far with each record."""
        plain_callable("reduce", function)
        check_durable("reduce", self.type)
        return self._add("reduce", ReduceKind(function), self.type)

    def sum(self, field: int | str = 0) -> DataStream[T]:
        """The running sum of one field; the other fields stay those of the key's first record.

        Plain numbers have one field, 0.
        """
        return self._aggregate("sum", field)

    def min(self, field: int | str = 0) -> DataStream[T]:
        """The running minimum of one field."""
        return self._aggregate("min", field)

    def max(self, field: int | str = 0) -> DataStream[T]:
        """The running maximum of one field."""
        return self._aggregate("max", field)

    def _aggregate(self, how: str, field: int | str) -> DataStream[T]:
        check_durable(how, self.type)
        index: int | None = None
        if self.type.is_compound:
            index = self.type.field_index(field)
            if index is None:
                raise JobGraphError(
                    f"{how}({field!r}): records of type {self.type.name} have no such field",
                    hint=f"The fields are {', '.join(c.name for c in self.type.columns)}.",
                )
        elif field != 0 or isinstance(field, bool):
            raise JobGraphError(
                f"{how}({field!r}): records of type {self.type.name} have no fields",
                hint=f"Write {how}(), or make the records tuples: .map(lambda value: (key, value)).",
            )
        column = self.type.columns[index or 0].arrow_type
        numeric = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
        if how == "sum" and not numeric:
            raise JobGraphError(f"sum({field!r}): the field is {column}, which cannot be summed", hint="Sum a number.")
        return self._add(how, AggregateKind(how, index), self.type)
