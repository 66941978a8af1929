"""The contracts of user functions: what a user subclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from checkdam.types.type_arguments import type_argument

# A subclass without type parameters takes records and keys of whatever types its methods are annotated with.
K = TypeVar("K", contravariant=True, default=Never)
I = TypeVar("I", contravariant=True, default=Never)  # noqa: E741  as Flink: input, accumulator, output
I1 = TypeVar("I1", contravariant=True, default=Never)
I2 = TypeVar("I2", contravariant=True, default=Never)
B = TypeVar("B", contravariant=True, default=Never)
A = TypeVar("A", default=Any)
T = TypeVar("T", default=Any)
O = TypeVar("O", covariant=True, default=Any)  # noqa: E741


class RichFunction:
    """A function with a life: `open` once before the first record, `close` once at the end, also after a failure."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare; the place to ask for state."""

    def close(self) -> None:
        """Let go of what `open` took."""


class CheckpointedFunction:
    """A function that keeps operator state. Mix it into any other; `initialize_state` comes before `open`."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        """Ask for operator state; `ctx.is_restored` tells whether it holds something from before."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize_state(ctx)")

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        """A checkpoint is being cut: bring the operator state up to date."""
        raise NotImplementedError(f"{type(self).__name__} must define snapshot_state(ctx)")


class MapFunction(RichFunction, Generic[I, O]):
    def map(self, value: I) -> O:
        """One record in, one out."""
        raise NotImplementedError(f"{type(self).__name__} must define map(value)")


class FlatMapFunction(RichFunction, Generic[I, O]):
    def flat_map(self, value: I) -> Iterable[O] | None:
        """One record in, any number out: yield them, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map(value)")


class FilterFunction(RichFunction, Generic[I]):
    def filter(self, value: I) -> bool:
        """True to keep the record."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(value)")


class ReduceFunction(RichFunction, Generic[T]):
    def reduce(self, accumulated: T, value: T) -> T:
        """Combine two records into one of the same type."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(accumulated, value)")


class AggregateFunction(RichFunction, Generic[I, A, O]):
    """Gathers values into an accumulator; the result may have another type than both.

    Write AggregateFunction[input, accumulator, result], or annotate `create_accumulator` and `get_result`, so that the
    types are known.
    """

    def create_accumulator(self) -> A:
        raise NotImplementedError(f"{type(self).__name__} must define create_accumulator()")

    def add(self, value: I, accumulator: A) -> A:
        """The accumulator with the value in it: a new one, or the same changed."""
        raise NotImplementedError(f"{type(self).__name__} must define add(value, accumulator)")

    def get_result(self, accumulator: A) -> O:
        raise NotImplementedError(f"{type(self).__name__} must define get_result(accumulator)")

    def merge(self, one: A, other: A) -> A:
        """Two accumulators as one; needed only where sessions merge."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(one, other)")


class ProcessFunction(RichFunction, Generic[I, O]):
    """Full control over the records of a stream without keys."""

    def process_element(self, value: I, ctx: Context) -> Iterable[O] | None:
        """Handle one record: yield what goes on, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")


class _WithTimers(RichFunction, Generic[K, O]):
    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """A timer of the current key is due: yield what goes on, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} registers timers and must define on_timer(timestamp, ctx)")


class KeyedProcessFunction(_WithTimers[K, O], Generic[K, I, O]):
    """Full control over one key's records, state and timers."""

    def process_element(self, value: I, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the current key: yield what goes on, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")


class KeyedCoProcessFunction(_WithTimers[K, O], Generic[K, I1, I2, O]):
    """Two keyed streams that share the state of a key."""

    def process_element1(self, value: I1, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the first stream."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element1(value, ctx)")

    def process_element2(self, value: I2, ctx: ProcessContext[K]) -> Iterable[O] | None:
        """Handle one record of the second stream."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element2(value, ctx)")


class BroadcastProcessFunction(RichFunction, Generic[I, B, O]):
    """A stream without keys beside one that every subtask sees. Within an epoch the broadcast side comes first."""

    def process_element(self, value: I, ctx: ReadOnlyContext) -> Iterable[O] | None:
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")

    def process_broadcast_element(self, value: B, ctx: BroadcastContext) -> Iterable[O] | None:
        """Handle one broadcast record; must do the same on every subtask."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast_element(value, ctx)")


class KeyedBroadcastProcessFunction(_WithTimers[K, O], Generic[K, I, B, O]):
    """A keyed stream beside one that every subtask sees. Within an epoch the broadcast side comes first."""

    def process_element(self, value: I, ctx: ReadOnlyContext[K]) -> Iterable[O] | None:
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")

    def process_broadcast_element(self, value: B, ctx: BroadcastContext[K]) -> Iterable[O] | None:
        """Handle one broadcast record; must do the same on every subtask. There is no current key."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast_element(value, ctx)")


class SourceFunction(RichFunction, Generic[O]):
    """Makes records. The update before a yield and the record it yields belong together, with no lock.

    If it keeps operator state, `snapshot_state` is called at every yield, in the thread of `run`, and a checkpoint gets
    the state of the last record that has gone on. Keep it short: most of these states no checkpoint ever needs.
    """

    def run(self, ctx: SourceContext) -> Iterator[O]:
        """Yield records, for ever or until there are no more; called once, after `open`.

        The generator has a thread of its own, and may wait between two records for as long as it likes: what it
        yielded before goes on, and checkpoints are taken meanwhile. When the job ends first, GeneratorExit is raised at
        the yield, or else inside Python code; a wait in C that does not return is left behind. A subtask that has ended
        stays ended after a restore.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run(ctx)")

    def cancel(self) -> None:
        """End the wait that `run` may be in; called from another thread when the job ends before `run` does."""


class SinkFunction(RichFunction, Generic[I]):
    """Takes records out of the job, its own way; after a failover records may come again."""

    def invoke(self, value: I, ctx: SinkContext) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define invoke(value, ctx)")


_METHODS: tuple[tuple[type[RichFunction], str], ...] = (
    (MapFunction, "map"),
    (FlatMapFunction, "flat_map"),
    (FilterFunction, "filter"),
    (ReduceFunction, "reduce"),
    (ProcessFunction, "process_element"),
    (KeyedProcessFunction, "process_element"),
    (KeyedCoProcessFunction, "process_element1"),
    (BroadcastProcessFunction, "process_element"),
    (KeyedBroadcastProcessFunction, "process_element"),
    (AggregateFunction, "add"),
    (SourceFunction, "run"),
    (SinkFunction, "invoke"),
)


def callable_of(function: Any) -> Callable[..., Any]:
    """The plain callable behind a user function, whichever form it was given in."""
    for kind, method in _METHODS:
        if isinstance(function, kind):
            return getattr(function, method)  # type: ignore[no-any-return]  # looked up by name
    if callable(function):
        return function  # type: ignore[no-any-return]  # any callable will do
    raise TypeError(f"{function!r} is neither a callable nor a function object")


def output_hint(function: Any) -> Any:
    """The output type that a function's class names, as in ProcessFunction[int, str]; None if it names none."""
    return _named(function, O)


def accumulator_hint(function: Any) -> Any:
    """The accumulator's type that an AggregateFunction's class names; None if it names none."""
    return _named(function, A)


def _named(function: Any, variable: Any) -> Any:
    kind = next((kind for kind, _ in _METHODS if isinstance(function, kind)), None)
    return None if kind is None else type_argument(type(function), kind, variable)


def has_life(function: Any) -> bool:
    """Whether the function defines open or close or keeps operator state, and so must live in a slot."""
    if isinstance(function, CheckpointedFunction):
        return True
    if not isinstance(function, RichFunction):
        return False
    kind = type(function)
    return kind.open is not RichFunction.open or kind.close is not RichFunction.close


def has_timers(function: Any) -> bool:
    """Whether timers of the function can come due."""
    return isinstance(function, _WithTimers) and type(function).on_timer is not _WithTimers.on_timer
