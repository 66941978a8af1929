"""Sources as data; runtime/spark turns each into a DataFrame.

`is_static` says whether all records are there from the start, so that they arrive in epoch 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class CollectionSource:
    """Records that the program itself holds; they all arrive in epoch 0."""

    values: tuple[Any, ...]

    @property
    def is_static(self) -> bool:
        return True


@dataclass(frozen=True)
class DataFrameSource:
    """Any Spark DataFrame; a batch one arrives in epoch 0, a streaming one as it comes."""

    dataframe: Any

    @property
    def is_static(self) -> bool:
        return not self.dataframe.isStreaming


@dataclass(frozen=True)
class StreamSource:
    """One of Spark's own streaming formats.

    `errors` says what is done with text that is not UTF-8: "strict" makes it an error of its record, "replace" puts
    U+FFFD in place of the bytes that cannot be read.
    `replayable` says whether records can be read again after a restore; of one that cannot, only the state survives.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: Any = None
    bounded: bool = False
    replayable: bool = True
    errors: Literal["strict", "replace"] = "strict"

    @property
    def is_static(self) -> bool:
        return False


SourceSpec = CollectionSource | DataFrameSource | StreamSource
