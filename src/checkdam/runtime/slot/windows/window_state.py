"""The contents of windows as keyed state, with the window as namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checkdam.backends.contract import ValueTable
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.functions import callable_of
from checkdam.graph.windowing.window_contents import (
    WINDOW_CONTENTS,
    Aggregated,
    FieldAggregated,
    KeptRecords,
    Reduced,
    TwoSided,
    WindowContents,
)
from checkdam.runtime.slot.aggregate import record_combiner
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from checkdam.types.type_info import TypeInfo, optional_of, tuple_of, type_info


def contents_state(contents: WindowContents, *, keeps_all: bool) -> StateDescriptor:
    """Return the state that holds the contents of windows; `keeps_all` if an evictor needs every record."""
    if isinstance(contents, TwoSided):
        first, second = (optional_of(each, each.hint | None) for each in (contents.first, contents.second))
        return _list(tuple_of([type_info(int), first, second]), keeps_all=keeps_all)
    if keeps_all or isinstance(contents, KeptRecords):
        return _list(contents.record, keeps_all=keeps_all)
    if isinstance(contents, Aggregated):
        accumulator: Any = contents.accumulator
        return AggregatingStateDescriptor(WINDOW_CONTENTS, accumulator, contents.function)
    record: Any = contents.record
    return ReducingStateDescriptor(WINDOW_CONTENTS, record, combiner(contents))


def _list(element: TypeInfo, *, keeps_all: bool) -> ListStateDescriptor[Any]:
    of: Any = tuple_of([element, type_info(int | None)]) if keeps_all else element
    return ListStateDescriptor(WINDOW_CONTENTS, of)


def combiner(contents: Reduced | FieldAggregated) -> Callable[[Any, Any], Any]:
    """Return the function that combines two records into one."""
    if isinstance(contents, Reduced):
        return callable_of(contents.function)
    return record_combiner(contents.how, contents.field, contents.record)


class WindowState:
    """The contents of the window that is the current namespace."""

    def __init__(self, states: OperatorKeyedState, contents: WindowContents, *, keeps_all: bool) -> None:
        descriptor = contents_state(contents, keeps_all=keeps_all)
        self._states = states
        self._descriptor = descriptor
        self._handle: Any = states.get(descriptor)
        self._is_list = isinstance(descriptor, ListStateDescriptor)
        self.add: Callable[[Any], None] = self._handle.add
        self.clear: Callable[[], None] = self._handle.clear

    def get(self) -> Sequence[Any] | None:
        """Return the elements for the window's function: all records, or their one result. None if there are none."""
        found = self._handle.get()
        if self._is_list:
            return found or None
        return None if found is None else [found]

    @property
    def table(self) -> ValueTable:
        """The contents of all windows of all keys."""
        return self._states.table_of(self._descriptor)

    def replace(self, elements: list[Any]) -> None:
        """Keep these records instead."""
        self._handle.update(elements)

    def merge(self, into: Any, windows: Sequence[Any]) -> None:
        """Move the contents of other windows into one."""
        self._states.merge_namespaces(self._descriptor, into, windows)
