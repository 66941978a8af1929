"""The contracts of functions on windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Never, Protocol

from typing_extensions import TypeVar

from checkdam.graph.contexts import KeyedStateAccess, OutputTag
from checkdam.graph.functions import RichFunction
from checkdam.graph.windowing.interval_join import ProcessJoinFunction
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.types.type_arguments import type_argument
from checkdam.types.type_info import TypeInfo, result_type, type_info

K = TypeVar("K", contravariant=True, default=Never)
I = TypeVar("I", contravariant=True, default=Never)  # noqa: E741  as Flink: input, output
I1 = TypeVar("I1", contravariant=True, default=Never)
I2 = TypeVar("I2", contravariant=True, default=Never)
O = TypeVar("O", covariant=True, default=Any)  # noqa: E741
W = TypeVar("W", default=TimeWindow)
W_co = TypeVar("W_co", covariant=True, default=TimeWindow)
T = TypeVar("T")


class WindowContext(Protocol[W_co]):
    """The context of a window that fires, or that ends."""

    @property
    def window(self) -> W_co: ...

    @property
    def current_watermark(self) -> int: ...

    @property
    def current_processing_time(self) -> int: ...

    def window_state(self) -> KeyedStateAccess:
        """Return access to state of the current key and window. `clear` must clear it. Not for windows that merge."""

    def global_state(self) -> KeyedStateAccess:
        """Return access to state of the current key, shared by all its windows."""

    def output(self, tag: OutputTag[T], value: T) -> None:
        """Emit a value to a side output."""


class ProcessWindowFunction(RichFunction, Generic[K, I, O, W]):
    """Full control over one window of one key."""

    def process(self, key: K, ctx: WindowContext[W], elements: Sequence[I]) -> Iterable[O] | None:
        """Handle a window that fires: yield output records, or return a list or None.

        Behind `reduce` or `aggregate` the only element is their result.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process(key, ctx, elements)")

    def clear(self, ctx: WindowContext[W]) -> None:
        """Clear the state of a window that ends."""


class ProcessAllWindowFunction(RichFunction, Generic[I, O, W]):
    """Full control over one window of a stream without keys."""

    def process(self, ctx: WindowContext[W], elements: Sequence[I]) -> Iterable[O] | None:
        """Handle a window that fires: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process(ctx, elements)")

    def clear(self, ctx: WindowContext[W]) -> None:
        """Clear the state of a window that ends."""


class WindowFunction(RichFunction, Generic[K, I, O, W]):
    def apply(self, key: K, window: W, elements: Sequence[I]) -> Iterable[O] | None:
        """Handle a window that fires: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(key, window, elements)")


class AllWindowFunction(RichFunction, Generic[I, O, W]):
    def apply(self, window: W, elements: Sequence[I]) -> Iterable[O] | None:
        """Handle a window that fires: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(window, elements)")


class CoGroupFunction(RichFunction, Generic[I1, I2, O]):
    def co_group(self, first: Sequence[I1], second: Sequence[I2]) -> Iterable[O] | None:
        """Handle the records of both streams with one key in one window; one of the two may be empty."""
        raise NotImplementedError(f"{type(self).__name__} must define co_group(first, second)")


class JoinFunction(RichFunction, Generic[I1, I2, O]):
    def join(self, first: I1, second: I2) -> O:
        """Return one record for two that have the same key and window."""
        raise NotImplementedError(f"{type(self).__name__} must define join(first, second)")


class FlatJoinFunction(RichFunction, Generic[I1, I2, O]):
    def join(self, first: I1, second: I2) -> Iterable[O] | None:
        """Return any number of records for two that have the same key and window."""
        raise NotImplementedError(f"{type(self).__name__} must define join(first, second)")


_KINDS: tuple[type[RichFunction], ...] = (
    ProcessWindowFunction,
    ProcessAllWindowFunction,
    WindowFunction,
    AllWindowFunction,
    CoGroupFunction,
    JoinFunction,
    FlatJoinFunction,
    ProcessJoinFunction,
)


def window_output(function: Any, method: Any, of: TypeInfo) -> TypeInfo | None:
    """Return the type of the records that a window function yields, by its annotations or its class; None if unknown.

    `of` is the type of its elements.
    """
    kind = next((each for each in _KINDS if isinstance(function, each)), None)
    found = result_type(method, of=of, many=kind is not None and kind is not JoinFunction)
    if found is not None or kind is None:
        return found
    parameters: tuple[Any, ...] = kind.__parameters__  # type: ignore[attr-defined]  # every kind is generic
    hint = next(type_argument(type(function), kind, each) for each in parameters if each.__name__ == "O")
    return None if hint is None else type_info(hint)
