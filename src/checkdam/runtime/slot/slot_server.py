"""A slot as an Arrow Flight service: DoExchange for records, DoAction for control."""

from __future__ import annotations

import hmac
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import cloudpickle
import msgspec
import pyarrow.flight as flight

from checkdam.clock import SystemClock
from checkdam.errors import CheckdamError, SlotLostError
from checkdam.ids import Epoch
from checkdam.runtime.heartbeat import Heartbeat, Silence
from checkdam.runtime.logs.log_reader import LogDirectory
from checkdam.runtime.slot.control_messages import (
    AWAIT,
    TASK_REPORTS,
    Pending,
    pack_answer,
    pack_error,
    pack_failure,
    pack_pending,
    unpack_arguments,
)
from checkdam.runtime.slot.cycle_collection import CycleCollector
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_watch import SlotWatch
from checkdam.runtime.slot.task import SlotTask
from checkdam.runtime.stalls import Stall
from checkdam.storage.memory_storage import open_elsewhere

TOKEN_HEADER = "x-checkdam-token"

_log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
_USUAL_SWITCH_SECONDS = sys.getswitchinterval()


class SlotServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one SlotTask. A control call is answered with a value or an error (control_messages.py).

    Each control call has a thread of its own, so that the driver gets a sign of life within a heartbeat, however long
    the call takes.
    """

    def __init__(
        self, location: str, token: str, heartbeat: Heartbeat | None = None, logs: LogDirectory | None = None
    ) -> None:
        super().__init__(location, middleware={"token": TokenCheck(token)})
        self._logs = logs
        self._heartbeat = heartbeat or Heartbeat()
        self._watch = SlotWatch(self._heartbeat.interval, SystemClock())
        self._calls: dict[int, _Call] = {}
        self._tickets = itertools.count()
        self.silence = Silence(self._heartbeat.timeout)  # of the driver
        self.on_await: Callable[[], None] = lambda: None  # called repeatedly while a call takes long
        self._task: SlotTask | None = None
        self._cycles = CycleCollector()
        self._handlers: Mapping[str, Callable[..., Any]] = {
            "configure": self._on_configure,
            "end_epoch": self._on_end_epoch,
            "end_of_input": self._on_end_of_input,
            "seal": self._on_begin_snapshot,
            "snapshot": self._on_snapshot,
            "completed": self._on_completed,
            "aborted": self._on_aborted,
            "released": self._on_released,
            "hold": self._on_hold,
            "log_files": self._on_log_files,
            "read_log": self._on_read_log,
            "tail_log": self._on_tail_log,
            "die": self._on_die,
            "close": self._on_close,
            TASK_REPORTS: self._on_task_reports,
        }
        self._lock = threading.RLock()  # only one record or control call at a time uses the task
        self.configured = threading.Event()
        self.stopped = threading.Event()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        level, epoch = msgspec.msgpack.decode(descriptor.command, type=tuple[int, int])
        try:
            with self._lock:
                self._exchange(level, Epoch(epoch), reader, writer)
        except BaseException as error:  # noqa: BLE001  user code may also call sys.exit()
            try:
                writer.write_metadata(pack_error(error))  # as a message: a status cannot hold a long text
            finally:  # only now, as a disk may hang; the driver shows it, so this is for readers of the log alone
                _log.error("level %d of epoch %d failed", level, epoch, exc_info=error, extra={"is_known": True})
            for _ in reader:
                pass  # if its writes failed, the client would lose results in transit; it stops soon

    def _exchange(self, level: int, epoch: Epoch, reader: Any, writer: Any) -> None:
        run = self._configured().begin_level(level, epoch)
        writer.begin(run.output_schema)
        work = f"level {level} of epoch {epoch}"
        for chunk in reader:
            for produced in self._watch.watched(work, run.process(chunk.data)):
                writer.write_batch(produced)
        for produced in self._watch.watched(work, run.finish()):
            writer.write_batch(produced)

    def answer_queries(self, request: bytes) -> bytes:
        """Answer a message of queries of live state. Any thread may call this, while records are processed."""
        if self.stopped.is_set():
            raise SlotLostError("the slot has ended")
        return self._configured().queries.answer(request, self._lock)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        if action.type != TASK_REPORTS:
            self.silence.heard()
        if action.type == AWAIT:
            self.on_await()
        try:
            ticket, call = self._call(action.type, action.body.to_pybytes())
        except Exception as error:  # noqa: BLE001  the caller judges every failure; none may stop the server
            yield flight.Result(_failure(error))
            return
        if not call.wait(self._heartbeat.interval_seconds):
            signals = 0 if self._task is None else self._task.records_signal.count
            yield flight.Result(pack_pending(Pending(ticket, self._watch.beat(signals))))
            return
        del self._calls[ticket]
        try:
            yield flight.Result(call.answer)
        finally:
            if call.name == "close":
                self.stopped.set()  # only now: the process must not end before its answer is sent

    def _call(self, name: str, body: bytes) -> tuple[int, _Call]:
        """Start a call, or find one that is in progress."""
        if name == AWAIT:
            [ticket] = unpack_arguments(name, body)
            return ticket, self._calls[ticket]
        handler = self._handlers.get(name)
        if handler is None:
            raise SlotLostError(f'a slot has no call "{name}"')
        ticket, arguments = next(self._tickets), unpack_arguments(name, body)
        call = self._calls[ticket] = _Call(name)
        threading.Thread(target=call.run, args=(handler, arguments), daemon=True, name=f"call-{name}").start()
        return ticket, call

    def _on_configure(self, setup: bytes) -> None:
        """Set the slot up for a job. The setup holds user code; only the driver has the token to send one."""
        self.configured.set()
        with self._at_work("configure"):
            unpacked = cloudpickle.loads(setup)
            self._task = _task(unpacked)
            self._task.queries.on_change = _wait_less_for_python
            self._task.records_signal.on_count = self._beat_now
            state = "restored" if unpacked.restore is not None else "empty"
            _log.info("attempt %s begins after epoch %d, with %s state", unpacked.attempt, unpacked.last_epoch, state)

    def _on_end_epoch(self, epoch: Epoch, commit: bool) -> Any:  # noqa: FBT001  a wire call
        with self._at_work("end_epoch"):
            report = self._configured().end_epoch(epoch, commit=commit)
            self._cycles.epoch_ended(report.memory)
            return report

    def _on_end_of_input(self) -> None:
        with self._at_work("end_of_input"):
            self._configured().end_of_input()

    def _on_begin_snapshot(self, checkpoint_id: Any, epoch: Epoch, savepoint: Any, full: bool) -> float:  # noqa: FBT001
        with self._at_work("begin_snapshot"):
            return self._configured().begin_snapshot(checkpoint_id, epoch, savepoint=savepoint, full=full)

    def _on_snapshot(self, checkpoint_id: Any) -> Any:
        return self._configured().snapshot(checkpoint_id)  # blocks; epochs continue meanwhile

    def _on_completed(self, checkpoint_id: Any) -> None:
        self._configured().completed(checkpoint_id)

    def _on_aborted(self, checkpoint_id: Any) -> None:
        self._configured().aborted(checkpoint_id)

    def _on_released(self, checkpoint_id: Any) -> None:
        self._configured().released(checkpoint_id)

    def _beat_now(self) -> None:
        """Answer the call that is always open, so that the driver runs an epoch."""
        for call in list(self._calls.values()):
            if call.name == "hold":
                call.stir()

    def _on_hold(self) -> None:
        self.stopped.wait()  # answers when the slot ends; the caller notices a death at once

    def _on_log_files(self) -> Any:
        with suppress(OSError):  # it has not written a line yet
            return self._logs.files() if self._logs is not None else []
        return []

    def _on_read_log(self, name: str, offset: int, length: int, id: int | None) -> bytes | None:
        with suppress(OSError):
            return self._logs.read(name, offset, length, id) if self._logs is not None else None
        return None

    def _on_tail_log(self, name: str, cursor: str | None, limit: int) -> Any:
        with suppress(OSError):
            return self._logs.tail(name, cursor, limit) if self._logs is not None else None
        return None

    def _on_die(self) -> None:
        os._exit(1)  # at once, whatever else is running

    def _on_close(self) -> None:
        """Close functions and writers; the process ends when this has been answered."""
        with self._at_work("close"):
            if self._task is not None:
                self._task.close()

    def _on_task_reports(self, task: str, stall: Stall | None) -> None:
        self._watch.task_reports(task, stall)

    @contextmanager
    def _at_work(self, on: str) -> Iterator[None]:
        """Lock the task for this thread and watch the thread. Waiting for the lock does not count as work."""
        with self._lock, self._watch.working(on):
            yield

    def _configured(self) -> SlotTask:
        if self._task is None:
            raise SlotLostError("the slot is not configured")
        return self._task


class _Call:
    """A control call, from its start until its answer is fetched."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answer: bytes | None = None
        self._stirred = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer. Return False if there is none yet, earlier if the call is woken."""
        self._stirred.wait(seconds)
        self._stirred.clear()
        return self.answer is not None

    def stir(self) -> None:
        self._stirred.set()

    def run(self, handler: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self.answer = pack_answer(handler(*arguments))
        except BaseException as error:  # noqa: BLE001  the caller decides what a failure means, also a sys.exit()
            self.answer = _failure(error)
        finally:
            self.stir()


def _task(setup: SlotSetup) -> SlotTask:
    if setup.driver_memory is not None:
        from checkdam.runtime.driver_memory import opener  # it imports this module

        open_elsewhere(opener(setup.driver_memory))
    return SlotTask(setup)


def _wait_less_for_python(is_published: bool) -> None:  # noqa: FBT001  the callback's one argument
    """Let readers, if any, in sooner than Python's 5 ms while records are processed without a pause."""
    sys.setswitchinterval(_SWITCH_SECONDS if is_published else _USUAL_SWITCH_SECONDS)


def _failure(error: BaseException) -> bytes:
    """Pack an error for the driver, which gets only the text of one that is not Checkdam's own."""
    if not isinstance(error, CheckdamError):
        _log.error("a call to the slot failed", exc_info=error)
    return pack_failure(error)


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Requires the job's token in every call."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def start_call(self, info: Any, headers: Any) -> None:
        """Refuse a call without the token, before any part of its body is read."""
        given = headers.get(TOKEN_HEADER) or []
        if len(given) != 1 or not hmac.compare_digest(str(given[0]).encode(), self._token):
            raise flight.FlightUnauthenticatedError("wrong or missing token")
