"""Operator state of a snapshot: the lists of each subtask, and broadcast state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from checkdam.checkpoint.operator_state_file import unpack
from checkdam.errors import UsageError
from checkdam.ids import SubtaskIndex
from checkdam.state.snapshot_handles import OperatorStateHandle, OperatorStatePart
from checkdam.state_reader.columns import column, plain, unpickled
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import OPERATOR_KINDS, StateDescription
from checkdam.storage.contract import Storage
from checkdam.types.serializers import Serializer
from checkdam.types.type_info import TypeInfo
from checkdam.types.type_text import type_from_text


def operator_parts(
    handles: Mapping[SubtaskIndex, OperatorStateHandle], storage: Storage
) -> Iterator[tuple[int, OperatorStatePart]]:
    """Iterate over every operator state of every subtask, with one subtask in memory at a time.

    Raises:
        CheckpointDamagedError, FormatTooNewError: the content is damaged, or of a newer version.
    """
    for subtask, handle in sorted(handles.items()):
        for part in unpack(handle, storage.read):
            yield subtask, part


class _OperatorStates(StateContent):
    def __init__(
        self,
        description: StateDescription,
        path: str,
        type_text: str,
        handles: Mapping[SubtaskIndex, OperatorStateHandle],
        storage: Storage,
        *,
        unpickle: bool = False,
    ) -> None:
        self.description = description
        self.path = path
        self._handles = handles
        self._storage = storage
        self._type = type_from_text(type_text)
        self._columnar = Serializer(self._type)
        self._serializer = Serializer(unpickled(self._type)) if unpickle else self._columnar
        self._what = f'state "{description.name}" of operator "{description.uid}"'

    @property
    def element_type(self) -> TypeInfo:
        """The type of an element; an element of broadcast state is a pair of key and value."""
        return self._type

    def _own_parts(self) -> Iterator[tuple[int, OperatorStatePart]]:
        for subtask, part in operator_parts(self._handles, self._storage):
            if part.name == self.description.name and OPERATOR_KINDS[part.redistribution] == self.description.kind:
                yield subtask, part


class OperatorListState(_OperatorStates):
    """List state of an operator. The rows are the elements with the subtask that kept them: `subtask`, `value`.

    For union list state the rows are each subtask's own elements; a restore gives all of them to every subtask.
    Iterating gives pairs of subtask and element.
    """

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("subtask", pa.int32()), pa.field("value", self._type.arrow_type)])

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for subtask, part in self._own_parts():
            for start in range(0, len(part.elements), batch_rows):
                values = [self._columnar.decode_one(each) for each in part.elements[start : start + batch_rows]]
                subtasks = pa.array([subtask] * len(values), pa.int32())
                yield pa.RecordBatch.from_arrays([subtasks, column(self._type, values, self._what)], schema=self.schema)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        for subtask, part in self._own_parts():
            for element in part.elements:
                yield subtask, self._serializer.decode_one(element)

    def count(self) -> int:
        return sum(len(part.elements) for _, part in self._own_parts())


class BroadcastState(_OperatorStates):
    """Broadcast state, which is the same in all subtasks: the rows are the entries of one, `key` and `value`."""

    @property
    def schema(self) -> pa.Schema:
        (_, key), (_, value) = self._type.fields
        return pa.schema([pa.field("key", key.arrow_type), pa.field("value", value.arrow_type)])

    def _part(self) -> OperatorStatePart | None:
        return next((part for _, part in self._own_parts()), None)

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        part = self._part()
        elements = () if part is None else part.elements
        for start in range(0, len(elements), batch_rows):
            pairs = [self._columnar.decode_one(each) for each in elements[start : start + batch_rows]]
            columns = [
                column(of, [pair[place] for pair in pairs], self._what)
                for place, (_, of) in enumerate(self._type.fields)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        part = self._part()
        for element in () if part is None else part.elements:
            key, value = self._serializer.decode_one(element)
            yield key, value

    def count(self) -> int:
        part = self._part()
        return 0 if part is None else len(part.elements)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; `default` if there is none.

        Raises:
            UsageError: the key does not have the shape of the state's keys.
        """
        of = self._type.fields[0][1]
        try:
            wanted = plain(of, key)
        except (AttributeError, KeyError, TypeError, ValueError) as refusal:
            raise UsageError(
                f"key {ascii(key)[:200]} is not of type {of.name}, the key type of {self._what}"
            ) from refusal
        return next((value for found, value in self if found == wanted), default)
