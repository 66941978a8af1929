"""The input: text files, one word per line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

SEED = 20
_TIMES = 10**9  # more milliseconds than any input lasts


def word(number: int) -> str:
    return f"word{number}"


@dataclass(frozen=True)
class Input:
    """A directory of text files, the files of each epoch, and the number of records in each."""

    path: str
    files_per_epoch: int
    epochs: tuple[int, ...]


def uniform(directory: Path, epochs: Sequence[int], keys: int, files_per_epoch: int = 2) -> Input:
    """Write epochs of these sizes, with every word equally likely."""
    rng = np.random.default_rng(SEED)
    vocabulary = [word(number) for number in range(keys)]
    files = [
        part for records in epochs for part in np.array_split(rng.integers(0, keys, records), max(1, files_per_epoch))
    ]
    _write_files(directory, files, vocabulary.__getitem__)
    return Input(str(directory), files_per_epoch, tuple(epochs))


def pairs(directory: Path, epochs: Sequence[int], keys: int, entries: int, files_per_epoch: int = 2) -> Input:
    """Write lines of a word and an entry, as in "word7 e42", with every pair equally likely."""
    rng = np.random.default_rng(SEED)
    files = [
        part
        for records in epochs
        for part in np.array_split(rng.integers(0, keys * entries, records), max(1, files_per_epoch))
    ]
    _write_files(directory, files, lambda number: f"{word(number // entries)} e{number % entries}")
    return Input(str(directory), files_per_epoch, tuple(epochs))


def timed(directory: Path, epochs: Sequence[int], keys: int, seconds: int, files_per_epoch: int = 2) -> Input:
    """Write lines of a word and milliseconds, as in "word7 1234"; each epoch lasts these seconds, without order."""
    rng = np.random.default_rng(SEED)
    files = [
        part
        for epoch, records in enumerate(epochs)
        for part in np.array_split(
            rng.integers(0, keys, records) * _TIMES
            + rng.integers(epoch * seconds * 1000, (epoch + 1) * seconds * 1000, records),
            max(1, files_per_epoch),
        )
    ]
    _write_files(directory, files, lambda number: f"{word(number // _TIMES)} {number % _TIMES}")
    return Input(str(directory), files_per_epoch, tuple(epochs))


@dataclass(frozen=True)
class Changes:
    """An input whose first epoch contains every word once, and each later one some of them again."""

    input: Input
    serialized: tuple[int, ...]  # MessagePack bytes, key and count, of the changes of each later epoch


def changes(directory: Path, held: int, changed: int, epochs: int) -> Changes:
    rng = np.random.default_rng(SEED)
    vocabulary = [word(number) for number in range(held)]
    counts = np.ones(held, dtype=np.int64)
    files = [rng.permutation(held)]
    serialized = []
    for _ in range(epochs):
        chosen = rng.choice(held, changed, replace=False)
        counts[chosen] += 1
        files.append(chosen)
        encode = msgspec.msgpack.encode
        serialized.append(sum(len(encode(vocabulary[i])) + len(encode(int(counts[i]))) for i in chosen))
    _write_files(directory, files, vocabulary.__getitem__)
    return Changes(Input(str(directory), 1, tuple(map(len, files))), tuple(serialized))


def _write_files(directory: Path, files: Sequence[npt.NDArray[np.int64]], word_of: Callable[[int], str]) -> None:
    directory.mkdir(parents=True)
    for index, numbers in enumerate(files):
        path = directory / f"{index:04d}.txt"
        path.write_text("\n".join(map(word_of, numbers.tolist())) + "\n", encoding="utf-8")
        os.utime(path, (1_000_000_000 + index,) * 2)  # Spark reads files in the order of their modification times
