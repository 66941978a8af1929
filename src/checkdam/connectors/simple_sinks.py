"""Sinks without a transaction: to the driver's standard output, and back to Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkdam.connectors.contract import FinishOutput, SinkCommitter, SinkWriter, WriterContext
from checkdam.ids import JobId, OperatorUid
from checkdam.types.batch import Batch


@dataclass(frozen=True)
class PrintSink:
    """Prints records on the driver's standard output, with each epoch."""

    label: str = ""
    is_transactional = False
    returns_to_spark = False

    def open_writer(self, ctx: WriterContext) -> PrintWriter:
        where = f"{ctx.subtask + 1}" if ctx.parallelism > 1 else ""
        prefix = ":".join(part for part in (self.label, where) if part)
        return PrintWriter(f"{prefix}> " if prefix else "")

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> SinkCommitter | None:
        return None


class PrintWriter:
    """Collects lines until the driver fetches them at the end of the epoch."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: Batch) -> None:
        self._lines.extend(_printable(f"{self._prefix}{value}") for value in batch.rows)

    def take_lines(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def snapshot(self) -> FinishOutput:
        return tuple

    def close(self) -> None:
        self._lines = []


def _printable(line: str) -> str:
    """Replace lone surrogates, which can neither be sent nor printed."""
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class SparkSink:
    """Passes each epoch's records to a function in the driver, as a DataFrame."""

    function: Callable[[Any, int], None] | None
    is_transactional = False
    returns_to_spark = True

    def open_writer(self, ctx: WriterContext) -> SinkWriter:
        raise TypeError("records of a Spark sink leave through an edge, not a writer")

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> SinkCommitter | None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return SparkSink, (None,)  # the function belongs to the driver and may hold objects that cannot be pickled
