"""A slot as an Arrow Flight service: DoExchange for records, DoAction for control."""

from __future__ import annotations

import hmac
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cloudpickle
import msgspec
import pyarrow.flight as flight

from checkdam.errors import CheckdamError, SlotLostError
from checkdam.ids import Epoch
from checkdam.runtime.slot.control_messages import pack_answer, pack_error, pack_failure, unpack_arguments
from checkdam.runtime.slot.task import SlotTask

TOKEN_HEADER = "x-checkdam-token"
QUERIES = b"queries"
"""The command of an exchange that carries questions about live state instead of records."""

_SWITCH_SECONDS = 0.0005
_USUAL_SWITCH_SECONDS = sys.getswitchinterval()


class SlotServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one SlotTask. A control call is answered with a value or an error (control_messages.py)."""

    def __init__(self, location: str, token: str) -> None:
        super().__init__(location, middleware={"token": _TokenCheck(token)})
        self._task: SlotTask | None = None
        self._handlers: Mapping[str, Callable[..., Any]] = {
            "configure": self._on_configure,
            "end_epoch": self._on_end_epoch,
            "end_of_input": self._on_end_of_input,
            "seal": self._on_seal,
            "snapshot": self._on_snapshot,
            "completed": self._on_completed,
            "aborted": self._on_aborted,
            "released": self._on_released,
            "hold": self._on_hold,
            "die": self._on_die,
            "close": self._on_close,
        }
        self._lock = threading.RLock()  # one record or control call at a time touches the task
        self.configured = threading.Event()
        self.stopped = threading.Event()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        if descriptor.command == QUERIES:
            self._answer_queries(reader, writer)
            return
        level, epoch = msgspec.msgpack.decode(descriptor.command, type=tuple[int, int])
        try:
            with self._lock:
                self._exchange(level, Epoch(epoch), reader, writer)
        except CheckdamError as error:
            writer.write_metadata(pack_error(error))  # among the answers: a status would not take a long text
            for _ in reader:
                pass  # the client would lose what is on its way to it if its writes failed; it stops soon

    def _exchange(self, level: int, epoch: Epoch, reader: Any, writer: Any) -> None:
        run = self._configured().begin_level(level, epoch)
        writer.begin(run.output_schema)
        for chunk in reader:
            for produced in run.process(chunk.data):
                writer.write_batch(produced)
        for produced in run.finish():
            writer.write_batch(produced)

    def _answer_queries(self, reader: Any, writer: Any) -> None:
        """One message of questions, one of answers, until the driver has no more.

        One exchange for all of them: each call of its own would have to get hold of Python's lock several times, and
        wait for it each time while records are processed.
        """
        queries = self._configured().queries
        while not self.stopped.is_set():
            try:
                asked = reader.read_chunk().app_metadata
            except StopIteration:
                return
            writer.write_metadata(queries.answer(asked.to_pybytes(), self._lock))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            handler = self._handlers.get(action.type)
            if handler is None:
                raise SlotLostError(f'a slot has no call "{action.type}"')
            answer = pack_answer(handler(*unpack_arguments(action.type, action.body.to_pybytes())))
        except Exception as error:  # noqa: BLE001  every failure is the caller's to judge, none may stop the server
            answer = _failure(error)
        try:
            yield flight.Result(answer)
        finally:
            if action.type == "close":
                self.stopped.set()  # only now: the process must not end before its answer is out

    def _on_configure(self, setup: bytes) -> None:
        """Take the job over. The setup holds user code; only the driver can send one, since only it has the token."""
        self.configured.set()
        with self._lock:
            self._task = SlotTask(cloudpickle.loads(setup))
            self._task.queries.on_change = _wait_less_for_python

    def _on_end_epoch(self, epoch: Epoch, commit: bool) -> Any:  # noqa: FBT001  a wire call
        with self._lock:
            return self._configured().end_epoch(epoch, commit=commit)

    def _on_end_of_input(self) -> None:
        with self._lock:
            self._configured().end_of_input()

    def _on_seal(self, checkpoint_id: Any, epoch: Epoch, savepoint: Any, full: bool) -> float:  # noqa: FBT001
        with self._lock:
            return self._configured().seal(checkpoint_id, epoch, savepoint=savepoint, full=full)

    def _on_snapshot(self, checkpoint_id: Any) -> Any:
        return self._configured().snapshot(checkpoint_id)  # waits; epochs go on meanwhile

    def _on_completed(self, checkpoint_id: Any) -> None:
        self._configured().completed(checkpoint_id)

    def _on_aborted(self, checkpoint_id: Any) -> None:
        self._configured().aborted(checkpoint_id)

    def _on_released(self, checkpoint_id: Any) -> None:
        self._configured().released(checkpoint_id)

    def _on_hold(self) -> None:
        self.stopped.wait()  # answers when the slot ends; the caller learns of a death at once

    def _on_die(self) -> None:
        os._exit(1)  # at once, whatever else is going on

    def _on_close(self) -> None:
        """Close functions and writers; the process ends when this has been answered."""
        with self._lock:
            if self._task is not None:
                self._task.close()

    def _configured(self) -> SlotTask:
        if self._task is None:
            raise SlotLostError("the slot has not been told what to run")
        return self._task


def _wait_less_for_python(is_published: bool) -> None:  # noqa: FBT001  what it is told
    """While there are readers, let them in sooner than Python's 5 ms when records are processed without a pause."""
    sys.setswitchinterval(_SWITCH_SECONDS if is_published else _USUAL_SWITCH_SECONDS)


def _failure(error: Exception) -> bytes:
    if not isinstance(error, CheckdamError):
        traceback.print_exception(error)  # for the executor's log: the driver is told its text only
    return pack_failure(error)


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Every call must carry the job's token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def start_call(self, info: Any, headers: Any) -> None:
        """Refuse a call without the token; runs before any part of the call's body is looked at."""
        given = headers.get(TOKEN_HEADER) or []
        if len(given) != 1 or not hmac.compare_digest(str(given[0]).encode(), self._token):
            raise flight.FlightUnauthenticatedError("wrong or missing token")
