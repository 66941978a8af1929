"""Streams: each call adds an operator to the environment's graph and returns its output stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import pyarrow as pa
from typing_extensions import TypeForm

from checkdam.api.async_declarations import async_output_type, check_async
from checkdam.api.collect import CloseableIterator, execute_and_collect
from checkdam.api.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    KeyedBroadcastConnectedStream,
    not_connectable,
    stream_hint,
)
from checkdam.api.declarations import (
    accumulator_of,
    batch_output_type,
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
from checkdam.api.joins import CoGroupedStreams, IntervalJoin, JoinedStreams
from checkdam.api.windowed_streams import AllWindowedStream, WindowedStream, count_setting, window_setting
from checkdam.connectors.file_sink import FileSink
from checkdam.connectors.simple_sinks import PrintSink, SparkSink
from checkdam.errors import JobGraphError, NoSuchCallError
from checkdam.graph.async_calls import AsyncRetry
from checkdam.graph.contexts import OutputTag
from checkdam.graph.function_shapes import (
    Aggregates,
    AsyncMapper,
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
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from checkdam.graph.operators import (
    AggregateFunctionKind,
    AggregateKind,
    AsyncMapKind,
    BatchProcessKind,
    ConnectKind,
    FilterKind,
    FlatMapKind,
    IntervalJoinKind,
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
    WindowKind,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.graph.windowing.assigners import WindowAssigner
from checkdam.graph.windowing.windows import GlobalWindow, Window
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.hints import PickleType, SchemaType
from checkdam.types.type_info import TypeInfo, type_info

if TYPE_CHECKING:
    from checkdam.api.environment import StreamExecutionEnvironment

__all__ = ["DataStream", "DataStreamSink", "KeyedStream", "Stream"]

T = TypeVar("T", covariant=True)
K = TypeVar("K", covariant=True)
Key = TypeVar("Key")
Value = TypeVar("Value")
A = TypeVar("A")
B = TypeVar("B")
W = TypeVar("W", bound=Window)
O = TypeVar("O")  # noqa: E741  Flink's name for the output


class _AddedOperator:
    """The operator that a call has just added: sets its name, uid and parallelism."""

    def __init__(self, environment: StreamExecutionEnvironment, operator: int) -> None:
        self._environment = environment
        self._operator_id = operator

    def uid(self, uid: str) -> Self:
        """Set the id by which the operator finds its state again: keyed state, a source's position, a sink's output.

        Required with state.
        """
        self._change(uid=checked_uid(uid))
        return self

    def name(self, name: str) -> Self:
        """Set the operator's name in messages; it has no other meaning."""
        self._change(name=name, is_named=True)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks; on the source side Spark's partitions decide instead."""
        self._change(parallelism=checked_number("set_parallelism", parallelism))
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of the operator's state, which is the upper limit of its parallelism."""
        self._change(max_parallelism=checked_number("set_max_parallelism", max_parallelism))
        return self

    _settings_belong_to: tuple[str, str] | None = (
        None  # of a stream that is no operator: its title, and where to set them
    )

    def _change(self, **changes: Any) -> None:
        if self._settings_belong_to is not None:
            title, operator = self._settings_belong_to
            raise JobGraphError(f"{title} has no uid, name or parallelism", hint=f"Set it on the operator {operator}.")
        operators = self._environment._operators
        operators[self._operator_id] = replace(operators[self._operator_id], **changes)


class DataStreamSink(_AddedOperator):
    """The end of a stream."""


class Stream(Generic[T]):
    """Records of type T: the common part of streams with and without keys."""

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
        """Transform each record into one."""
        inferred = returned_type(function, plain_callable(MapFunction.map, function), self.type)
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
        """Transform each record into any number of records."""
        inferred = yielded_type(function, plain_callable(FlatMapFunction.flat_map, function), self.type)
        return self._add("flat_map", FlatMapKind(function), declared(output_type, inferred))

    @overload
    def map_async(
        self,
        function: AsyncMapper[T, O],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
    ) -> DataStream[O]: ...

    @overload
    def map_async(
        self,
        function: AsyncMapper[T, O],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
        output_type: TypeForm[O],
    ) -> DataStream[O]: ...

    @overload
    def map_async(
        self,
        function: AsyncMapper[T, O],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
        output_type: PickleType[O] | SchemaType,
    ) -> DataStream[O]: ...

    @overload
    def map_async(
        self,
        function: AsyncMapper[list[T], Sequence[O]],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
        batch_size: int,
        max_delay: timedelta | None = None,
    ) -> DataStream[O]: ...

    @overload
    def map_async(
        self,
        function: AsyncMapper[list[T], Sequence[O]],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
        batch_size: int,
        max_delay: timedelta | None = None,
        output_type: TypeForm[O],
    ) -> DataStream[O]: ...

    @overload
    def map_async(
        self,
        function: AsyncMapper[list[T], Sequence[O]],
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Callable[[T], O] | None = None,
        batch_size: int,
        max_delay: timedelta | None = None,
        output_type: PickleType[O] | SchemaType,
    ) -> DataStream[O]: ...

    def map_async(
        self,
        function: Any,
        *,
        capacity: int = 100,
        timeout: timedelta | None = None,
        ordered: bool = True,
        retry: AsyncRetry | None = None,
        on_timeout: Any = None,
        batch_size: int | None = None,
        max_delay: timedelta | None = None,
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Transform each record into one with a coroutine function or AsyncFunction, many calls at a time.

        All calls of an epoch are settled before it ends, so no call is in flight at a checkpoint.

        Args:
            capacity: the most calls in flight in each subtask.
            timeout: of the call for a record, with all its retries. Then `on_timeout(value)`, or `timeout(value)` of
                the AsyncFunction, returns the record to emit; without them the job fails.
            ordered: keep the order of the records; else they are emitted as their calls complete.
            batch_size: call the function with lists of this many records; it returns a list of the same length. A
                batch may be smaller at the end of an epoch, or when its first record has waited for `max_delay`.
        """
        kind = AsyncMapKind(function, capacity, timeout, ordered, retry, on_timeout, batch_size, max_delay)
        check_async(kind)
        return self._add("map_async", kind, async_output_type(kind, output_type, self.type))

    def filter(self, function: Filter[T]) -> DataStream[T]:
        """Keep only the records for which the function is true."""
        plain_callable(FilterFunction.filter, function)
        return self._add("filter", FilterKind(function), self.type)

    def assign_timestamps_and_watermarks(self, strategy: WatermarkStrategy[T]) -> DataStream[T]:
        """Assign an event time to every record and generate watermarks for the downstream operators.

        Replaces an assignment further upstream. The result has no keys: assign before key_by.
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
        """Send every record to every subtask, for `connect`; the descriptors declare the states it may write."""
        return BroadcastStream(self, descriptors)

    def union(self, *others: Stream[T]) -> DataStream[T]:
        """Merge the records of all streams, in no particular order; their types must be the same."""
        for other in others:
            if not isinstance(other, Stream):
                raise JobGraphError(f"union() takes streams, not {type(other).__name__}", hint=stream_hint(other))
            if other._environment is not self._environment:
                raise JobGraphError(
                    "streams of different environments cannot be united", hint="Build both with one environment."
                )
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
        """Distribute the records evenly over the subtasks of the next operator, which is then not chained.

        Without it, records of one origin stay together and in order: those of one subtask, or of one partition of a
        source, go to one subtask. Use it where too few origins keep too few subtasks busy and order does not matter.
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
        return self._keyed_by(key_selector(key, key_type, self.type))

    def _keyed_by(self, key: KeySelector) -> KeyedStream[Any, T]:
        return KeyedStream(self._environment, self._operator_id, self._inputs[1:], key)

    def print(self, label: str = "") -> DataStreamSink:
        """Print the records of each epoch on the driver's standard output."""
        return self._sink("print", PrintSink(label))

    def sink_to_files(self, path: str, format: str = "json") -> DataStreamSink:
        """Write part files below a directory, exactly once: visible when the checkpoint that covers them completes."""
        sink = FileSink(str(path), format)
        return self._sink(f"files({path})", sink, uid=sink.default_uid)

    def sink_to_spark(self, function: Callable[[Any, int], None]) -> DataStreamSink:
        """Call `function(dataframe, epoch)` in the driver with each epoch's records.

        After a failover an epoch may come again under the same number: use it to make writes idempotent. In a job with
        timers, source functions or event time, the clock triggers epochs without records: there the numbers may shift,
        and output is at least once.
        """
        if self.type.is_opaque:
            raise JobGraphError(
                "records without a known type cannot become a DataFrame",
                hint="Give the operator before it an output_type such as tuple[str, int].",
            )
        return self._sink("spark", SparkSink(function))

    def add_sink(self, function: Takes[T]) -> DataStreamSink:
        """Pass every record to a sink function; after a failover records may come again."""
        check_kind("add_sink()", function, SinkFunction, "invoke(value, ctx)")
        operator = self._new(type(function).__name__, SinkFunctionKind(function), self.type)
        return DataStreamSink(self._environment, operator)

    def execute_and_collect(self, job_name: str | None = None, limit: int | None = None) -> CloseableIterator[T]:
        """Run the job in the background and iterate over the records of this stream as they come.

        The job is cancelled when the iterator is closed, as by a with block, or has returned `limit` records. Iterating
        raises the job's failure.
        """
        return execute_and_collect(self, job_name, limit)

    def _sink(self, name: str, spec: Any, uid: str | None = None) -> DataStreamSink:
        operator = self._new(name, SinkKind(spec), self.type, uid=uid)
        return DataStreamSink(self._environment, operator)

    def _add(self, name: str, kind: Kind, output_type: TypeInfo) -> DataStream[Any]:
        return DataStream(self._environment, self._new(name, kind, output_type))

    def join(self, other: Stream[Value]) -> JoinedStreams[T, Value]:
        """Join with another stream: pairs of records with equal keys in the same window."""
        return JoinedStreams(self, other)

    def co_group(self, other: Stream[Value]) -> CoGroupedStreams[T, Value]:
        """Group the records of both streams by key and window."""
        return CoGroupedStreams(self, other)

    def _connected(
        self,
        kind: ConnectKind | WindowKind | IntervalJoinKind,
        second: Stream[Any],
        second_key: KeySelector | None,
        output_type: TypeInfo,
    ) -> DataStream[Any]:
        operator = self._new(_joint_name(kind), kind, output_type)
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


class DataStream(Stream[T], _AddedOperator):
    """Records of type T; `uid`, `name` and the like apply to the operator that produces them."""

    @overload
    def process(self, function: ProcessFunction[T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(self, function: Processes[T, O], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Process each record with a ProcessFunction."""
        other = "A KeyedProcessFunction needs key_by before it." if isinstance(function, KeyedProcessFunction) else ""
        check_kind("process() without keys", function, ProcessFunction, "process_element(value, ctx)", other)
        inferred = produced_type(function, ["process_element"], self.type)
        return self._add("process", ProcessKind(function), declared(output_type, inferred))

    def get_side_output(self, tag: OutputTag[Value]) -> DataStream[Value]:
        """Return the stream of values that this operator's function emits with `ctx.output(tag, value)`."""
        if not isinstance(tag, OutputTag):
            raise JobGraphError(f"get_side_output() takes an OutputTag, not {tag!r}", hint='Write OutputTag("late").')
        self._check_has_side_outputs()
        of = declared(tag.type, None)
        for known in self._environment._operators:
            if known.kind == SideOutputKind(tag.name) and known.inputs == (self._operator_id,):
                if known.output_type != of:
                    raise JobGraphError(
                        f'side output "{tag.name}" is declared with the types {known.output_type.name} and {of.name}',
                        hint="Make one OutputTag and use it everywhere.",
                    )
                return _SideOutput(self._environment, known.id)
        kind = SideOutputKind(tag.name)
        return _SideOutput(self._environment, self._new(f"side output {tag.name}", kind, of))

    def window_all(self, assigner: WindowAssigner[T, W]) -> AllWindowedStream[T, W]:
        """Divide all records into windows. One subtask handles them all: key_by(…).window(…) scales."""
        return AllWindowedStream(self._as_one_key(), window_setting(assigner))

    def count_window_all(self, size: int, slide: int | None = None) -> AllWindowedStream[T, GlobalWindow]:
        """Divide all records into windows of `size` records; with `slide`, one ends every `slide` records."""
        return AllWindowedStream(self._as_one_key(), count_setting(size, slide))

    def _as_one_key(self) -> _OneKey[T]:
        key = KeySelector(type_info(int), _no_key)
        return _OneKey(self._environment, self._operator_id, self._inputs[1:], key)

    def connect(self, other: BroadcastStream[B]) -> BroadcastConnectedStream[T, B]:
        """Connect this stream with a broadcast one, in one function."""
        if isinstance(other, BroadcastStream):
            return BroadcastConnectedStream(self, other)
        raise not_connectable(self, other)

    def _check_has_side_outputs(self) -> None:
        operator = self._environment._operators[self._operator_id]
        if len(self._inputs) > 1 or not isinstance(
            operator.kind, ProcessKind | ConnectKind | WindowKind | IntervalJoinKind
        ):
            raise JobGraphError(
                f'"{operator.name}" has no side outputs',
                hint="Call get_side_output(tag) on the result of process(), or of a function on windows.",
            )


class _Union(DataStream[T]):
    """Several streams read as one; not an operator, so it has no name or uid."""

    _settings_belong_to = "a union", "after the union"


class _SideOutput(DataStream[T]):
    """The side output of a function; part of its operator, so it has no settings."""

    _settings_belong_to = "a side output", "that emits it"


class _Rebalanced(DataStream[T]):
    """Records on their way to any subtask of the next operator; not an operator, so it has no name or uid."""

    _is_rebalanced = True
    _settings_belong_to = "rebalance", "after rebalance()"

    def _check_has_side_outputs(self) -> None:
        raise JobGraphError("rebalance has no side outputs", hint="Call get_side_output(tag) before rebalance().")


class KeyedStream(Stream[T], Generic[K, T]):
    """Records partitioned by a key of type K: all records of a key reach the same subtask, which holds the key's state.

    Not an operator, so it has no name: set `uid` and the like on the next operator.
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
                    "key_by has no uid, name or parallelism", hint="Set it on the operator after key_by."
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
        """Process each record with a KeyedProcessFunction, which has access to the key's state and timers."""
        check_kind("process() on a keyed stream", function, KeyedProcessFunction, "process_element(value, ctx)")
        inferred = produced_type(function, ["process_element", "on_timer"], self.type)
        return self._add("process", ProcessKind(function), declared(output_type, inferred))

    @overload
    def process_batch(self, function: KeyedBatchFunction[O]) -> DataStream[O]: ...

    @overload
    def process_batch(self, function: KeyedBatchFunction[Any], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process_batch(self, function: KeyedBatchFunction[Any], output_type: SchemaType) -> DataStream[Any]: ...

    def process_batch(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Process the records a batch at a time, as columns, with a KeyedBatchFunction."""
        check_kind("process_batch()", function, KeyedBatchFunction, "process_batch(batch, ctx)")
        if self.type.is_opaque:
            raise JobGraphError(
                "records without a known type have no columns for process_batch()",
                hint="Give the operator before it an output_type such as tuple[str, int].",
            )
        return self._add("process_batch", BatchProcessKind(function), batch_output_type(function, output_type))

    @overload
    def connect(self, other: BroadcastStream[B]) -> KeyedBroadcastConnectedStream[K, T, B]: ...

    @overload
    def connect(self, other: KeyedStream[K, B]) -> ConnectedStreams[K, T, B]: ...

    def connect(
        self, other: BroadcastStream[B] | KeyedStream[K, B]
    ) -> KeyedBroadcastConnectedStream[K, T, B] | ConnectedStreams[K, T, B]:
        """Connect this stream with a broadcast one, or with another keyed by the same type, in one function."""
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
        """Aggregate the records of a key in an accumulator, which is its state; emit the result with each record.

        If not given, the types come from the annotations of `create_accumulator` and `get_result`.
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
        """Combine the records of a key one after the other; emit the result so far with each record."""
        plain_callable(ReduceFunction.reduce, function)
        check_durable("reduce", self.type)
        return self._add("reduce", ReduceKind(function), self.type)

    def sum(self, field: int | str = 0) -> DataStream[T]:
        """Emit the running sum of one field; the other fields stay those of the key's first record.

        Plain numbers have one field, 0.
        """
        return self._aggregate("sum", field)

    def min(self, field: int | str = 0) -> DataStream[T]:
        """Emit the running minimum of one field."""
        return self._aggregate("min", field)

    def max(self, field: int | str = 0) -> DataStream[T]:
        """Emit the running maximum of one field."""
        return self._aggregate("max", field)

    def window(self, assigner: WindowAssigner[T, W]) -> WindowedStream[K, T, W]:
        """Divide the records of each key into windows."""
        return WindowedStream(self, window_setting(assigner))

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[K, T, GlobalWindow]:
        """Divide the records of each key into windows of `size` records; with `slide`, one ends every that many."""
        return WindowedStream(self, count_setting(size, slide))

    def interval_join(self, other: KeyedStream[K, Value]) -> IntervalJoin[K, T, Value]:
        """Join with another keyed stream: pairs of records with the same key whose timestamps are close enough."""
        return IntervalJoin(self, other)

    def _add_windows(self, name: str, kind: WindowKind, output_type: TypeInfo) -> DataStream[Any]:
        return self._add(name, kind, output_type)

    def _aggregate(self, how: str, field: int | str) -> DataStream[T]:
        return self._add(how, AggregateKind(how, self._aggregated_field(how, field)), self.type)

    def _aggregated_field(self, how: str, field: int | str) -> int | None:
        """Return the index of the field that sum, min or max work on; None if the record itself is the number."""
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
        return index


class _OneKey(KeyedStream[int, T]):
    """All records under one key, for windows of a stream without keys."""

    def _add_windows(self, name: str, kind: WindowKind, output_type: TypeInfo) -> DataStream[Any]:
        added = self._add(name, kind, output_type)
        added._change(parallelism=1, max_parallelism=1)
        return added


def _no_key(record: Any) -> int:
    return 0


def _joint_name(kind: ConnectKind | WindowKind | IntervalJoinKind) -> str:
    if isinstance(kind, WindowKind):
        return "window join"
    return "interval join" if isinstance(kind, IntervalJoinKind) else "connect"
