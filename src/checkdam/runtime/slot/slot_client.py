"""The two ways to reach a slot: the driver's control calls, and the exchange of records from a Spark task."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from checkdam.errors import SlotLostError
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.live_state.query_connection import QueryAccess, QueryConnection
from checkdam.runtime.logs.log_reader import LogFile, LogPart
from checkdam.runtime.slot.control_messages import (
    AWAIT,
    TASK_REPORTS,
    Pending,
    pack_arguments,
    unpack_answer,
    unpack_error,
)
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot.slot_server import TOKEN_HEADER
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.slot.stack_dump import last_dump
from checkdam.runtime.stalls import Stall
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot
from checkdam.types.hints import resolve_annotations

_SHORT_SECONDS = 5.0
_LONG_SECONDS = 60.0
_LEAST_SECONDS = 0.01


@dataclass(frozen=True)
class SlotAddress:
    """The address of a slot, and its process."""

    subtask: SubtaskIndex
    location: str
    host: str
    pid: int
    queries: str = ""  # the location of its socket for queries


class RemoteSlot:
    """A slot as the driver sees it. Every call ends within the heartbeat's timeout if the slot does not answer."""

    def __init__(
        self, address: SlotAddress, token: str, heartbeat: Heartbeat | None = None, query_token: str = ""
    ) -> None:
        self.address = address
        self._client = flight.FlightClient(address.location)
        self._token = token
        self._heartbeat = heartbeat or Heartbeat()
        self._query_token = query_token
        self._querying = threading.Lock()
        self._queries: QueryConnection | None = None
        self._is_closing = False

    @property
    def subtask(self) -> SubtaskIndex:
        return self.address.subtask

    @property
    def pid(self) -> int:
        return self.address.pid

    @property
    def host(self) -> str:
        return self.address.host

    @property
    def location(self) -> str:
        return self.address.location

    @property
    def query_access(self) -> QueryAccess:
        return QueryAccess(self.address.queries, self._query_token)

    def configure(self, setup: SlotSetup) -> None:
        self._call("configure", _packed(setup))

    def end_epoch(self, epoch: Epoch, *, commit: bool) -> EpochReport:
        return self._call("end_epoch", epoch, commit)  # type: ignore[no-any-return]  # a wire call

    def end_of_input(self) -> None:
        self._call("end_of_input")

    def begin_snapshot(
        self,
        checkpoint_id: CheckpointId,
        epoch: Epoch,
        *,
        savepoint: SavepointTarget | None = None,
        full: bool = False,
    ) -> float:
        return self._call("seal", checkpoint_id, epoch, savepoint, full)  # type: ignore[no-any-return]  # a wire call

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        return self._call("snapshot", checkpoint_id)  # type: ignore[no-any-return]  # a wire call

    def completed(self, checkpoint_id: CheckpointId) -> None:
        self._call("completed", checkpoint_id, timeout=_LONG_SECONDS)

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        self._call("aborted", checkpoint_id, timeout=_LONG_SECONDS)

    def released(self, checkpoint_id: CheckpointId) -> None:
        self._call("released", checkpoint_id, timeout=_LONG_SECONDS)

    def query(self, request: bytes) -> bytes:
        with self._querying:
            try:
                if self._queries is None:
                    self._queries = QueryConnection(self.query_access)
                return self._queries.ask(request)
            except OSError as error:
                self._end_queries()
                raise self._lost() from error

    def log_files(self) -> list[LogFile]:
        return self._call("log_files", timeout=_SHORT_SECONDS)  # type: ignore[no-any-return]  # a wire call

    def read_log(self, name: str, offset: int, length: int, id: int | None) -> bytes | None:
        """Return a part of a log file on the slot's machine; None if there is no such file."""
        return self._call("read_log", name, offset, length, id, timeout=_SHORT_SECONDS)  # type: ignore[no-any-return]

    def tail_log(self, name: str, cursor: str | None, limit: int) -> LogPart | None:
        return self._call("tail_log", name, cursor, limit, timeout=_SHORT_SECONDS)  # type: ignore[no-any-return]

    def _end_queries(self) -> None:
        """Close the connection for queries. The caller holds the lock."""
        connection, self._queries = self._queries, None
        if connection is not None:
            connection.close()

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        try:
            self._call("hold", on_beat=on_beat)
        except SlotLostError:
            if not self._is_closing:  # otherwise it ended between two heartbeats
                raise

    def close(self) -> None:
        self._is_closing = True
        self._call("close", timeout=_LONG_SECONDS)
        with self._querying:
            self._end_queries()

    def kill(self) -> None:
        """Kill the process now. One that is unreachable is ended by its executor, and its token is void."""
        try:
            if self.address.host == os.uname().nodename:
                os.kill(self.address.pid, signal.SIGKILL)
            else:
                self._call("die", timeout=_SHORT_SECONDS)
        except (ProcessLookupError, SlotLostError):
            return  # it is gone already, or its answer cannot arrive any more

    def disconnect(self) -> None:
        connection = self._queries
        if connection is not None:
            connection.close()  # an unreachable slot never answers, and the thread that waits for it has the lock
        with self._querying:
            self._end_queries()
        self._client.close()

    def _call(
        self,
        name: str,
        *arguments: Any,
        timeout: float | None = None,
        on_beat: Callable[[Beat], None] = lambda beat: None,
    ) -> Any:
        """Start a call and ask for its answer until it is there. `timeout` covers the whole call."""
        ends = None if timeout is None else time.monotonic() + timeout
        answer = self._ask(name, name, arguments, ends)
        while isinstance(answer, Pending):
            on_beat(answer.beat)
            answer = self._ask(name, AWAIT, (answer.ticket,), ends)
        return answer

    def _ask(self, call: str, name: str, arguments: tuple[Any, ...], ends: float | None) -> Any:
        seconds = self._heartbeat.timeout_seconds
        if ends is not None:
            seconds = min(seconds, max(ends - time.monotonic(), _LEAST_SECONDS))
        action = flight.Action(name, pack_arguments(*arguments))
        try:
            [result] = list(self._client.do_action(action, _options(self._token, seconds)))
        except flight.FlightTimedOutError as error:
            dump = last_dump(self.location)
            where = f", at:\n{dump.rstrip()}" if dump else ""
            raise SlotLostError(f"{_who(self.address)} has not answered for {seconds:g} s{where}") from error
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost() from error
        return unpack_answer(call, result.body.to_pybytes())

    def _lost(self) -> SlotLostError:
        return SlotLostError(f"{_who(self.address)} does not answer")


def report_task(address: SlotAddress, token: str, task: str, stall: Stall | None, seconds: float) -> None:
    """Report to a slot, and so to the driver, that a Spark task makes progress, or where it stands still.

    Raises:
        SlotLostError: the slot was not reached; the driver notices that by itself.
    """
    action = flight.Action(TASK_REPORTS, pack_arguments(task, stall))
    try:
        list(_connection(address.location).do_action(action, _options(token, seconds)))
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise SlotLostError(f"{_who(address)} does not answer") from error


def _who(address: SlotAddress) -> str:
    return f"slot {address.subtask} (process {address.pid} on {address.host})"


class _SetupPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles classes of the job file with their annotations resolved: a slot has no module to look names up in."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            resolve_annotations(obj)
        return super().reducer_override(obj)


def _packed(setup: SlotSetup) -> bytes:
    buffer = io.BytesIO()
    _SetupPickler(buffer).dump(setup)
    return buffer.getvalue()


def exchange(
    address: SlotAddress, token: str, level: int, epoch: Epoch, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Stream one level's records through a slot; yield the results while more records are sent.

    A second thread reads, because a slot whose output is not read would stop reading input.
    """
    descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode((level, epoch)))
    try:
        writer, reader = _connection(address.location).do_exchange(descriptor, _options(token))
        with writer:
            begun = False
            answers = _Answers(reader)
            for batch in batches:
                if not begun:
                    writer.begin(batch.schema)  # Spark knows better which columns may be null
                    begun = True
                writer.write_batch(batch)
                yield from answers.ready()
            if not begun:
                writer.begin(schema)
            writer.done_writing()
            yield from answers.rest()
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise SlotLostError(f"{_who(address)} was lost: {str(error).splitlines()[0]}") from None


class _Answers:
    """The results of a slot, read ahead by a thread of their own."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._batches: deque[pa.RecordBatch] = deque()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for chunk in self._reader:
                if chunk.app_metadata is not None:
                    raise unpack_error(chunk.app_metadata.to_pybytes())
                self._batches.append(chunk.data)
        except BaseException as failure:  # noqa: BLE001  raised in the waiting thread
            self._failure = failure

    def ready(self) -> Iterator[pa.RecordBatch]:
        if self._failure is not None:
            raise self._failure
        while self._batches:
            yield self._batches.popleft()

    def rest(self) -> Iterator[pa.RecordBatch]:
        self._thread.join()
        yield from self.ready()


_connections: dict[str, Any] = {}


def _connection(location: str) -> Any:
    """Return the connection to a slot: one per worker process, kept from epoch to epoch."""
    if location not in _connections:
        _connections[location] = flight.FlightClient(location)
    return _connections[location]


def _options(token: str, timeout: float | None = None) -> Any:
    return flight.FlightCallOptions(timeout=timeout, headers=[(TOKEN_HEADER.encode(), token.encode())])
