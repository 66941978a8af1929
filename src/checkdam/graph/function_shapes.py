"""The function contracts as a type checker sees them: by a class's methods, not by its base's type parameters.

This way the annotations of `class Double(MapFunction)` are checked like those of `class Double(MapFunction[int,
int])`. At run time `declarations.check_kind` requires an instance of the class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from checkdam.graph.contexts import (
    BroadcastContext,
    Context,
    ProcessContext,
    ReadOnlyContext,
    RuntimeContext,
    SinkContext,
    SourceContext,
)
from checkdam.graph.windowing.interval_join import JoinContext
from checkdam.graph.windowing.window_functions import WindowContext

T = TypeVar("T")
K = TypeVar("K", contravariant=True)
I = TypeVar("I", contravariant=True)  # noqa: E741  as Flink: input, accumulator, output
I1 = TypeVar("I1", contravariant=True)
I2 = TypeVar("I2", contravariant=True)
B = TypeVar("B", contravariant=True)
A = TypeVar("A")
O = TypeVar("O", covariant=True)  # noqa: E741
W = TypeVar("W", contravariant=True)


class Opens(Protocol):
    def open(self, ctx: RuntimeContext, /) -> None: ...

    def close(self) -> None: ...


class HasTimers(Opens, Protocol):
    @property
    def on_timer(self) -> object: ...


class MapsRecords(Opens, Protocol[I, O]):
    def map(self, value: I, /) -> O: ...


class FlatMaps(Opens, Protocol[I, O]):
    def flat_map(self, value: I, /) -> Iterable[O] | None: ...


class Filters(Opens, Protocol[I]):
    def filter(self, value: I, /) -> bool: ...


class Reduces(Opens, Protocol[T]):
    def reduce(self, accumulated: T, value: T, /) -> T: ...


class Aggregates(Opens, Protocol[I, A, O]):
    def create_accumulator(self) -> A: ...

    def add(self, value: I, accumulator: A, /) -> A: ...

    def get_result(self, accumulator: A, /) -> O: ...


class Processes(Opens, Protocol[I, O]):
    def process_element(self, value: I, ctx: Context, /) -> Iterable[O] | None: ...


class KeyedProcesses(HasTimers, Protocol[K, I, O]):
    def process_element(self, value: I, ctx: ProcessContext[K], /) -> Iterable[O] | None: ...


class KeyedCoProcesses(HasTimers, Protocol[K, I1, I2, O]):
    def process_element1(self, value: I1, ctx: ProcessContext[K], /) -> Iterable[O] | None: ...

    def process_element2(self, value: I2, ctx: ProcessContext[K], /) -> Iterable[O] | None: ...


class BroadcastProcesses(Opens, Protocol[I, B, O]):
    def process_element(self, value: I, ctx: ReadOnlyContext, /) -> Iterable[O] | None: ...

    def process_broadcast_element(self, value: B, ctx: BroadcastContext, /) -> Iterable[O] | None: ...


class KeyedBroadcastProcesses(HasTimers, Protocol[K, I, B, O]):
    def process_element(self, value: I, ctx: ReadOnlyContext[K], /) -> Iterable[O] | None: ...

    def process_broadcast_element(self, value: B, ctx: BroadcastContext[K], /) -> Iterable[O] | None: ...


class Makes(Opens, Protocol[O]):
    def run(self, ctx: SourceContext, /) -> Iterator[O]: ...


class Takes(Opens, Protocol[I]):
    def invoke(self, value: I, ctx: SinkContext, /) -> None: ...


class AsyncMaps(Protocol[I, O]):
    def open(self, ctx: RuntimeContext, /) -> Awaitable[None] | None: ...

    def close(self) -> Awaitable[None] | None: ...

    def async_invoke(self, value: I, /) -> Awaitable[O]: ...


class ProcessesWindow(Opens, Protocol[K, I, O, W]):
    def process(self, key: K, ctx: WindowContext[W], elements: Sequence[I], /) -> Iterable[O] | None: ...


class ProcessesAllWindow(Opens, Protocol[I, O, W]):
    def process(self, ctx: WindowContext[W], elements: Sequence[I], /) -> Iterable[O] | None: ...


class AppliesWindow(Opens, Protocol[K, I, O, W]):
    def apply(self, key: K, window: W, elements: Sequence[I], /) -> Iterable[O] | None: ...


class AppliesAllWindow(Opens, Protocol[I, O, W]):
    def apply(self, window: W, elements: Sequence[I], /) -> Iterable[O] | None: ...


class CoGroups(Opens, Protocol[I1, I2, O]):
    def co_group(self, first: Sequence[I1], second: Sequence[I2], /) -> Iterable[O] | None: ...


class Joins(Opens, Protocol[I1, I2, O]):
    def join(self, first: I1, second: I2, /) -> O: ...


class ProcessesPair(Opens, Protocol[I1, I2, O]):
    def process_element(self, left: I1, right: I2, ctx: JoinContext, /) -> Iterable[O] | None: ...


Mapper: TypeAlias = MapsRecords[I, O] | Callable[[I], O]
FlatMapper: TypeAlias = FlatMaps[I, O] | Callable[[I], Iterable[O] | None]
Filter: TypeAlias = Filters[I] | Callable[[I], object]
Reducer: TypeAlias = Reduces[T] | Callable[[T, T], T]
AsyncMapper: TypeAlias = AsyncMaps[I, O] | Callable[[I], Awaitable[O]]
