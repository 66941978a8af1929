"""Contents of a window until it fires, and the functions that turn them into output."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from checkdam.graph.contexts import RuntimeContext
from checkdam.graph.functions import RichFunction
from checkdam.types.type_info import TypeInfo

WINDOW_CONTENTS = "window-contents"
"""The name of the state of all windows, as in Flink."""

MERGING_WINDOWS = "merging-window-set"
"""The name of the state that says which windows of a key have merged, as in Flink."""


@dataclass(frozen=True)
class KeptRecords:
    """Every record, in the order of arrival."""

    record: TypeInfo


@dataclass(frozen=True)
class Reduced:
    """One record, combined from all by a user's function."""

    record: TypeInfo
    function: Any


@dataclass(frozen=True)
class FieldAggregated:
    """One record, with the sum, minimum or maximum of one field; None if the record itself is the number."""

    record: TypeInfo
    how: str
    field: int | None


@dataclass(frozen=True)
class Aggregated:
    """The accumulator of an AggregateFunction."""

    record: TypeInfo
    function: Any
    accumulator: TypeInfo


@dataclass(frozen=True)
class TwoSided:
    """Every record of two streams, in the order of arrival."""

    first: TypeInfo
    second: TypeInfo


WindowContents = KeptRecords | Reduced | FieldAggregated | Aggregated | TwoSided


class WindowCalls(RichFunction):
    """The user functions of one window operator: what combines records, and what is called when a window fires."""

    def __init__(self, incremental: Any = None, window_function: Any = None) -> None:
        self.incremental = incremental
        self.window_function = window_function

    def open(self, ctx: RuntimeContext) -> None:
        for function in self._rich:
            function.open(ctx)

    def close(self) -> None:
        with ExitStack() as closing:  # closes all, whichever fails
            for function in self._rich:
                closing.callback(function.close)

    @property
    def _rich(self) -> list[RichFunction]:
        return [each for each in (self.incremental, self.window_function) if isinstance(each, RichFunction)]
