"""The records of a stream, iterated in the program: what `execute_and_collect` returns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from checkdam.connectors.simple_sinks import SparkSink
from checkdam.errors import JobGraphError
from checkdam.types.serializers import Serializer, serializer

if TYPE_CHECKING:
    from checkdam.api.job_handle import JobHandle
    from checkdam.api.streams import Stream

T = TypeVar("T")


class CloseableIterator(Generic[T]):
    """Iterates over the records of one stream as each epoch delivers them. Closing it cancels its job.

    It ends with the job, or after `limit` records, and raises the job's failure. Unread records wait in the memory of
    this process. After a failover some records may come again, as with `sink_to_spark`.
    """

    def __init__(self, job: JobHandle, arriving: queue.SimpleQueue[list[T] | None], limit: int | None) -> None:
        self._is_over = False
        self.job = job
        self._arriving = arriving
        self._left = limit
        self._here: list[T] = []  # in reverse: the next record is the last element
        job.when_ended(lambda: arriving.put(None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._left == 0:
            self.close()
        while not self._here and not self._is_over:
            arrived = self._arriving.get()
            if arrived is None:
                self._is_over = True
                self.job.wait()
            else:
                self._here = arrived[::-1]
        if not self._here:
            raise StopIteration
        if self._left is not None:
            self._left -= 1
        record = self._here.pop()
        if self._left == 0:
            self.close()
        return record

    def close(self) -> None:
        """Cancel the job, unless it has ended, and wait for its end. Unread records are dropped."""
        self._is_over = True
        self._here = []
        self.job.cancel()
        with suppress(Exception):  # the failure of a job that is cancelled anyway does not matter
            self.job.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_over:
            with suppress(RuntimeError):  # the interpreter is exiting, and has suspended the job
                # Not in this thread: it may be one of the job's own, and cancel() would wait for itself.
                threading.Thread(target=self.job.cancel, daemon=True, name="cancel").start()


def execute_and_collect(stream: Stream[T], job_name: str | None, limit: int | None) -> CloseableIterator[T]:
    """Run the job built so far, delivering the records of this stream to the program."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise JobGraphError(f"execute_and_collect: limit is {limit!r}", hint="Give a whole number of at least 1.")
    of = stream.type
    if not of.is_durable:
        raise JobGraphError(
            f"records of type {of.name} cannot be collected: the type has no durable form",
            hint="Give the operator before it an output_type such as tuple[str, int].",
        )
    codec, arriving = serializer(of), queue.SimpleQueue[list[T] | None]()

    def arrived(rows: Any, epoch: int) -> None:
        packed = rows if isinstance(rows, list) else [bytes(row[0]) for row in rows.collect()]  # on Spark a DataFrame
        if packed:
            arriving.put([value for each in packed for value in codec.decode(each)])

    stream.map(_packer(codec), output_type=bytes).name("collect")._sink("collect", SparkSink(arrived))
    return CloseableIterator(stream._environment.execute_async(job_name), arriving, limit)


def _packer(codec: Serializer) -> Callable[[Any], bytes]:
    return lambda value: codec.encode_checked([value])
