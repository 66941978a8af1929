"""Runs the coroutine function of `map_async`: many calls in flight, all of them settled when the epoch ends."""

from __future__ import annotations

import asyncio
import queue
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final

from checkdam.errors import SlotLostError, StateRequestError
from checkdam.graph.async_calls import AsyncRetry
from checkdam.graph.contexts import KeyedStateAccess
from checkdam.graph.functions import AsyncFunction, callable_of
from checkdam.graph.operators import AsyncMapKind, Operator
from checkdam.runtime.failures import is_of_runtime, user_error
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.event_loop_thread import EventLoopThread, MakeLoop, cancelled, coroutine_stack
from checkdam.runtime.slot.process import Process
from checkdam.runtime.stalls import stack_text
from checkdam.state.descriptors import StateDescriptor
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier

_AHEAD: Final = 2
"""Calls in flight or waiting for a free place, in capacities, before the slot stops taking in more records."""

_LOOK_SECONDS: Final = 0.1
"""How often the waiting slot looks for settled calls, so that the hang watch sees progress."""


@dataclass(frozen=True)
class AsyncContext(FunctionContext):
    """Passed to `open` of an AsyncFunction."""

    def _keyed(self, descriptor: StateDescriptor) -> KeyedStateAccess:
        raise StateRequestError(
            f'operator "{self.operator_name}" asks for keyed state "{descriptor.name}", which map_async does not have: '
            "its calls run side by side",
            hint="Keep the state in a KeyedProcessFunction upstream or downstream of it.",
        )


class _Call:
    """One call for one record, or for one batch of records: then value, stamp and made are lists."""

    __slots__ = ("deadline", "is_settled", "made", "stamp", "value")

    def __init__(self, value: Any, stamp: Any) -> None:
        self.value = value
        self.stamp = stamp
        self.made: Any = None
        self.deadline = 0.0
        self.is_settled = False


class AsyncProcess(Process):
    """Hands records to the event loop, and takes the results that are there; `flush` waits for all the others.

    A fixed number of tasks work through the calls, so that a call costs no task of its own. The slot's thread and the
    loop's thread share no lock: each attribute is written by one of them only, and the slot waits for one signal a
    batch. A call is settled once: by its result or its timeout.
    """

    def __init__(self, operator: Operator, make_loop: MakeLoop = asyncio.new_event_loop) -> None:
        kind = operator.kind
        assert isinstance(kind, AsyncMapKind)
        self._operator = operator
        self._kind = kind
        self._is_batched = kind.batch_size is not None
        self._most_ahead = _AHEAD * kind.capacity * (kind.batch_size or 1)
        self._timeout = None if kind.timeout is None else kind.timeout.total_seconds()
        call = callable_of(operator.function)
        if self._is_batched:
            call = partial(_with_own_list, call)
        self._call = call if kind.retry is None else partial(_retried, call, kind.retry)
        self._replace = _replacement(kind)
        copied = copier(operator.output_type)
        self._copy = None if copied is None else copied.copy
        # Written by the thread of the slot:
        self._given = 0  # records
        self._has_stamps = False
        # Written by the thread of the loop:
        self._settled = 0  # records
        self._pending: deque[_Call] = deque()
        self._forming = _Call([], [])  # the batch that is not full
        self._forming_timer: asyncio.TimerHandle | None = None
        self._running: dict[_Call, asyncio.Task[None]] = {}  # in the order in which they were started
        self._workers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at: int | None = None  # how many records have to be settled for the next signal
        # Shared; thread-safe:
        self._out: deque[_Call] = deque()  # as they are to be emitted
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_ending = False
        self._failure: BaseException | None = None
        self._thread = EventLoopThread(operator.name, make_loop, self._loop_ended)
        self._loop = self._thread.loop

    # -- for the thread of the slot -------------------------------------------------------------------------------

    def open(self, context: FunctionContext) -> None:
        function = self._operator.function
        if isinstance(function, AsyncFunction):
            self._thread.call(function.open, AsyncContext(**vars(context)))

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        self._given += len(batch)
        self._has_stamps = self._has_stamps or batch.timestamps is not None
        is_behind = self._given - self._settled > self._most_ahead
        wake_at = self._given - self._most_ahead if is_behind else None
        self._thread.post(self._submit, batch.rows, batch.timestamps, wake_at)
        return self._results(is_awaited=is_behind)

    def flush(self) -> Batch | None:
        is_behind = self._given > self._settled
        if is_behind:
            self._thread.post(self._submit_rest, self._given)
        results = self._results(is_awaited=is_behind)
        self._has_stamps = False
        return results

    def _results(self, *, is_awaited: bool) -> Batch | None:
        if is_awaited and self._failure is None:
            self._wait()
        if self._failure is not None:
            raise self._failure
        rows: list[Any] = []
        stamps: list[int | None] = []
        out, is_batched = self._out, self._is_batched
        while out and out[0].is_settled:
            call = out.popleft()
            if is_batched:
                rows += call.made
                stamps += call.stamp
            else:
                rows.append(call.made)
                stamps.append(call.stamp)
        if not rows:
            return None
        return Batch(self._operator.output_type, rows=rows, timestamps=stamps if self._has_stamps else None)

    def _wait(self) -> None:
        """Wait for the signal. The local variable changes with each settled call, which the hang watch sees."""
        while True:
            _settled = self._settled
            try:
                return self._signals.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue

    def where_it_waits(self) -> str:
        """Describe the oldest call in flight; for a message about a hang, from any thread."""
        running = list(self._running.items())
        if not running:
            return ""
        frame = self._thread.running_frame
        call, task = running[0]
        where = _stack_of(task) if frame is None else stack_text(frame)
        calls = "1 asynchronous call" if len(running) == 1 else f"{len(running)} asynchronous calls"
        blocked = "" if frame is None else ", and user code blocks the event loop"
        return f"  {calls} in flight{blocked}; the oldest is for {call.value!r:.500}\n{where}"

    def interrupt(self) -> None:
        self._is_ending = True
        self._failure = self._failure or SlotLostError(f"operator {self._operator.title} was interrupted")
        self._signals.put(None)
        self._thread.end(self._cancel_calls)

    def close(self) -> None:
        """Cancel the calls in flight, close the function, and end the loop."""
        self._is_ending = True
        self._thread.end(self._close)
        self._thread.join()

    # -- for the thread of the loop -------------------------------------------------------------------------------

    def _submit(self, values: Sequence[Any], stamps: Sequence[int | None] | None, wake_at: int | None) -> None:
        """Take in records; signal when as many as `wake_at` are settled."""
        stamped = zip(values, repeat(None) if stamps is None else stamps, strict=stamps is not None)
        if self._is_batched:
            for value, stamp in stamped:
                self._gather(value, stamp)
        else:
            self._enqueue([_Call(value, stamp) for value, stamp in stamped])
        self._wake_at = wake_at
        self._signal_if_due()

    def _submit_rest(self, wake_at: int) -> None:
        """Let the last batch go though it is not full: the epoch ends."""
        self._release_batch()
        self._wake_at = wake_at
        self._signal_if_due()

    def _gather(self, value: Any, stamp: int | None) -> None:
        forming, kind = self._forming, self._kind
        forming.value.append(value)
        forming.stamp.append(stamp)
        if len(forming.value) == kind.batch_size:
            self._release_batch()
        elif kind.max_delay is not None and self._forming_timer is None:
            self._forming_timer = self._loop.call_later(kind.max_delay.total_seconds(), self._release_batch)

    def _release_batch(self) -> None:
        if self._forming_timer is not None:
            self._forming_timer.cancel()
            self._forming_timer = None
        if self._forming.value:
            self._enqueue([self._forming])
            self._forming = _Call([], [])

    def _enqueue(self, calls: Sequence[_Call]) -> None:
        self._pending.extend(calls)
        if self._kind.is_ordered:
            self._out.extend(calls)
        self._start_workers()

    def _start_workers(self) -> None:
        for _ in range(min(self._kind.capacity - self._workers, len(self._pending))):
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._workers += 1

    async def _work(self) -> None:
        """Make one call after the other until none is pending."""
        pending, running, call, has_timeout = self._pending, self._running, self._call, self._timeout is not None
        me = asyncio.current_task()
        assert me is not None
        while pending:
            each = pending.popleft()
            running[each] = me
            if has_timeout:
                self._set_deadline(each)
            try:
                made = self._own(each, await call(each.value))
            except BaseException as failure:  # noqa: BLE001  raised by the slot's thread
                if each in running and not self._is_ending:
                    self._fail(each, failure)
                return
            if running.pop(each, None) is None:
                return  # timed out, and another worker has taken this one's place
            self._settle(each, made)
        self._workers -= 1

    def _own(self, call: _Call, made: Any) -> Any:
        """Check the result of a call. Return what is emitted: later changes by the function must not show in it."""
        copy = self._copy
        if not self._is_batched:
            return made if copy is None else copy(made)
        if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
            raise TypeError(f"the function must return a list for a batch, not {type(made).__name__}")
        results = list(made)
        if len(results) != len(call.value):
            raise ValueError(f"the function returned {len(results)} results for a batch of {len(call.value)} records")
        return results if copy is None else list(map(copy, results))

    def _settle(self, call: _Call, made: Any) -> None:
        call.made = made
        call.is_settled = True
        if not self._kind.is_ordered:
            self._out.append(call)
        self._settled += len(made) if self._is_batched else 1
        if self._wake_at is not None:
            self._signal_if_due()

    def _signal_if_due(self) -> None:
        if self._wake_at is not None and self._settled >= self._wake_at:
            self._wake_at = None
            self._signals.put(None)

    def _fail(self, call: _Call, cause: BaseException) -> None:
        """Let the slot fail. The call stays unsettled, so that nothing is emitted for it."""
        if self._failure is None:
            is_error = isinstance(cause, Exception | asyncio.CancelledError)
            failure = user_error(self._operator, call.value, cause) if is_error else cause
            failure.__cause__ = cause if is_error else None
            self._failure = failure
        self._pending.clear()
        self._signals.put(None)

    # -- timeouts: all calls have the same, so the oldest call in flight is always the next to time out --------------

    def _set_deadline(self, call: _Call) -> None:
        assert self._timeout is not None
        call.deadline = self._loop.time() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._running:
            call, task = next(iter(self._running.items()))
            if call.deadline > now:
                self._timer = self._loop.call_at(call.deadline, self._expire)
                break
            del self._running[call]
            self._time_out(call, task)
        self._start_workers()

    def _time_out(self, call: _Call, task: asyncio.Task[None]) -> None:
        """Settle a call without its result. Its coroutine is cancelled, and may ignore that: no one waits for it."""
        where = "" if self._replace is not None else _stack_of(task)
        task.cancel()
        self._workers -= 1
        try:
            if self._replace is None:
                late = TimeoutError(f"no result within the timeout of {self._timeout:g} s")
                late.add_note(f"The call was waiting at:\n{where}")
                raise late
            made = list(map(self._replace, call.value)) if self._is_batched else self._replace(call.value)
            made = self._own(call, made)
        except Exception as failure:  # noqa: BLE001  raised by the slot's thread
            self._fail(call, failure)
        else:
            self._settle(call, made)

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _cancel_calls(self) -> None:
        self._pending.clear()
        for timer in (self._timer, self._forming_timer):
            if timer is not None:
                timer.cancel()
        await cancelled(self._tasks)

    async def _close(self) -> None:
        await self._cancel_calls()
        if isinstance(self._operator.function, AsyncFunction):
            closing = self._operator.function.close()
            if closing is not None:
                await closing

    def _loop_ended(self, cause: BaseException | None) -> None:
        ended = cause or SlotLostError(f"the event loop of operator {self._operator.title} has ended")
        self._failure = self._failure or ended
        self._signals.put(None)


def _with_own_list(call: Callable[[Any], Any], values: list[Any]) -> Any:
    """Call with a list that the function may change."""
    return call(values[:])


async def _retried(call: Callable[[Any], Any], retry: AsyncRetry, value: Any) -> Any:
    """Call until the result is accepted, or the last attempt is made."""
    attempt = 1
    while True:
        is_last = attempt >= retry.attempts
        try:
            made = await call(value)
        except Exception as failure:
            if is_last or (retry.if_exception is not None and not retry.if_exception(failure)):
                raise
        else:
            if is_last or retry.if_result is None or not retry.if_result(made):
                return made
        await asyncio.sleep(retry.pause(attempt))
        attempt += 1


def _replacement(kind: AsyncMapKind) -> Callable[[Any], Any] | None:
    """Return the function that replaces the result of a call that timed out; None if the job fails then."""
    if kind.on_timeout is not None:
        return kind.on_timeout  # type: ignore[no-any-return]  # checked when the job was built
    function = kind.function
    if isinstance(function, AsyncFunction) and type(function).timeout is not AsyncFunction.timeout:
        return function.timeout
    return None


def _stack_of(task: asyncio.Task[None]) -> str:
    """Return where a worker's call waits, without the worker's own frames."""
    stack = coroutine_stack(task.get_coro())
    return "".join(traceback.StackSummary.from_list([each for each in stack if not is_of_runtime(each)]).format())
