"""Counts the records that sources have not read yet, by the offsets in the progress reports of Spark's query.

Only some sources tell: Kafka, sockets, and sources in Python with `reportLatestOffset`. Offsets are not always counts
of records: those of the rate source are seconds, those of files number batches of files. They are taken for counts if
they are Kafka's, or if they grew by as much as records came.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a source's progress that count here; an offset is any JSON."""

    description: str = ""
    start_offset: Any = None
    end_offset: Any = None
    latest_offset: Any = None
    num_input_rows: int = 0


class _Progress(msgspec.Struct, frozen=True, rename="camel"):
    batch_id: int
    sources: list[_Source] = []


_decode = msgspec.json.Decoder(_Progress).decode


class SourceBacklog:
    """The backlog of the sources of one query; `streams` has the numbers of the streams that Spark reads for each."""

    def __init__(self, streams: Mapping[int, Sequence[int]]) -> None:
        self._streams = streams
        self._batch = -1
        self._counting: set[int] = set()  # the streams whose offsets count records

    def read(self, query: StreamingQuery) -> Mapping[int, int] | None:
        """Return the records not read yet as of the last micro-batch, by source. None: nothing is new."""
        try:
            last = query._jsq.lastProgress()
            return None if last is None else self.after(str(last.json()))
        except (Py4JError, OSError):
            return None  # the query has ended, or the JVM is gone: others find out

    def after(self, progress: str) -> Mapping[int, int] | None:
        """Return the same for one progress report; a source that does not tell is left out."""
        try:
            last = _decode(progress)
        except msgspec.DecodeError as reason:
            _log.warning("Spark's progress report cannot be read: %s", reason)
            return None
        if last.batch_id == self._batch:
            return None
        self._batch = last.batch_id
        pending = {number: self._pending(number, source) for number, source in enumerate(last.sources)}
        found = {}
        for source, numbers in self._streams.items():
            known = [count for number in set(numbers) if (count := pending.get(number)) is not None]
            if numbers and len(known) == len(set(numbers)):
                found[source] = sum(known)
        return found

    def _pending(self, number: int, source: _Source) -> int | None:
        read = _difference(source.start_offset, source.end_offset)
        if source.description.startswith("Kafka") or (read == source.num_input_rows > 0):
            self._counting.add(number)
        elif read is not None and read != source.num_input_rows:
            self._counting.discard(number)
        if number not in self._counting:
            return None
        behind = _difference(source.end_offset, source.latest_offset)
        return None if behind is None else max(0, behind)


def _difference(before: Any, after: Any) -> int | None:
    """Return the sum of what the numbers of an offset have grown by; None if they cannot be compared."""
    if type(before) is int and type(after) is int:
        return after - before
    if not isinstance(before, dict) or not isinstance(after, dict) or not after:
        return None
    grown = [_difference(before.get(key, _nothing_of(value)), value) for key, value in after.items()]
    known = [each for each in grown if each is not None]
    return sum(known) if len(known) == len(grown) else None


def _nothing_of(value: Any) -> Any:
    """Return where a partition begins that was not there before."""
    return {} if isinstance(value, dict) else 0
