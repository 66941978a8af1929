"""Key groups: the unit in which keyed state is distributed over subtasks.

A key's group is `pmod(xxhash64(key columns), max parallelism)` with Spark's own xxhash64, so that Spark's shuffle and
a slot agree on the owner of a key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal, Inexact
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest as _xxh64

from checkdam.errors import JobGraphError
from checkdam.types.rows import microseconds
from checkdam.types.type_check import columns_of, misfit
from checkdam.types.type_info import Kind, TypeInfo, type_info

DEFAULT_MAX_PARALLELISM = 128
MAX_PARALLELISM_LIMIT = 32768


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups from `first` to `last`, inclusive; empty if `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.first <= key_group <= self.last

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def overlap(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the key groups that are in both ranges."""
        return KeyGroupRange(max(self.first, other.first), min(self.last, other.last))


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that `subtask` of `parallelism` owns; the ranges of all subtasks cover every group once."""
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)


def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask of `parallelism` that owns `key_group`."""
    return key_group * parallelism // max_parallelism


_SEED = 42
_Update = Callable[[Any, int], int]  # value and unsigned hash so far → unsigned hash

_MISFITS = (AttributeError, TypeError, ValueError, ArithmeticError, struct.error)
_EPOCH_DAY = date(1970, 1, 1)
_EXACT = Context(prec=100, traps=[Inexact])
_pack_int = struct.Struct("<i").pack
_pack_long = struct.Struct("<q").pack
_pack_float = struct.Struct("<f").pack
_pack_double = struct.Struct("<d").pack


def key_hasher(of: TypeInfo) -> Callable[[Any], int]:
    """Return a function that computes Spark's `xxhash64` of a key's columns, as a signed 64-bit number.

    Raises:
        JobGraphError: Spark has no hash for this type.
    """
    update = _update(of)
    return lambda key: _signed(update(key, _SEED))


def key_group_of(key: Any, of: TypeInfo, max_parallelism: int) -> int:
    """Return the key group of one key; for many keys see `key_groups`."""
    return int(key_groups([key], of, max_parallelism)[0])


def key_groups(keys: Sequence[Any], of: TypeInfo, max_parallelism: int) -> npt.NDArray[np.int64]:
    """Return the key group of each key.

    Raises:
        JobGraphError: Spark has no hash for this type, or a key does not fit it.
    """
    update = _update(of)
    try:
        return _pmod(_hashes(keys, of), max_parallelism)
    except _MISFITS as refusal:
        hint = "Give key_by the key_type that the keys have."
        raise misfit(of, keys, refusal, lambda key: update(key, _SEED), _MISFITS, what="key", hint=hint) from refusal


def _pmod(hashes: npt.NDArray[np.int64], max_parallelism: int) -> npt.NDArray[np.int64]:
    return np.mod(hashes, max_parallelism)  # never negative, like Spark's pmod


def _hashes(keys: Sequence[Any], of: TypeInfo) -> npt.NDArray[np.int64]:
    if of == _LONG and set(map(type, keys)) == {int}:
        return _hash_longs(np.array(keys, dtype=np.int64))
    return np.array(_fold(of, keys, [_SEED] * len(keys)), dtype=np.uint64).view(np.int64)


def _fold(of: TypeInfo, values: Sequence[Any], seeds: list[int]) -> list[int]:
    """Fold a column of values into the hashes so far; compounds field by field, as Spark does."""
    kinds = set(map(type, values))
    if of == _STRING and kinds == {str}:  # avoids a Python frame per value, as for integers below
        return [_xxh64(value.encode(), seed) for value, seed in zip(values, seeds, strict=True)]
    if of == _LONG and kinds == {int}:
        return [_xxh64(_pack_long(value), seed) for value, seed in zip(values, seeds, strict=True)]
    if of.is_compound and of.maker is not dict and type(None) not in kinds:
        for (_, each), column in zip(of.fields, columns_of(of, values), strict=True):
            seeds = _fold(each, column, seeds)
        return seeds
    return list(map(_update(of), values, seeds))


_LONG, _STRING = type_info(int), type_info(str)


def _hash_longs(longs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return XXH64, with the seed 42, of eight bytes each, for a whole column at once."""
    p1, p2, p3, p4, p5 = (
        np.uint64(prime)
        for prime in (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        )
    )
    lane = longs.view(np.uint64) * p2
    lane = _rotate(lane, 31) * p1
    hashes = lane ^ (np.uint64(_SEED) + p5 + np.uint64(8))
    hashes = _rotate(hashes, 27) * p1 + p4
    hashes ^= hashes >> np.uint64(33)
    hashes *= p2
    hashes ^= hashes >> np.uint64(29)
    hashes *= p3
    hashes ^= hashes >> np.uint64(32)
    return hashes.view(np.int64)


def _rotate(lane: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (lane << np.uint64(bits)) | (lane >> np.uint64(64 - bits))


def _signed(digest: int) -> int:
    return digest - (1 << 64) if digest >> 63 else digest


def _update(of: TypeInfo) -> _Update:
    present = _update_present(of)
    return lambda value, seed: seed if value is None else present(value, seed)  # Spark skips nulls


def _update_present(of: TypeInfo) -> _Update:
    kind = of.kind
    if kind is Kind.DECIMAL:
        return partial(_hash_decimal, of.arrow_type.precision, of.arrow_type.scale)
    if kind is Kind.FLOAT:
        return _hash_double if of.arrow_type == pa.float64() else _hash_float
    if kind is Kind.DATETIME:
        return partial(_hash_datetime, of)
    if of.form is not None:
        return _hash_of_form(of, _update(of.form))
    if kind is Kind.INT:
        return _hash_long if of.arrow_type.bit_width == 64 else _hash_int
    if kind is Kind.LIST:
        item = _update(of.fields[0][1])
        return partial(_hash_sequence, item)
    if of.fields and kind is not Kind.MAP:
        updates = [_update(each) for _, each in of.fields]
        if kind is Kind.DATACLASS:
            getter = itemgetter if of.maker is dict else attrgetter  # a dict: read without its class
            return partial(
                _hash_fields, [(getter(name), update) for (name, _), update in zip(of.fields, updates, strict=True)]
            )
        return partial(_hash_elements, updates)
    if kind not in _BY_KIND:
        raise JobGraphError(
            f"a key of type {of.name} cannot be hashed",
            hint="Make the key of str, int, bytes, float, bool, datetime, date, Decimal, enums, or tuples of them.",
        )
    return _BY_KIND[kind]


def _hash_of_form(of: TypeInfo, form: _Update) -> _Update:
    if of.codec is None:
        return form
    to = of.codec.to
    return lambda value, seed: form(to(value), seed)


def _hash_long(value: int, seed: int) -> int:
    if value is True or value is False:
        raise TypeError("expected int, got bool")
    return _xxh64(_pack_long(value), seed)


def _hash_int(value: int, seed: int) -> int:
    return _xxh64(_pack_int(value), seed)


def _hash_bool(value: bool, seed: int) -> int:  # noqa: FBT001  # the value is the data
    if value is not True and value is not False:
        raise TypeError(f"expected bool, got {type(value).__name__}")
    return _xxh64(_pack_int(value), seed)


def _hash_double(value: float, seed: int) -> int:
    if value != value:
        return _xxh64(_pack_long(0x7FF8000000000000), seed)  # all NaNs are one key
    return _xxh64(_pack_double(value + 0.0), seed)  # + 0.0 turns -0.0 into 0.0


def _hash_float(value: float, seed: int) -> int:
    if value != value:
        return _xxh64(_pack_int(0x7FC00000), seed)
    return _xxh64(_pack_float(value + 0.0), seed)


def _hash_datetime(of: TypeInfo, value: datetime, seed: int) -> int:
    return _xxh64(_pack_long(microseconds(value, of.arrow_type)), seed)


def _hash_date(value: date, seed: int) -> int:
    return _xxh64(_pack_int((value - _EPOCH_DAY).days), seed)


def _hash_decimal(precision: int, scale: int, value: Decimal, seed: int) -> int:
    unscaled = int(Decimal(value).scaleb(scale, _EXACT).to_integral_exact(context=_EXACT))
    if abs(unscaled) >= 10**precision:
        raise ValueError(f"more than {precision} digits")
    if precision <= 18:
        return _xxh64(_pack_long(unscaled), seed)
    # as Java's BigInteger.toByteArray: the fewest bytes that hold the number and its sign
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return _xxh64(unscaled.to_bytes(bits // 8 + 1, "big", signed=True), seed)


def _hash_sequence(item: _Update, values: Sequence[Any], seed: int) -> int:
    for value in values:
        seed = item(value, seed)
    return seed


def _hash_elements(updates: list[_Update], values: Sequence[Any], seed: int) -> int:
    for update, value in zip(updates, values, strict=True):
        seed = update(value, seed)
    return seed


def _hash_fields(updates: list[tuple[Callable[[Any], Any], _Update]], key: Any, seed: int) -> int:
    for get, update in updates:
        seed = update(get(key), seed)
    return seed


_BY_KIND: dict[Kind, _Update] = {
    Kind.STR: lambda value, seed: _xxh64(value.encode(), seed),
    Kind.BYTES: lambda value, seed: _xxh64(value, seed),
    Kind.BOOL: _hash_bool,
    Kind.DATE: _hash_date,
    Kind.NONE: lambda _, seed: seed,
}
