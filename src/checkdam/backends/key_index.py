"""Numbers the keys of a subtask, a batch of keys at a time, without a Python object per record."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkdam.types.batch import Batch
from checkdam.types.type_info import Kind, TypeInfo

Numbers = npt.NDArray[np.intp]
_Words = list[npt.NDArray[np.uint64]]

_MOST_WORDS = 8
_PADDING = np.array([(2**64 - 1 << 8 * length) % 2**64 for length in range(9)], np.uint64)
"""By how many of a word's bytes belong to a key: a word with ones in all others. UTF-8 has no such byte."""
_FIRST_BITS = 10
_ONE, _HALF = np.uint64(1), np.uint64(32)


class KeyIndex:
    """Gives each key a number, from 0 in the order in which keys come, and finds it again.

    Integers and short strings are compared as 64-bit words, many at once; keys of all other types by a dict.
    """

    def __init__(self, of: TypeInfo) -> None:
        self._is_text = of.kind is Kind.STR
        self._has_words = (of.kind in (Kind.INT, Kind.STR)) and of.form is None and not of.nullable
        self._is_single = len(of.columns) == 1
        self.clear()

    def clear(self) -> None:
        """Forget all keys."""
        self.keys: list[Any] = []
        """The keys by number."""
        self._seen = np.empty(1 << _FIRST_BITS, np.int32)
        self._by_words = _WordTable() if self._has_words else None
        self._by_key: dict[Any, int] = {}

    def numbers(self, keys: Batch) -> Numbers:
        """Return the number of each key. Keys that are new get the next numbers."""
        columns = keys.columns
        if self._by_words is not None:
            words = _text_words(columns.column(0)) if self._is_text else _integer_words(columns.column(0))
            if words is not None:
                return self._found_by_words(self._by_words, words, keys)
            self._by_words = None
            self._by_key = {key: number for number, key in enumerate(self.keys)}
        if not self._is_single or len(columns) == 0:
            return np.array(self._found_by_key(keys.rows), np.intp)
        try:
            encoded = columns.column(0).dictionary_encode(null_encoding="encode")
        except pa.ArrowNotImplementedError:  # a nested type
            return np.array(self._found_by_key(keys.rows), np.intp)
        distinct = Batch(keys.type, columns=pa.RecordBatch.from_arrays([encoded.dictionary], schema=columns.schema))
        found: Numbers = np.array(self._found_by_key(distinct.rows), np.intp)
        places: Numbers = encoded.indices.to_numpy()
        return found[places]

    def distinct(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return each number once, in order of first occurrence; that occurrence; and where each record's number is."""
        count = len(numbers)
        if len(self._seen) < len(self.keys):
            self._seen = np.empty(2 * len(self.keys), np.int32)
        positions = np.arange(count, dtype=np.int32)
        self._seen[numbers[::-1]] = positions[::-1]  # of equal indices, the last assignment stays
        first = self._seen.take(numbers)
        firsts = np.flatnonzero(first == positions)
        place = np.empty(count, np.intp)
        place[firsts] = np.arange(len(firsts))
        return numbers.take(firsts), firsts, place.take(first)

    def _found_by_key(self, keys: Iterable[Any]) -> list[int]:
        known, all_keys = self._by_key, self.keys
        found = []
        for key in keys:
            number = known.get(key)
            if number is None:
                number = known[key] = len(all_keys)
                all_keys.append(key)
            found.append(number)
        return found

    def _found_by_words(self, table: _WordTable, words: _Words, keys: Batch) -> Numbers:
        found = table.find(words)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            columns = keys.columns.take(pa.array(missing))
            new: dict[Any, int] = {}
            count = len(self.keys)
            numbers = [new.setdefault(key, count + len(new)) for key in Batch(keys.type, columns=columns).rows]
            self.keys += new
            found[missing] = numbers
            firsts = np.empty(len(new), np.intp)
            firsts[np.array(numbers)[::-1] - count] = missing[::-1]
            table.add([each.take(firsts) for each in words])
        return found


class _WordTable:
    """A hash table of keys made of words, with linear probing; a key's number is its position in `add`.

    The hash function is chosen at random for each table, so records cannot be made to collide.
    """

    def __init__(self) -> None:
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(_MOST_WORDS + 1)]
        self._count = 0
        self._words: _Words = [np.empty(1 << (_FIRST_BITS - 2), np.uint64)]
        self._set_size(_FIRST_BITS)

    def _set_size(self, bits: int) -> None:
        self._bits = bits
        self._slots = np.full(1 << bits, -1, np.int32)

    def find(self, words: _Words) -> Numbers:
        """Return the number of each key, -1 for a key that was not added."""
        self._widen(len(words))
        words += [np.full(len(words[0]), _PADDING[0])] * (len(self._words) - len(words))
        at = self._home(words)
        found = self._slots.take(at).astype(np.intp)
        # A free slot holds -1: then any word is compared, and the key is missing either way.
        same = self._words[0].take(found, mode="wrap") == words[0]
        for own, given in zip(self._words[1:], words[1:], strict=True):
            same &= own.take(found, mode="wrap") == given
        same |= found < 0
        left = np.flatnonzero(~same)
        mask = len(self._slots) - 1
        at, sought = at.take(left), [given.take(left) for given in words]
        while len(left):
            at = (at + 1) & mask
            found[left] = candidates = self._slots.take(at)
            same = self._words[0].take(candidates, mode="wrap") == sought[0]
            for own, given in zip(self._words[1:], sought[1:], strict=True):
                same &= own.take(candidates, mode="wrap") == given
            same |= candidates < 0
            if same.all():
                break
            other = ~same
            left, at, sought = left[other], at[other], [given[other] for given in sought]
        return found

    def add(self, words: _Words) -> None:
        """Add keys that are all new and different. They get the next numbers."""
        before, self._count = self._count, self._count + len(words[0])
        if self._count > len(self._words[0]):
            size = 1 << (self._count - 1).bit_length()
            self._words = [np.resize(each, size) for each in self._words]
        for own, given in zip(self._words, words, strict=True):
            own[before : self._count] = given
        if 4 * self._count > len(self._slots):  # collisions cost more than memory
            self._set_size((8 * self._count - 1).bit_length())
            before = 0
        self._place(np.arange(before, self._count))

    def _place(self, numbers: Numbers) -> None:
        at = self._home([own.take(numbers) for own in self._words])
        mask = len(self._slots) - 1
        while len(numbers):
            is_free = self._slots.take(at) < 0
            self._slots[at[is_free]] = numbers[is_free]
            left = self._slots.take(at) != numbers  # others are there, or came at the same time
            at, numbers = (at[left] + 1) & mask, numbers[left]

    def _widen(self, words: int) -> None:
        if words > len(self._words):
            missing = words - len(self._words)
            self._words += [np.full(len(self._words[0]), _PADDING[0]) for _ in range(missing)]
            self._set_size(self._bits)
            self._place(np.arange(self._count))

    def _home(self, words: _Words) -> Numbers:
        mixed = words[0] * self._factors[0]
        for factor, each in zip(self._factors[1:], words[1:], strict=False):
            mixed += each * factor
        mixed ^= mixed >> _HALF
        mixed *= self._factors[-1]
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)


def _integer_words(column: pa.Array) -> _Words | None:
    if column.null_count or not pa.types.is_integer(column.type):
        return None
    return [column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)]


def _text_words(column: pa.Array) -> _Words | None:
    """Return the words of each string, filled up with bytes that no string has; None if there are too many."""
    if pa.types.is_string(column.type):
        of_offset: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_string(column.type):
        of_offset = np.int64
    else:
        return None
    count = len(column)
    if column.null_count:
        return None
    if not count:
        return [np.empty(0, np.uint64)]
    _, offsets_buffer, text = column.buffers()
    offsets = np.frombuffer(offsets_buffer, of_offset, count + 1, column.offset * np.dtype(of_offset).itemsize)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    lengths = np.diff(offsets)
    words = max(1, -(-int(lengths.max()) // 8))
    if words > _MOST_WORDS:
        return None
    padded = np.zeros(size + 8 * words, np.uint8)  # so that words may be read beyond the last string
    if size:
        padded[:size] = np.frombuffer(text, np.uint8, size, first)
    starts = (offsets[:-1] - first).astype(np.intp)
    every_word: npt.NDArray[np.uint64] = np.ndarray((size + 8 * words - 7,), "<u8", padded, 0, (1,))
    found = [every_word[starts] | _PADDING.take(np.minimum(lengths, 8))]
    for word in range(1, words):
        left = np.clip(lengths - 8 * word, 0, 8)
        found.append(every_word[starts + 8 * word] | _PADDING.take(left))
    return found
