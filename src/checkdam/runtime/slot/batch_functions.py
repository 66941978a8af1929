"""Runs a KeyedBatchFunction: whole batches as columns, with the state of their keys as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkdam.backends.columns import ColumnForm, KeyedColumns, StateColumn
from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.key_index import Numbers
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import StateAccessError, StateRequestError
from checkdam.graph.keyed_batches import KeyedBatch
from checkdam.graph.operators import Operator
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.types.batch import Batch
from checkdam.types.type_info import TypeInfo

_STORED: dict[str, Any] = {"i": int, "f": float, "b": bool}
"""The type of a stored value, by the kind of a dtype."""
_VECTORS: dict[Any, Any] = {int: list[int], float: list[float], bool: list[bool]}
_WHERE = "process_batch"


class BatchProcess(Process):
    """Calls the function with each batch."""

    def __init__(
        self, operator: Operator, store: KeyedStateStore, states: OperatorKeyedState, time: OperatorTime
    ) -> None:
        assert operator.key is not None
        self._operator = operator
        self._time = time
        self._columns = KeyedColumns(store, operator.key.type)
        self._context = _Context(states, self._columns, time)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        if not len(batch):
            return None
        numbers, firsts, key_index = self._columns.begin(keys)
        given = KeyedBatch(
            batch.columns.rename_columns([column.name for column in batch.type.columns]),
            keys.columns.take(pa.array(firsts)).rename_columns([column.name for column in keys.type.columns]),
            key_index,
            batch.timestamps,
        )
        self._context.begin(numbers)
        try:
            parts = list(
                _parts(self._operator.output_type, self._operator.function.process_batch(given, self._context))
            )
        except Exception as cause:
            raise user_error(self._operator, NO_RECORD, cause, where=_WHERE) from cause
        finally:
            self._context.end()
        if not parts:
            return None
        columns = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        return Batch(self._operator.output_type, columns=columns, timestamps=_stamps(batch, parts))

    def advance(self, watermark: int) -> Batch | None:
        self._time.advance(watermark)
        return None


def _stamps(batch: Batch, parts: Sequence[pa.RecordBatch]) -> list[int | None] | None:
    """Return the event times of the output: a part with a row for each record has theirs, another the latest."""
    if batch.timestamps is None:
        return None
    latest = max((stamp for stamp in batch.timestamps if stamp is not None), default=None)
    stamps: list[int | None] = []
    for part in parts:
        stamps += batch.timestamps if part.num_rows == len(batch) else repeat(latest, part.num_rows)
    return stamps


class _Context:
    """Passed to `process_batch`."""

    def __init__(self, states: OperatorKeyedState, columns: KeyedColumns, time: OperatorTime) -> None:
        self._states = states
        self._columns = columns
        self._time = time
        self._opened: dict[str, tuple[Any, Any, StateColumn]] = {}
        self.numbers: Numbers | None = None  # of the current batch's distinct keys

    def begin(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def end(self) -> None:
        self.numbers = None

    def get_column_state(self, name: str, dtype: npt.DTypeLike, default: Any = 0) -> _ColumnOfBatch:
        assert self.numbers is not None
        opened = self._opened.get(name)
        if opened is None:
            opened = self._opened[name] = (dtype, default, self._open(name, dtype, default))
        elif opened[0] is not dtype and np.dtype(opened[0]) != np.dtype(dtype):
            raise StateRequestError(
                f'operator "{self._states.uid}" asks for column state "{name}" with the dtypes {opened[0]} and {dtype}',
                hint="Ask for it with the same dtype each time, or give each state its own name.",
            )
        elif opened[1] is not default and not np.array_equal(opened[1], default, equal_nan=True):
            raise StateRequestError(
                f'operator "{self._states.uid}" asks for column state "{name}" with the defaults {opened[1]} and '
                f"{default}",
                hint="Ask for it with the same default each time, or give each state its own name.",
            )
        opened[2].load()
        return _ColumnOfBatch(self, opened[2], self.numbers)

    def _open(self, name: str, dtype: npt.DTypeLike, default: Any) -> StateColumn:
        wanted = np.dtype(dtype)
        stored = _STORED.get(wanted.base.kind)
        if stored is None or (stored is not bool and wanted.base.itemsize != 8) or len(wanted.shape) > 1:
            raise StateRequestError(
                f'operator "{self._states.uid}" asks for column state "{name}" with the dtype {wanted}',
                hint="A column of state is of int, float or bool, or of vectors of them such as (float, 8).",
            )
        try:
            filled = np.full((1, *wanted.shape), default, wanted.base)
        except (TypeError, ValueError) as error:
            raise StateRequestError(
                f'operator "{self._states.uid}" asks for column state "{name}" of {wanted} with the default '
                f"{default!r}: {error}"
            ) from error
        table = self._states.value_table(name, _VECTORS[stored] if wanted.shape else stored)
        return self._columns.column(name, ColumnForm(wanted.base, wanted.shape, filled[0]), table)

    @property
    def current_processing_time(self) -> int:
        return self._time.processing_time()

    @property
    def current_watermark(self) -> int:
        return self._time.current_watermark


class _ColumnOfBatch:
    """A state of the keys of one batch."""

    __slots__ = ("_column", "_context", "_numbers")

    def __init__(self, context: _Context, column: StateColumn, numbers: Numbers) -> None:
        self._context = context
        self._column = column
        self._numbers = numbers

    @property
    def values(self) -> npt.NDArray[Any]:
        values = self._column.values(self._current())
        values.flags.writeable = False
        return values

    @property
    def exists(self) -> npt.NDArray[np.bool_]:
        return self._column.exists(self._current())

    def write(self, values: npt.ArrayLike, where: npt.ArrayLike | None = None) -> None:
        numbers, form = self._current(), self._column.form
        array = np.asarray(values)
        if not np.can_cast(array.dtype, form.dtype, "same_kind" if array.dtype.kind != "u" else "safe"):
            raise self._misfit(f"values of {array.dtype}")
        try:
            fitting = np.broadcast_to(array, (len(numbers), *form.shape))
        except ValueError:
            raise self._misfit(f"an array of shape {array.shape} for {len(numbers)} keys") from None
        if where is None:
            self._column.write(numbers, fitting)
            return
        chosen = self._mask(where)
        self._column.write(numbers[chosen], fitting[chosen])

    def clear(self, where: npt.ArrayLike | None = None) -> None:
        numbers = self._current()
        self._column.remove(numbers if where is None else numbers[self._mask(where)])

    def _mask(self, where: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        mask = np.asarray(where)
        if mask.dtype != np.bool_ or mask.shape != (len(self._numbers),):
            raise self._misfit(f"a mask of {mask.dtype} and shape {mask.shape} for {len(self._numbers)} keys")
        return mask

    def _misfit(self, given: str) -> StateAccessError:
        return StateAccessError(
            f'state "{self._column.name}" is a column of {self._column.form} and was given {given}',
            hint="Give one element for each key of the batch, of the dtype with which the column was asked for.",
        )

    def _current(self) -> Numbers:
        if self._context.numbers is not self._numbers:
            raise StateAccessError(
                f'the column of state "{self._column.name}" was used after its batch',
                hint="Call ctx.get_column_state() in each process_batch().",
            )
        return self._numbers


def _parts(of: TypeInfo, produced: Any) -> Iterator[pa.RecordBatch]:
    """Return what a function has returned or yielded as batches of the output type."""
    if produced is None:
        return
    if isinstance(produced, Iterator):
        for each in produced:
            yield from _parts(of, each)
        return
    columns = [_arrow_column(column, of.columns[i].arrow_type) for i, column in enumerate(_columns_of(of, produced))]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"process_batch returned columns of different lengths: {sorted(lengths)}")
    for column, field in zip(columns, of.columns, strict=True):
        if column.null_count and not of.is_compound and not of.nullable:
            raise ValueError(f'process_batch returned nulls in column "{field.name}", which are no records')
    if columns and len(columns[0]):
        yield pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


def _columns_of(of: TypeInfo, produced: Any) -> Sequence[Any]:
    """Return the columns of what a function has returned, in the order of the output type's."""
    names = [column.name for column in of.columns]
    if isinstance(produced, pa.RecordBatch | pa.Table):
        produced = dict(zip(produced.column_names, produced.columns, strict=True))
    if isinstance(produced, Mapping):
        if set(produced) != set(names):
            raise ValueError(f"process_batch returned the columns {list(produced)}, and {of.name} has {names}")
        return [produced[name] for name in names]
    if isinstance(produced, tuple | list):
        found: Sequence[Any] = produced
    elif isinstance(produced, np.ndarray | pa.Array | pa.ChunkedArray):
        found = [produced]
    else:
        raise TypeError(
            f"process_batch returned {type(produced).__name__}: return columns as a RecordBatch, a dict, a tuple or "
            "an array, yield such, or return None"
        )
    if len(found) != len(names):
        raise ValueError(f"process_batch returned {len(found)} columns, and {of.name} has {len(names)}: {names}")
    return found


def _arrow_column(values: Any, of: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        values = list(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == of else values.cast(of)
    if not isinstance(values, np.ndarray | Iterable):
        raise TypeError(f"process_batch returned {values!r} for a column")
    return pa.array(values, of)
