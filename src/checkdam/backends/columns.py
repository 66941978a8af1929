"""Values of keyed state as NumPy arrays, for operators that work on whole batches.

The arrays are a cache over a table of Python objects, which stays the state: changes are written back to the table
before anybody else reads it, as objects that the operator would have written itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.backends.key_index import KeyIndex, Numbers
from checkdam.errors import StateAccessError
from checkdam.types.batch import Batch
from checkdam.types.type_info import TypeInfo

_FIRST_ROOM = 1024
_BYTES_OF_A_KEY = 150
"""The memory of a key in the index, with the Python object and spare room."""


@dataclass(frozen=True)
class ColumnForm:
    """How stored values become elements of an array, and back."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()  # of one value
    default: Any = 0
    from_stored: Callable[[list[Any]], Any] = lambda stored: stored
    to_stored: Callable[[list[Any], list[Any]], list[Any]] = lambda keys, values: values

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape) if self.shape else ''}"

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64)) + 3


class StateColumn:
    """One state as an array with an element for each key of the index, by the key's number."""

    def __init__(self, name: str, form: ColumnForm, table: ValueTable, index: KeyIndex) -> None:
        self.name = name
        self.form = form
        self._table = table
        self._index = index
        self.forget()

    def forget(self) -> None:
        """Drop everything. Changes must have been written back."""
        self._loaded = 0  # keys with a smaller number are in the arrays
        self._values = np.empty((0, *self.form.shape), self.form.dtype)
        self._exists = np.empty(0, np.bool_)
        self._is_stored = np.empty(0, np.bool_)
        self._has_changed = np.empty(0, np.bool_)

    def load(self) -> None:
        """Read the values of the keys that are new in the index. Call it before anything else in each batch.

        Raises:
            StateAccessError: a value does not fit the form.
        """
        keys = self._index.keys[self._loaded :]
        if not keys:
            return
        end = self._loaded + len(keys)
        self._make_room(end)
        stored = self._table.get_all(keys)
        exists = np.array([value is not None for value in stored], np.bool_)
        self._values[self._loaded : end] = self.form.default
        if exists.any():
            present = [value for value in stored if value is not None]
            self._values[self._loaded : end][exists] = self._fitting(self.form.from_stored(present))
        self._exists[self._loaded : end] = self._is_stored[self._loaded : end] = exists
        self._has_changed[self._loaded : end] = False
        self._loaded = end

    def _fitting(self, values: list[Any]) -> npt.NDArray[Any]:
        form = self.form
        try:
            array = np.array(values, form.dtype)
        except (ValueError, TypeError):  # vectors of different lengths, or a value of another type
            array = np.empty(0)
        if array.shape != (len(values), *form.shape):
            raise StateAccessError(
                f'state "{self.name}" was asked for as a column of {form}, and has other values: {values[0]!r:.200}',
                hint="Ask for the column with the dtype and the length that the values have.",
            )
        return array

    def _make_room(self, keys: int) -> None:
        if keys <= len(self._exists):
            return
        room = max(_FIRST_ROOM, keys, 2 * len(self._exists))
        for name in ("_values", "_exists", "_is_stored", "_has_changed"):
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), old.dtype)
            new[: self._loaded] = old[: self._loaded]
            setattr(self, name, new)

    def values(self, numbers: Numbers) -> npt.NDArray[Any]:
        """Return a copy of these keys' values; the default for a key without one."""
        return self._values.take(numbers, axis=0)

    def exists(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        return self._exists.take(numbers)

    def write(self, numbers: Numbers, values: Any) -> None:
        self._values[numbers] = values
        self._exists[numbers] = True
        self._has_changed[numbers] = True

    def remove(self, numbers: Numbers) -> None:
        self._values[numbers] = self.form.default
        self._exists[numbers] = False
        self._has_changed[numbers] = True

    def write_back(self) -> None:
        """Write all changes to the table."""
        end = self._loaded
        changed = np.flatnonzero(self._has_changed[:end])
        if not len(changed):
            return
        exists = self._exists.take(changed)
        kept, gone = changed[exists], changed[~exists & self._is_stored.take(changed)]
        keys = self._index.keys
        if len(kept):
            keys_kept = [keys[number] for number in kept.tolist()]
            stored = self.form.to_stored(keys_kept, self._values.take(kept, axis=0).tolist())
            self._table.put_all(dict(zip(keys_kept, stored, strict=True)))
        if len(gone):
            self._table.remove_all([keys[number] for number in gone.tolist()])
        self._is_stored[changed] = exists
        self._has_changed[changed] = False

    @property
    def new_entries(self) -> int:
        """How many more entries the state has than its table."""
        end = self._loaded
        return int(np.count_nonzero(self._exists[:end])) - int(np.count_nonzero(self._is_stored[:end]))


class KeyedColumns:
    """The states of one operator as columns, and the numbers of its keys."""

    def __init__(self, store: KeyedStateStore, key_type: TypeInfo) -> None:
        self._store = store
        self._index = KeyIndex(key_type)
        self._columns: dict[str, StateColumn] = {}
        self._most_bytes = store.hold_back(self)

    def column(self, name: str, form: ColumnForm, table: ValueTable) -> StateColumn:
        """Return a new column over a table. From now on only the column may use the table."""
        table.promise_no_change_in_place()
        column = self._columns[name] = StateColumn(name, form, table, self._index)
        return column

    def begin(self, keys: Batch) -> tuple[Numbers, Numbers, Numbers]:
        """Look up the keys of a batch.

        Returns:
            The numbers of the distinct keys, in order of first occurrence; the position of that occurrence; and for
            each record the position of its key among the distinct ones.
        """
        self._limit()
        return self._index.distinct(self._index.numbers(keys))

    def _limit(self) -> None:
        if self._most_bytes is None:
            return
        of_key = _BYTES_OF_A_KEY + sum(column.form.bytes for column in self._columns.values())
        if len(self._index.keys) * of_key > self._most_bytes:
            self.forget()

    def forget(self) -> None:
        """Write everything back and empty the arrays: the next batch reads from the tables again."""
        self.write_back()
        self._index.clear()
        for column in self._columns.values():
            column.forget()

    def write_back(self) -> None:
        for column in self._columns.values():
            column.write_back()

    @property
    def new_entries(self) -> dict[str, int]:
        return {name: column.new_entries for name, column in self._columns.items()}
