"""map_async in a slot: order, capacity, timeouts, retries, batches, and how its event loop ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.virtual_time import VirtualTimeLoop

from checkdam import AsyncFunction, AsyncRetry, RuntimeContext, SlotLostError, UserFunctionError, ValueStateDescriptor
from checkdam.errors import StateRequestError
from checkdam.graph.operators import AsyncMapKind, Operator
from checkdam.runtime.slot.async_functions import AsyncProcess
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.event_loop_thread import EventLoopThread
from checkdam.runtime.slot.operator_processes import make_process
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Running:
    """A process of map_async in virtual time."""

    def __init__(self, process: AsyncProcess, of: Any) -> None:
        self.process = process
        self._of = type_info(of)

    def give(self, *values: Any) -> list[Any]:
        return self._rows(self.process(Batch(self._of, rows=list(values)), None))

    def flush(self) -> list[Any]:
        return self._rows(self.process.flush())

    def epoch(self, *values: Any) -> list[Any]:
        return self.give(*values) + self.flush()

    def batches(
        self, *values: Any, timestamps: Sequence[int | None] | None = None
    ) -> list[tuple[list[Any], Sequence[int | None] | None]]:
        """The records and timestamps of each batch that comes out; a result that is there early comes in the first."""
        given = self.process(Batch(self._of, rows=list(values), timestamps=timestamps), None)
        return [(each.rows, each.timestamps) for each in (given, self.process.flush()) if each is not None]

    def stamped_epoch(self, values: Sequence[Any], timestamps: Sequence[int | None]) -> list[tuple[Any, int | None]]:
        out = self.batches(*values, timestamps=timestamps)
        return [pair for rows, stamps in out for pair in zip(rows, stamps or (), strict=True)]

    @staticmethod
    def _rows(batch: Batch | None) -> list[Any]:
        return [] if batch is None else batch.rows


Open = Callable[..., Running]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a function with the options of AsyncMapKind, and closes it after the test."""
    with contextlib.ExitStack() as stack:

        def open_function(function: Any, of: Any = int, **options: Any) -> Running:
            process = AsyncProcess(operator_of(function, of, **options), make_loop=VirtualTimeLoop)
            stack.callback(process.close)
            process.open(FunctionContext("it", 0, 1))
            return Running(process, of)

        yield open_function


def operator_of(function: Any, of: Any = int, **options: Any) -> Operator:
    return Operator(1, "it", AsyncMapKind(function, **options), (0,), type_info(of))


async def in_reverse(value: int) -> int:
    """The smaller, the later."""
    await asyncio.sleep(100 - value)
    return value * 10


def test_results_keep_the_order_of_the_records(opened: Open) -> None:
    assert opened(in_reverse).epoch(1, 2, 3) == [10, 20, 30]


def test_unordered_results_come_as_they_complete(opened: Open) -> None:
    assert opened(in_reverse, is_ordered=False).epoch(1, 2, 3) == [30, 20, 10]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_timestamps_stay_with_their_records(opened: Open, is_ordered: bool) -> None:
    it = opened(in_reverse, is_ordered=is_ordered)

    stamped = it.stamped_epoch([1, 2, 3], [100, None, 300])

    assert dict(stamped) == {10: 100, 20: None, 30: 300}


def test_records_without_timestamps_get_none_in_a_later_epoch(opened: Open) -> None:
    it = opened(in_reverse)
    it.stamped_epoch([1], [100])

    assert it.batches(2) == [([20], None)]


def test_no_more_calls_than_the_capacity_are_in_flight(opened: Open) -> None:
    flying: list[int] = []
    most: list[int] = []

    async def call(value: int) -> int:
        flying.append(value)
        most.append(len(flying))
        await asyncio.sleep(1 + value % 3)
        flying.remove(value)
        return value

    assert opened(call, capacity=4).epoch(*range(50)) == list(range(50))
    assert max(most) == 4


def test_calls_of_different_batches_of_an_epoch_overlap(opened: Open) -> None:
    both: list[asyncio.Event] = []

    async def call(value: int) -> int:
        both.append(asyncio.Event())
        if value == 2:
            both[0].set()
        else:
            await both[0].wait()
        return value

    it = opened(call)

    assert it.give(1) == []  # does not wait for it
    assert it.give(2) + it.flush() == [1, 2]


def test_a_slot_that_is_far_ahead_waits_and_passes_on_what_is_there(opened: Open) -> None:
    it = opened(in_reverse, capacity=2)

    first = it.give(*range(20))

    assert len(first) >= 16  # four calls may be in flight or waiting
    assert first + it.flush() == [value * 10 for value in range(20)]


def test_results_behind_a_slow_call_wait_for_it(opened: Open) -> None:
    release: list[asyncio.Event] = []

    async def call(value: int) -> int:
        if value == 0:
            release.append(asyncio.Event())
            await release[0].wait()
        if value == 10:
            release[0].set()
        return value

    it = opened(call, capacity=2)

    assert it.give(*range(10)) == []  # though most of them are there
    assert it.give(10) + it.flush() == list(range(11))


def test_results_are_copies(opened: Open) -> None:
    cached = ["a"]

    async def call(value: list[str]) -> list[str]:
        cached.append("b")
        return cached

    first, second = opened(call, of=list[str]).epoch([], [])

    assert (first, second) == (["a", "b"], ["a", "b", "b"])


# -- failures ---------------------------------------------------------------------------------------------------------


async def invert(value: int) -> int:
    await asyncio.sleep(1)
    return 1 // value


def test_an_exception_names_the_record_and_shows_the_frames_of_the_function_only(opened: Open) -> None:
    with pytest.raises(UserFunctionError, match=r'"it" failed on record 0: ZeroDivisionError') as failure:
        opened(invert).epoch(1, 0, 2)

    assert "return 1 // value" in failure.value.user_traceback
    assert "/checkdam/runtime/" not in failure.value.user_traceback


def test_a_failure_is_raised_by_the_next_batch_too(opened: Open) -> None:
    it = opened(invert)
    with pytest.raises(UserFunctionError):
        it.epoch(0)

    with pytest.raises(UserFunctionError):
        it.give(1)


def test_a_coroutine_that_cancels_itself_fails(opened: Open) -> None:
    async def call(value: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(UserFunctionError, match="on record 1: CancelledError"):
        opened(call).epoch(1)


def test_a_coroutine_that_ends_the_process_is_no_user_error(opened: Open) -> None:
    async def call(value: int) -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        opened(call).epoch(1)


def test_a_task_of_the_user_that_ends_the_process_ends_the_wait(opened: Open) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def call(value: int) -> int:
        await asyncio.create_task(leave())
        return value

    with pytest.raises(SystemExit):
        opened(call).epoch(1)
    gc.collect()  # asyncio logs the task's end now, and not in the middle of another test


# -- timeouts ---------------------------------------------------------------------------------------------------------


async def stuck_on_two(value: int) -> int:
    if value == 2:
        await asyncio.Event().wait()
    return value


def test_a_call_that_never_returns_fails_with_its_record_and_place(opened: Open) -> None:
    with pytest.raises(UserFunctionError, match=r"record 2: TimeoutError: no result within the timeout of 1 s") as it:
        opened(stuck_on_two, timeout=SECOND).epoch(1, 2, 3)

    assert "await asyncio.Event().wait()" in it.value.user_traceback
    assert "/checkdam/runtime/" not in it.value.user_traceback


def test_on_timeout_replaces_the_result(opened: Open) -> None:
    it = opened(stuck_on_two, timeout=SECOND, on_timeout=lambda value: -value)

    assert it.epoch(1, 2, 3) == [1, -2, 3]
    assert it.epoch(2) == [-2]


def test_timeout_of_an_async_function_replaces_the_result(opened: Open) -> None:
    class Patient(AsyncFunction):
        async def async_invoke(self, value: int) -> int:
            return await stuck_on_two(value)

        def timeout(self, value: int) -> int:
            return -value

    assert opened(Patient(), timeout=SECOND).epoch(1, 2, 3) == [1, -2, 3]


def test_an_error_of_on_timeout_names_the_record(opened: Open) -> None:
    with pytest.raises(UserFunctionError, match="record 2: ZeroDivisionError"):
        opened(stuck_on_two, timeout=SECOND, on_timeout=lambda value: value // 0).epoch(2)


def test_a_call_that_ignores_its_cancellation_delays_nothing(opened: Open) -> None:
    async def stubborn(value: int) -> int:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        return value

    it = opened(stubborn, capacity=1, timeout=SECOND, on_timeout=lambda value: -value)

    assert it.epoch(1, 2, 3) == [-1, -2, -3]


def test_a_result_after_the_timeout_is_ignored(opened: Open) -> None:
    async def late(value: int) -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return value

    it = opened(late, is_ordered=False, timeout=SECOND, on_timeout=lambda value: -value)

    assert it.epoch(1, 2) == [-1, -2]
    assert it.epoch(3) == [-3]


def test_the_timeout_is_that_of_one_call_and_not_of_the_time_it_waits_for_its_turn(opened: Open) -> None:
    async def call(value: int) -> int:
        await asyncio.sleep(0.9)
        return value

    assert opened(call, capacity=1, timeout=SECOND).epoch(*range(5)) == list(range(5))


# -- retries ----------------------------------------------------------------------------------------------------------


class Unreliable:
    """Fails until it has been called often enough; remembers when that was."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.times: list[float] = []

    async def call(self, value: int) -> int:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) <= self.failures:
            raise OSError(f"attempt {len(self.times)}")
        return value


def test_an_exception_is_retried_after_a_fixed_delay(opened: Open) -> None:
    service = Unreliable(failures=2)

    assert opened(service.call, retry=AsyncRetry(attempts=3, delay=SECOND)).epoch(7) == [7]
    assert service.times == [0, 1, 2]


def test_pauses_grow_by_the_factor_up_to_the_longest(opened: Open) -> None:
    service = Unreliable(failures=4)
    retry = AsyncRetry(attempts=5, delay=SECOND, factor=2, max_delay=timedelta(seconds=3))

    assert opened(service.call, retry=retry).epoch(7) == [7]
    assert service.times == [0, 1, 3, 6, 9]


def test_a_pause_never_overflows() -> None:
    assert AsyncRetry(delay=SECOND, factor=10, max_delay=HOUR).pause(1000) == 3600


def test_after_the_last_attempt_the_exception_is_raised_with_its_record(opened: Open) -> None:
    service = Unreliable(failures=9)

    with pytest.raises(UserFunctionError, match="record 7: OSError: attempt 3") as failure:
        opened(service.call, retry=AsyncRetry(attempts=3, delay=SECOND)).epoch(7)
    assert "raise OSError" in failure.value.user_traceback


def test_an_exception_that_the_predicate_refuses_is_not_retried(opened: Open) -> None:
    service = Unreliable(failures=9)
    retry = AsyncRetry(attempts=3, if_exception=lambda error: isinstance(error, ValueError))

    with pytest.raises(UserFunctionError, match="OSError: attempt 1"):
        opened(service.call, retry=retry).epoch(7)


def test_a_result_is_retried_until_it_is_accepted(opened: Open) -> None:
    made = iter([0, 0, 5])

    async def call(value: int) -> int:
        return next(made)

    assert opened(call, retry=AsyncRetry(if_result=lambda result: result == 0)).epoch(1) == [5]


def test_the_last_result_is_emitted_though_it_is_not_accepted(opened: Open) -> None:
    async def call(value: int) -> int:
        return 0

    assert opened(call, retry=AsyncRetry(attempts=2, if_result=lambda result: result == 0)).epoch(1) == [0]


def test_the_timeout_covers_all_retries(opened: Open) -> None:
    service = Unreliable(failures=9)
    retry = AsyncRetry(attempts=9, delay=SECOND)

    it = opened(service.call, retry=retry, timeout=timedelta(seconds=2.5), on_timeout=lambda value: -value)

    assert it.epoch(7) == [-7]
    assert service.times == [0, 1, 2]


# -- batches ----------------------------------------------------------------------------------------------------------


class Sizes:
    """Returns the size of each batch for each of its records, and keeps when the batches came."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.called = threading.Event()

    async def call(self, values: list[int]) -> list[int]:
        self.times.append(asyncio.get_running_loop().time())
        size = len(values)
        values.clear()  # it may do as it likes with its list
        self.called.set()
        return [size] * size


def test_full_batches_go_at_once_and_the_rest_at_the_end_of_the_epoch(opened: Open) -> None:
    it = opened(Sizes().call, batch_size=3)

    assert it.give(1, 2) + it.give(3, 4) + it.flush() == [3, 3, 3, 1]
    assert it.epoch(5) == [1]


def test_a_batch_does_not_wait_longer_than_max_delay(opened: Open) -> None:
    sizes = Sizes()
    it = opened(sizes.call, batch_size=3, max_delay=SECOND)

    early = it.give(1, 2)
    assert sizes.called.wait(30)

    assert early + it.give(3) + it.flush() == [2, 2, 1]
    assert sizes.times[0] == 1.0


@pytest.mark.parametrize("is_ordered", [True, False])
def test_timestamps_stay_with_the_records_of_a_batch(opened: Open, is_ordered: bool) -> None:
    it = opened(Sizes().call, batch_size=2, is_ordered=is_ordered)

    assert it.stamped_epoch([1, 2, 3], [10, 20, 30]) == [(2, 10), (2, 20), (1, 30)]


def test_more_batches_than_the_capacity_wait_for_their_turn(opened: Open) -> None:
    it = opened(Sizes().call, batch_size=7, capacity=2)

    assert it.epoch(*range(100)) == [7] * 98 + [2] * 2


def test_too_few_results_are_refused(opened: Open) -> None:
    async def call(values: list[int]) -> list[int]:
        return values[1:]

    with pytest.raises(
        UserFunctionError, match=r"record \[1, 2\]: ValueError: the function returned 1 results for a b"
    ):
        opened(call, batch_size=2).epoch(1, 2)


@pytest.mark.parametrize("made", [None, "ab", {"a": 1, "b": 2}, 7])
def test_a_result_that_is_no_list_is_refused(opened: Open, made: Any) -> None:
    async def call(values: list[int]) -> Any:
        return made

    with pytest.raises(UserFunctionError, match=r"record \[1, 2\]: TypeError: the function must return a list"):
        opened(call, batch_size=2).epoch(1, 2)


def test_every_record_of_a_batch_that_times_out_is_replaced(opened: Open) -> None:
    async def call(values: list[int]) -> list[int]:
        await asyncio.Event().wait()
        return values

    it = opened(call, batch_size=2, timeout=SECOND, on_timeout=lambda value: -value)

    assert it.epoch(1, 2, 3) == [-1, -2, -3]


def test_a_failed_batch_is_retried_as_a_whole(opened: Open) -> None:
    seen: list[list[int]] = []

    async def call(values: list[int]) -> list[int]:
        seen.append(values[:])
        values.pop()
        if len(seen) == 1:
            raise OSError
        return [0, 0]

    assert opened(call, batch_size=2, retry=AsyncRetry()).epoch(1, 2) == [0, 0]
    assert seen == [[1, 2], [1, 2]]


# -- open and close ---------------------------------------------------------------------------------------------------


class Client(AsyncFunction):
    """Talks to a task that lives as long as the function."""

    events: list[Any]

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    async def open(self, ctx: RuntimeContext) -> None:
        self.requests: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue()
        self.server = asyncio.create_task(self.serve())
        self.events.append(("open", ctx.subtask_index, threading.current_thread().name))

    async def serve(self) -> None:
        while True:
            value, answer = await self.requests.get()
            answer.set_result(value + 1)

    async def async_invoke(self, value: int) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((value, answer))
        return await answer

    async def close(self) -> None:
        self.server.cancel()
        self.events.append(("close", threading.current_thread().name))


def test_a_client_lives_from_open_to_close_through_all_epochs(opened: Open) -> None:
    events: list[Any] = []
    it = opened(Client(events))

    assert [it.epoch(1, 2), it.epoch(3)] == [[2, 3], [4]]
    it.process.close()

    assert events == [("open", 0, "async-it"), ("close", "async-it")]


def test_tasks_of_a_client_run_between_epochs(opened: Open) -> None:
    go, done = threading.Event(), threading.Event()

    class Beating(AsyncFunction):
        def open(self, ctx: RuntimeContext) -> None:
            self.task = asyncio.create_task(self.beat())  # a plain open is called inside the loop as well

        async def beat(self) -> None:
            while not go.is_set():
                await asyncio.sleep(1)
            done.set()

        async def async_invoke(self, value: int) -> int:
            return value

    it = opened(Beating())
    it.epoch(1)
    go.set()

    assert done.wait(30)


def test_keyed_state_is_refused() -> None:
    class Stateful(AsyncFunction):
        def open(self, ctx: RuntimeContext) -> None:
            ctx.get_state(ValueStateDescriptor("count", int))

        async def async_invoke(self, value: int) -> int:
            return value

    before = threading.enumerate()
    with pytest.raises(StateRequestError, match='asks for keyed state "count", which map_async does not have'):
        make_process(operator_of(Stateful()), context=FunctionContext("it", 0, 1))
    assert set(threading.enumerate()) <= set(before)


def test_a_failed_open_closes_the_function_and_ends_its_loop() -> None:
    closed = []

    class Refusing(AsyncFunction):
        async def open(self, ctx: RuntimeContext) -> None:
            raise OSError("refused")

        def close(self) -> None:
            closed.append(True)

    before = threading.enumerate()
    with pytest.raises(UserFunctionError, match=r"failed in open: OSError: refused"):
        make_process(operator_of(Refusing()), context=FunctionContext("it", 0, 1))

    assert closed == [True]
    assert set(threading.enumerate()) <= set(before)


def test_calls_in_flight_have_ended_when_the_function_is_closed() -> None:
    begun, events = threading.Event(), []

    class Slow(AsyncFunction):
        async def async_invoke(self, value: int) -> int:
            begun.set()
            try:
                return await forever(value)
            finally:
                events.append("call ended")

        def close(self) -> None:
            events.append("closed")

    process = AsyncProcess(operator_of(Slow()))
    process(Batch(type_info(int), rows=[1]), None)
    assert begun.wait(30)

    process.close()

    assert events == ["call ended", "closed"]


def test_an_error_of_close_is_raised() -> None:
    class Failing(AsyncFunction):
        async def close(self) -> None:
            raise OSError("not closed")

    process = AsyncProcess(operator_of(Failing()))

    with pytest.raises(OSError, match="not closed"):
        process.close()


async def forever(value: int) -> int:
    await asyncio.Event().wait()
    return value


@pytest.mark.filterwarnings("error")
def test_close_cancels_the_calls_in_flight_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    begun, ended = threading.Event(), []

    async def call(value: int) -> int:
        begun.set()
        try:
            return await forever(value)
        finally:
            ended.append(value)

    gc.collect()
    caplog.clear()  # of the tasks of other tests
    before = threading.enumerate()
    process = AsyncProcess(operator_of(call, capacity=2))
    process(Batch(type_info(int), rows=[1, 2, 3]), None)
    assert begun.wait(30)

    process.close()
    process.close()

    gc.collect()
    assert sorted(ended) == [1, 2]
    assert caplog.records == []
    assert set(threading.enumerate()) <= set(before)


@pytest.mark.filterwarnings("error")
def test_a_task_that_ignores_its_cancellation_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    begun = threading.Event()

    async def call(value: int) -> int:
        while True:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    process = AsyncProcess(operator_of(call), make_loop=VirtualTimeLoop)
    process(Batch(type_info(int), rows=[1]), None)
    assert begun.wait(30)

    process.close()

    del process
    gc.collect()
    assert caplog.records == []


def test_a_call_that_blocks_the_loop_does_not_block_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.runtime.slot.event_loop_thread._BEGIN_SECONDS", 0.01)
    gate, begun = threading.Event(), threading.Event()

    async def block(value: int) -> int:
        begun.set()
        gate.wait(60)
        return value

    process = AsyncProcess(operator_of(block))
    process(Batch(type_info(int), rows=[1]), None)
    assert begun.wait(30)

    where = process.where_it_waits()
    process.close()
    gate.set()
    process._thread._thread.join(30)

    assert "user code blocks the event loop; the oldest is for 1" in where
    assert "gate.wait(60)" in where
    assert not process._thread._thread.is_alive()


def test_an_interrupt_ends_the_wait_of_the_slot() -> None:
    begun = threading.Event()

    async def call(value: int) -> int:
        begun.set()
        return await forever(value)

    process = AsyncProcess(operator_of(call))
    process(Batch(type_info(int), rows=[1]), None)

    def kill() -> None:
        begun.wait(30)
        process.interrupt()

    threading.Thread(target=kill).start()
    with pytest.raises(SlotLostError, match="interrupted"):
        process.flush()
    process.close()

    assert not process._thread._thread.is_alive()


def test_the_oldest_call_in_flight_and_its_place_are_described() -> None:
    begun = threading.Event()

    async def call(value: int) -> int:
        if value == 2:
            begun.set()
        return await forever(value)

    process = AsyncProcess(operator_of(call))
    assert process.where_it_waits() == ""
    process(Batch(type_info(int), rows=[1, 2]), None)
    assert begun.wait(30)

    process._thread.call(asyncio.sleep, 0)  # the loop is idle now
    where = process.where_it_waits()
    process.close()

    assert where.startswith("  2 asynchronous calls in flight; the oldest is for 1\n")
    assert "in call\n    return await forever(value)" in where
    assert "in forever\n    await asyncio.Event().wait()" in where


def test_what_is_posted_after_the_end_is_ignored() -> None:
    thread = EventLoopThread("it", asyncio.new_event_loop, lambda _: None)

    async def nothing() -> None: ...

    last: Callable[[], Awaitable[None]] = nothing
    thread.end(last)
    thread.join()

    thread.post(print)
