"""The contracts of user functions: what a user subclasses, and what the runtime hands to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState


class RuntimeContext(Protocol):
    """What a function may ask of the slot it lives in; handed to `open`."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def operator_name(self) -> str: ...

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The value kept for the current key. Only on a keyed stream."""


class RichFunction:
    """A function with a life: `open` once before the first record, `close` once at the end, also after a failure."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare; the place to ask for state."""

    def close(self) -> None:
        """Let go of what `open` took."""


class MapFunction(RichFunction):
    def map(self, value: Any) -> Any:
        """One record in, one out."""
        raise NotImplementedError(f"{type(self).__name__} must define map(value)")


class FlatMapFunction(RichFunction):
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """One record in, any number out: yield them, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map(value)")


class FilterFunction(RichFunction):
    def filter(self, value: Any) -> bool:
        """True to keep the record."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(value)")


class ReduceFunction(RichFunction):
    def reduce(self, accumulated: Any, value: Any) -> Any:
        """Combine two records into one of the same type."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(accumulated, value)")


class ProcessContext(Protocol):
    """What `process_element` may know about the record at hand."""

    @property
    def current_key(self) -> Any: ...


class KeyedProcessFunction(RichFunction):
    """Full control over one key's records and state."""

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle one record of the current key: yield what goes on, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(value, ctx)")


_METHODS: tuple[tuple[type[RichFunction], str], ...] = (
    (MapFunction, "map"),
    (FlatMapFunction, "flat_map"),
    (FilterFunction, "filter"),
    (ReduceFunction, "reduce"),
    (KeyedProcessFunction, "process_element"),
)


def callable_of(function: Any) -> Callable[..., Any]:
    """The plain callable behind a user function, whichever form it was given in."""
    for kind, method in _METHODS:
        if isinstance(function, kind):
            return getattr(function, method)  # type: ignore[no-any-return]  # looked up by name
    if callable(function):
        return function  # type: ignore[no-any-return]  # any callable will do
    raise TypeError(f"{function!r} is neither a callable nor a function object")


def has_life(function: Any) -> bool:
    """Whether the function defines open or close, and so must live in a slot."""
    if not isinstance(function, RichFunction):
        return False
    kind = type(function)
    return kind.open is not RichFunction.open or kind.close is not RichFunction.close
