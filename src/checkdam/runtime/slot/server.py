"""A slot as an Arrow Flight service: DoExchange for records, DoAction for control."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import msgspec
import pyarrow.flight as flight

from checkdam.errors import CheckdamError, SlotLostError
from checkdam.ids import Epoch
from checkdam.runtime.failures import to_text
from checkdam.runtime.slot.task import SlotTask

TOKEN_HEADER = "x-checkdam-token"


class SlotServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one SlotTask. Control calls answer with a pickled value or a pickled error, never with half of one."""

    def __init__(self, location: str, token: str) -> None:
        super().__init__(location, middleware={"token": _TokenCheck(token)})
        self._task: SlotTask | None = None
        self._lock = threading.RLock()  # one record or control call at a time touches the task
        self.configured = threading.Event()
        self.stopped = threading.Event()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        level, epoch = msgspec.msgpack.decode(descriptor.command, type=tuple[int, int])
        with self._lock:
            try:
                self._exchange(level, Epoch(epoch), reader, writer)
            except CheckdamError as error:
                raise flight.FlightServerError(to_text(error)) from error

    def _exchange(self, level: int, epoch: Epoch, reader: Any, writer: Any) -> None:
        run = self._configured().begin_level(level, epoch)
        writer.begin(run.output_schema)
        for chunk in reader:
            for produced in run.process(chunk.data):
                writer.write_batch(produced)
        for produced in run.finish():
            writer.write_batch(produced)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        arguments = cloudpickle.loads(action.body.to_pybytes())
        handler: Callable[..., Any] = getattr(self, f"_on_{action.type}")
        try:
            answer: tuple[bool, Any] = (True, handler(*arguments))
        except Exception as error:  # noqa: BLE001  every failure is the caller's to judge, none may stop the server
            answer = (False, error)
        try:
            yield flight.Result(_pickled(answer))
        finally:
            if action.type == "close":
                self.stopped.set()  # only now: the process must not end before its answer is out

    def _on_configure(self, setup: Any) -> None:
        self.configured.set()
        with self._lock:
            self._task = SlotTask(setup)

    def _on_end_epoch(self, epoch: Epoch, commit: bool) -> Any:  # noqa: FBT001  a wire call
        with self._lock:
            return self._configured().end_epoch(epoch, commit=commit)

    def _on_end_of_input(self) -> None:
        with self._lock:
            self._configured().end_of_input()

    def _on_seal(self, checkpoint_id: Any, epoch: Epoch) -> float:
        with self._lock:
            return self._configured().seal(checkpoint_id, epoch)

    def _on_snapshot(self, checkpoint_id: Any) -> Any:
        return self._configured().snapshot(checkpoint_id)  # waits; epochs go on meanwhile

    def _on_completed(self, checkpoint_id: Any) -> None:
        self._configured().completed(checkpoint_id)

    def _on_aborted(self, checkpoint_id: Any) -> None:
        self._configured().aborted(checkpoint_id)

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


def _pickled(answer: tuple[bool, Any]) -> bytes:
    try:
        return cloudpickle.dumps(answer)  # type: ignore[no-any-return]  # cloudpickle has no types
    except (pickle.PicklingError, TypeError, AttributeError):
        return pickle.dumps((False, SlotLostError(f"the slot failed: {answer[1]!r}")))


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Every call must carry the job's token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def start_call(self, info: Any, headers: Any) -> None:
        if headers.get(TOKEN_HEADER) != [self._token]:
            raise flight.FlightUnauthenticatedError("wrong or missing token")
