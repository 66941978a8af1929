"""Interval joins: pairs of records of two streams with the same key, whose timestamps differ by bounded amounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Never, Protocol

from typing_extensions import TypeVar

from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import RichFunction

I1 = TypeVar("I1", contravariant=True, default=Never)
I2 = TypeVar("I2", contravariant=True, default=Never)
O = TypeVar("O", covariant=True, default=Any)  # noqa: E741
T = TypeVar("T")

LEFT_BUFFER, RIGHT_BUFFER = "LEFT_BUFFER", "RIGHT_BUFFER"
"""The names of the states that hold the records of both sides, as in Flink."""


class JoinContext(Protocol):
    """The context of two joined records."""

    @property
    def left_timestamp(self) -> int: ...

    @property
    def right_timestamp(self) -> int: ...

    @property
    def timestamp(self) -> int:
        """The later of both timestamps, which the output has."""

    def output(self, tag: OutputTag[T], value: T) -> None:
        """Emit a value to a side output."""


class ProcessJoinFunction(RichFunction, Generic[I1, I2, O]):
    def process_element(self, left: I1, right: I2, ctx: JoinContext) -> Iterable[O] | None:
        """Handle two joined records: yield output records, or return a list or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process_element(left, right, ctx)")
