"""Sources as data; runtime/spark turns each into a DataFrame.

Every source has an identity: `kind` and `place` are stored with its position, so that no other source resumes from
that position. Two sources of one kind and place read the same records. A place of "" is unknown, or does not matter.
`content` distinguishes collections, which have no place; "": it is unknown. `is_static` says whether all records exist
from the start, so that they arrive in one epoch. `relations` is the number of streams that Spark reads.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

IDENTIFYING_OPTIONS = ("path", "subscribe", "subscribePattern", "assign", "topic", "topics", "table", "stream")
"""The options of Spark's formats that say what is read. All others say how, may hold secrets, and are not stored."""

_DIGESTED_VALUES = 10_000


def place_of(options: Iterable[tuple[str, str]]) -> str:
    """Return the options of a source that say where its records are."""
    given = {key.lower(): value for key, value in options}
    found = [(option, given[option.lower()]) for option in IDENTIFYING_OPTIONS if option.lower() in given]
    return ", ".join(_plain_path(value) if option == "path" else f"{option}={value}" for option, value in found)


def _plain_path(path: str) -> str:
    """Return the normal form of a directory: absolute, without "file:" and a trailing slash."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif "://" in path:
        return path.rstrip("/")
    return os.path.abspath(path)


@dataclass(frozen=True)
class CollectionSource:
    """Records that the program itself holds; they all arrive in one epoch."""

    values: tuple[Any, ...]

    @functools.cached_property
    def content(self) -> str:
        """A digest of the number of values and the first of them."""
        digest = hashlib.sha256(str(len(self.values)).encode())
        try:
            for value in self.values[:_DIGESTED_VALUES]:
                digest.update(repr(value).encode(errors="replace"))
        except Exception:  # noqa: BLE001  a class of the user's may raise anything; its values all count as equal then
            return ""
        return digest.hexdigest()[:16]

    @property
    def kind(self) -> str:
        return "collection"

    @property
    def place(self) -> str:
        return ""

    @property
    def relations(self) -> int:
        return 0

    @property
    def is_static(self) -> bool:
        return True


@dataclass(frozen=True)
class DataFrameSource:
    """Any Spark DataFrame; a batch one arrives in one epoch, a streaming one over time."""

    dataframe: Any
    place: str = ""
    relations: int = 0
    content: str = ""

    @property
    def kind(self) -> str:
        return "DataFrame" if self.is_static else "streaming DataFrame"

    @property
    def is_static(self) -> bool:
        return not self.dataframe.isStreaming


@dataclass(frozen=True)
class StreamSource:
    """One of Spark's own streaming formats.

    `errors` sets the handling of text that is not UTF-8: "strict" makes it an error of its record, "replace" puts
    U+FFFD in place of the invalid bytes. `replayable` says whether records can be read again after a restore; if not,
    only the state survives.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: Any = None
    bounded: bool = False
    replayable: bool = True
    errors: Literal["strict", "replace"] = "strict"

    @property
    def kind(self) -> str:
        return self.format

    @property
    def place(self) -> str:
        return place_of(self.options.items()) if self.replayable else ""  # without a position any place will do

    @property
    def relations(self) -> int:
        return 1

    @property
    def content(self) -> str:
        return ""

    @property
    def is_static(self) -> bool:
        return False


SourceSpec = CollectionSource | DataFrameSource | StreamSource
