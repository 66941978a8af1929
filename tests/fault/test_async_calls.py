"""Asynchronous calls and checkpoints: none is in flight at a barrier, and a crash loses and repeats no result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from checkdam import AsyncFunction, DataStream, KeyedStream, RuntimeContext, SlotLostError, StreamExecutionEnvironment
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import UserFunctionError
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.restart import NoRestart
from checkdam.testing import (
    EVERY_EPOCH,
    DriverKilled,
    LocalJob,
    MemoryStorage,
    OutputDirectory,
    Step,
    Trouble,
    kill_driver,
    kill_slot,
)

FAST = Heartbeat(timedelta(milliseconds=20), timedelta(seconds=10))
EPOCHS = [[3, 1, 2], [6, 4, 5, 0], [7, 9, 8]]


class Service:
    """What the calls reach, shared by all slots of this process."""

    calls: list[int]
    is_held: bool
    reached, answer = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def _service() -> Iterator[None]:
    Service.calls = []
    Service.is_held = False
    Service.reached.clear()
    Service.answer.clear()
    yield
    Service.answer.set()


class Enrich(AsyncFunction[int, int]):
    async def open(self, ctx: RuntimeContext) -> None:
        self.connections = asyncio.Semaphore(2)  # belongs to the loop, like a client

    async def async_invoke(self, value: int) -> int:
        Service.calls.append(value)
        async with self.connections:
            for _ in range(10 - value):
                await asyncio.sleep(0)
            if Service.is_held:
                Service.reached.set()
                await asyncio.to_thread(Service.answer.wait, 60)
        return value * 10


def enriched(environment: StreamExecutionEnvironment, numbers: DataStream[int], output: OutputDirectory) -> None:
    numbers.map_async(Enrich(), capacity=2).uid("enrich").sink_to_files(output.uri).uid("out")


def a_job(output: OutputDirectory, storage: MemoryStorage, *troubles: Trouble, **options: Any) -> LocalJob:
    return LocalJob(lambda env, numbers: enriched(env, numbers, output), EPOCHS, storage, troubles=troubles, **options)


STEPS = [
    *(
        Step.BEFORE_LEVEL,
        Step.AFTER_LEVEL,
        Step.EPOCH_DONE,
        Step.EPOCH_ENDED,
        Step.BEFORE_SNAPSHOT,
        Step.BEFORE_WRITING,
    ),
    *(Step.SNAPSHOT_TAKEN, Step.METADATA_WRITTEN, Step.COMMITTED),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("death", ["slot", "driver"])
def test_after_a_death_each_result_is_there_exactly_once(step: Step, number: int, death: str) -> None:
    output, storage = OutputDirectory(), MemoryStorage()
    trouble = Trouble(step, kill_slot(0) if death == "slot" else kill_driver, number=number)

    try:
        a_job(output, storage, trouble).run()
    except DriverKilled:
        a_job(output, storage).run()

    assert trouble.happened.is_set()
    assert sorted(output.rows()) == [value * 10 for value in range(10)]


def test_a_death_in_the_middle_of_calls_repeats_them_and_not_their_results() -> None:
    output, storage = OutputDirectory(), MemoryStorage()
    Service.is_held = True
    job = a_job(output, storage)
    job.start()
    assert Service.reached.wait(30)

    assert job._target.engine is not None
    Service.is_held = False
    job._target.engine.slots[0].kill()  # its calls in flight never get an answer
    Service.answer.set()
    heard = job.join()

    assert [str(failure) for failure in heard.restarts] == ["slot 0 was killed"]
    assert len(Service.calls) > 10
    assert sorted(output.rows()) == [value * 10 for value in range(10)]


def test_a_checkpoint_waits_for_the_calls_in_flight_and_holds_none_of_them() -> None:
    output, storage = OutputDirectory(), MemoryStorage()
    Service.is_held = True
    job = a_job(output, storage)
    control = job.start()
    assert Service.reached.wait(30)

    asked = control.trigger_checkpoint()
    assert job.heard.triggered == []  # the epoch has not ended
    assert not asked.done()
    Service.answer.set()
    job.join()

    assert asked.done()
    assert job.heard.end is JobEnd.FINISHED
    stateful = [entry.uid for entry in job.checkpoint().operators]
    assert "enrich" not in stateful
    assert sorted(output.rows()) == [value * 10 for value in range(10)]


AnyStream = DataStream[int] | KeyedStream[int, int]


def never(environment: StreamExecutionEnvironment, numbers: AnyStream, **options: Any) -> None:
    async def call(value: int) -> int:
        Service.reached.set()
        await asyncio.Event().wait()
        return value

    numbers.map_async(call, **options).name("never").print()


def never_by_key(environment: StreamExecutionEnvironment, numbers: DataStream[int], **options: Any) -> None:
    never(environment, numbers.key_by(lambda number: number % 2, key_type=int), **options)


KEYED_OR_NOT = pytest.mark.parametrize("build", [never, never_by_key])


def test_a_cancelled_job_does_not_wait_for_calls_that_never_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.runtime.driver.attempt._BREAK_OFF_SECONDS", 0.1)  # only Spark ends a task sooner
    job = LocalJob(never, [[1]], MemoryStorage())
    job.start()
    assert Service.reached.wait(30)

    job.cancel()

    assert job.join().end is JobEnd.CANCELLED
    assert not [thread for thread in threading.enumerate() if thread.name == "async-never" and thread.is_alive()]


@KEYED_OR_NOT
def test_a_call_that_never_returns_fails_the_job_with_its_timeout_and_record(build: Any) -> None:
    impatient = partial(build, timeout=timedelta(milliseconds=20))
    job = LocalJob(impatient, [[41]], MemoryStorage(), restart=NoRestart())

    with pytest.raises(UserFunctionError) as late:
        job.run()

    assert (late.value.operator, late.value.record) == ("never", "41")
    assert late.value.cause == "TimeoutError: no result within the timeout of 0.02 s"
    assert "await asyncio.Event().wait()" in late.value.user_traceback


@KEYED_OR_NOT
def test_without_a_timeout_the_hang_watch_names_the_record_of_a_call_that_never_returns(build: Any) -> None:
    impatient = replace(EVERY_EPOCH, timeout=timedelta(milliseconds=200), tolerable_failures=100)
    job = LocalJob(build, [[41]], MemoryStorage(), checkpoints=impatient, heartbeat=FAST, restart=NoRestart())

    with pytest.raises(SlotLostError) as hang:
        job.run()

    assert 'operator "never" in level 1 of epoch 1 has stood still for' in str(hang.value)
    assert "1 asynchronous call in flight; the oldest is for 41" in str(hang.value)
    assert "await asyncio.Event().wait()" in str(hang.value)


def test_calls_that_take_turns_for_longer_than_the_patience_do_not_hang() -> None:
    """Many slow calls in one epoch: the slot waits, and each settled call is progress."""

    async def slow(value: int) -> int:
        await asyncio.sleep(0.05)
        return value

    def build(environment: StreamExecutionEnvironment, numbers: DataStream[int]) -> None:
        numbers.map_async(slow, capacity=1).print()

    impatient = replace(EVERY_EPOCH, timeout=timedelta(milliseconds=500), tolerable_failures=100)
    job = LocalJob(
        build, [list(range(40))], MemoryStorage(), checkpoints=impatient, heartbeat=FAST, restart=NoRestart()
    )

    assert job.run().end is JobEnd.FINISHED


def test_a_failed_call_fails_the_job_with_its_record() -> None:
    async def call(value: int) -> int:
        return 1 // value

    def build(environment: StreamExecutionEnvironment, numbers: DataStream[int]) -> None:
        numbers.map_async(call).name("invert").print()

    with pytest.raises(UserFunctionError, match="on record 0: ZeroDivisionError"):
        LocalJob(build, EPOCHS, MemoryStorage(), restart=NoRestart()).run()
    assert not [thread for thread in threading.enumerate() if thread.name == "async-invert" and thread.is_alive()]
