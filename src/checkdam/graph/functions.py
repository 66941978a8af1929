"""The contracts of user functions: the classes that users subclass."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, Never

from typing_extensions import TypeVar

from checkdam.graph.contexts import (
    BroadcastContext,
    Context,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OnTimerContext,
    ProcessContext,
    ReadOnlyContext,
    RuntimeContext,
    SinkContext,
    SourceContext,
)
from checkdam.graph.keyed_batches import BatchContext, KeyedBatch
from checkdam.types.type_arguments import type_argument

# A subclass without type parameters accepts the record and key types that its methods are annotated with.
K = TypeVar("K", contravariant=True, default=Never)
I = TypeVar("I", contravariant=True, default=Never)  # noqa: E741  as Flink: input, accumulator, output
I1 = TypeVar("I1", contravariant=True, default=Never)
I2 = TypeVar("I2", contravariant=True, default=Never)
B = TypeVar("B", contravariant=True, default=Never)
A = TypeVar("A", default=Any)
T = TypeVar("T", default=Any)
O = TypeVar("O", covariant=True, default=Any)  # noqa: E741


class RichFunction:
    """A function with a lifecycle: `open` before the first record, `close` at the end, also after a failure."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare the function, for instance by asking for state."""

    def close(self) -> None:
        """Release what `open` acquired."""


class CheckpointedFunction:
    """A function that keeps operator state: a mixin for other functions. `initialize_state` comes before `open`."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        """Ask for operator state; `ctx.is_restored` says whether it was restored."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize_state(ctx)")

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        """Bring the operator state up to date: a snapshot is being taken."""
        raise NotImplementedError(f"{type(self).__name__} must define snapshot_state(ctx)")


class MapFunction(RichFunction, Generic[I, O]):
    def map(self, value: I) -> O:
        """Return one record for one record."""
        raise NotImplementedError(f"{type(self).__name__} must define map(value)")


class FlatMapFunction(RichFunction, Generic[I, O]):
    def flat_map(self, value: I) -> Iterable[O] | None:
        """Return any number of records for one record: yield them, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map(value)")


class FilterFunction(RichFunction, Generic[I]):
    def filter(self, value: I) -> bool:
        """Return True to keep the record."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(value)")


class ReduceFunction(RichFunction, Generic[T]):
    def reduce(self, accumulated: T, value: T) -> T:
        """Combine two records into one of the same type."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(accumulated, value)")


class AggregateFunction(RichFunction, Generic[I, A, O]):
    """Collects values in an accumulator; the result may have another type than both.

    Write AggregateFunction[input, accumulator, result], or annotate `create_accumulator` and `get_result`, so that the
    types are known.
    """

    def create_accumulator(self) -> A:
        raise NotImplementedError(f"{type(self).__name__} must define create_accumulator()")

    def add(self, value: I, accumulator: A) -> A:
        """Return the accumulator with the value added: a new one, or the same one, changed."""
        raise NotImplementedError(f"{type(self).__name__} must define add(value, accumulator)")

    def get_result(self, accumulator: A) -> O:
        raise NotImplementedError(f"{type(self).__name__} must define get_result(accumulator)")

    def merge(self, one: A, other: A) -> A:
        """Merge two accumulators; needed only for merging session windows."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(one, other)")


class ProcessFunction(RichFunction, Generic[I, O]):
    """Full control over the records of a stream without keys."""

    def process_element(self, value: I, ctx: Context) -> Iterable[O] | None:
        """Handle one record: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")


class _WithTimers(RichFunction, Generic[K, O]):
    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """Handle a due timer of the current key: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} registers timers and must define on_timer(timestamp, ctx)")


class KeyedProcessFunction(_WithTimers[K, O], Generic[K, I, O]):
    """Full control over one key's records, state and timers."""

    def process_element(self, value: I, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the current key: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")


class KeyedBatchFunction(RichFunction, Generic[O]):
    """Works on the records of a keyed stream as columns, a batch at a time, with state as NumPy arrays.

    How an epoch's records are divided into batches is not defined; in a batch they are in order, and all batches of a
    key are.
    """

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        """Handle one batch: return output columns, yield such, or return None.

        Columns are a `pyarrow.RecordBatch`, a table or a dict by the names of the output type's columns; a tuple of
        arrays in their order; or one array for an output type with one column. The rows of output as long as the batch
        have the event times of its records, all others the latest of them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_batch(batch, ctx)")


class KeyedCoProcessFunction(_WithTimers[K, O], Generic[K, I1, I2, O]):
    """A function on two keyed streams that share the state of a key."""

    def process_element1(self, value: I1, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the first stream."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element1(value, ctx)")

    def process_element2(self, value: I2, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the second stream."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element2(value, ctx)")


class BroadcastProcessFunction(RichFunction, Generic[I, B, O]):
    """A function on a stream without keys and a broadcast stream. Within an epoch, broadcast records come first."""

    def process_element(self, value: I, ctx: ReadOnlyContext) -> Iterable[O] | None:
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")

    def process_broadcast_element(self, value: B, ctx: BroadcastContext) -> Iterable[O] | None:
        """Handle one broadcast record; must have the same effect on every subtask."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast_element(value, ctx)")


class KeyedBroadcastProcessFunction(_WithTimers[K, O], Generic[K, I, B, O]):
    """A function on a keyed stream and a broadcast stream. Within an epoch, broadcast records come first."""

    def process_element(self, value: I, ctx: ReadOnlyContext[K]) -> Iterable[O] | None:
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")

    def process_broadcast_element(self, value: B, ctx: BroadcastContext[K]) -> Iterable[O] | None:
        """Handle one broadcast record; must have the same effect on every subtask. There is no current key."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast_element(value, ctx)")


class SourceFunction(RichFunction, Generic[O]):
    """A source of records. A state update and the yield that follows it are atomic, without a lock.

    If the function keeps operator state, `snapshot_state` is called at every yield, in the thread of `run`, and a
    checkpoint gets the state of the last record that was sent downstream. Keep it short: most of these states are
    never part of a checkpoint.
    """

    def run(self, ctx: SourceContext) -> Iterator[O]:
        """Yield records, for ever or until there are no more; called once, after `open`.

        The generator has its own thread and may block between two records for any time: earlier records are sent
        downstream, and checkpoints are taken meanwhile. If the job ends first, GeneratorExit is raised at the yield,
        or else inside Python code; a C call that does not return is abandoned. A subtask that has finished stays
        finished after a restore.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run(ctx)")

    def cancel(self) -> None:
        """End a wait inside `run`; called from another thread if the job ends before `run` does."""


class SinkFunction(RichFunction, Generic[I]):
    """A user-defined sink; after a failover it may receive records again."""

    def invoke(self, value: I, ctx: SinkContext) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define invoke(value, ctx)")


class DiscardingSink(SinkFunction[I]):
    """Drops all records: for a job whose output is a side effect or does not matter. Columns stay columns."""

    def invoke(self, value: I, ctx: SinkContext) -> None:
        pass


class AsyncFunction(Generic[I, O]):
    """A function of `map_async`: many of its calls run side by side, in one event loop for each subtask.

    The event loop has a thread of its own and runs as long as the subtask, so what `open` or the first call connects
    can be used until `close`. All methods are called in that thread. `open` and `close` may be coroutine functions.
    With `batch_size`, write AsyncFunction[list[input], list[output]].
    """

    def open(self, ctx: RuntimeContext) -> Awaitable[None] | None:
        """Prepare the function, for instance by connecting a client. There is no keyed state."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Release what `open` acquired; called when no call is in flight any more, also after a failure."""
        return None

    async def async_invoke(self, value: I) -> O:
        """Return one record for one record; with `batch_size`, a list of records for a list of records."""
        raise NotImplementedError(f"{type(self).__name__} must define async_invoke(value)")

    def timeout(self, value: Any) -> Any:
        """Return the record to emit for one whose call has timed out. If not defined, the job fails."""
        raise NotImplementedError(f"{type(self).__name__} does not define timeout(value)")


_METHODS: tuple[tuple[type, str], ...] = (
    (MapFunction, "map"),
    (FlatMapFunction, "flat_map"),
    (FilterFunction, "filter"),
    (ReduceFunction, "reduce"),
    (ProcessFunction, "process_element"),
    (KeyedProcessFunction, "process_element"),
    (KeyedBatchFunction, "process_batch"),
    (KeyedCoProcessFunction, "process_element1"),
    (BroadcastProcessFunction, "process_element"),
    (KeyedBroadcastProcessFunction, "process_element"),
    (AggregateFunction, "add"),
    (SourceFunction, "run"),
    (SinkFunction, "invoke"),
    (AsyncFunction, "async_invoke"),
)


def callable_of(function: Any) -> Callable[..., Any]:
    """Return the plain callable of a user function, given in any form."""
    for kind, method in _METHODS:
        if isinstance(function, kind):
            return getattr(function, method)  # type: ignore[no-any-return]  # looked up by name
    if callable(function):
        return function  # type: ignore[no-any-return]  # any callable will do
    raise TypeError(f"{function!r} is neither a callable nor a function object")


def output_hint(function: Any) -> Any:
    """Return the output type that a function's class declares, as in ProcessFunction[int, str]; else None."""
    return _named(function, O)


def accumulator_hint(function: Any) -> Any:
    """Return the accumulator type that an AggregateFunction's class declares; None if it declares none."""
    return _named(function, A)


def _named(function: Any, variable: Any) -> Any:
    kind = next((kind for kind, _ in _METHODS if isinstance(function, kind)), None)
    return None if kind is None else type_argument(type(function), kind, variable)


def is_coroutine_function(call: Any) -> bool:
    """Return whether calling it returns a coroutine: an `async def`, a partial of one, an object with such a method."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(type(call), "__call__", None))  # noqa: B004  # the method itself is wanted


def has_life(function: Any) -> bool:
    """Return whether the function defines open or close or keeps operator state, so that it must live in a slot."""
    if isinstance(function, CheckpointedFunction):
        return True
    if not isinstance(function, RichFunction):
        return False
    kind = type(function)
    return kind.open is not RichFunction.open or kind.close is not RichFunction.close


def has_timers(function: Any) -> bool:
    """Return whether the function can have timers."""
    return isinstance(function, _WithTimers) and type(function).on_timer is not _WithTimers.on_timer
