"""Checkpoints while no records come, and the timeout that runs from the trigger to the metadata."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.waiting import poll

from checkdam import (
    CheckpointedFunction,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    RocksDBStateBackend,
    SinkFunction,
    StreamExecutionEnvironment,
)
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.errors import JobFailedError
from checkdam.runtime.driver.attempt import AttemptRun
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.restart import NoRestart
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing import ManualClock
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import JOB_ID, Build, Heard, LocalJob
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, kill_driver, wait_for

SECOND = timedelta(seconds=1)
PERIODIC = CheckpointConfig(
    interval=10 * SECOND, timeout=3 * SECOND, retention=CheckpointRetention.RETAIN_ON_CANCELLATION
)


class Remembers(SinkFunction, CheckpointedFunction):
    """Keeps operator state that is too large to ride along in a handle."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def invoke(self, value: Any, ctx: Any) -> None:
        self.seen.append(str(value) * 100_000)

    def initialize_state(self, ctx: Any) -> None:
        self.state = ctx.operator_state_store.get_list_state(ListStateDescriptor("seen", str))
        self.seen.extend(self.state.get())

    def snapshot_state(self, ctx: Any) -> None:
        self.state.update(self.seen)


def _building(backend: KeyedStateBackend) -> Callable[[StreamExecutionEnvironment, DataStream[Any]], None]:
    def build(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        counts = words.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
        counts.uid("count").print()
        words.add_sink(Remembers()).uid("remembers")

    return build


class Idle:
    """A job whose input goes on without records, on a clock that the test moves."""

    def __init__(
        self,
        epochs: list[list[str]],
        storage: MemoryStorage,
        backend: KeyedStateBackend | None = None,
        *,
        build: Build | None = None,
        **options: Any,
    ) -> None:
        self.clock, self.gate, self.storage = ManualClock(), Gate(), storage
        options = {"checkpoints": PERIODIC, "restart": NoRestart(), **options}
        self.job = LocalJob(
            build or _building(backend or HashMapStateBackend()),
            epochs,
            storage,
            record_type=str,
            clock=self.clock,
            until=self.gate,
            **options,
        )

    @property
    def completed(self) -> list[int]:
        return [stats.checkpoint_id for stats in self.job.heard.completed]

    def let_time_pass(self, checkpoints: int) -> None:
        for _ in range(checkpoints):
            before = len(self.completed)
            self.clock.advance(10)
            self.job.heard.wait_until(lambda: len(self.completed) > before)  # noqa: B023

    @property
    def attempt(self) -> AttemptRun:
        assert self.job._master is not None
        assert self.job._master._running is not None
        return self.job._master._running

    def let_one_become_due(self) -> None:
        """Its barrier waits, if the test keeps it from being sent."""
        self.clock.advance(10)
        poll(lambda: self.attempt.coordinator._triggered is not None)

    def files(self) -> list[str]:
        return [status.path for status in self.storage.list(f"{JOB_ID}/shared")]


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return HashMapStateBackend() if request.param == "hashmap" else RocksDBStateBackend()


def test_an_idle_job_takes_checkpoints_that_write_no_state_and_goes_on_from_them(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    idle = Idle([["a", "b"], ["a"]], storage, backend)
    idle.job.start()
    idle.job.heard.wait_for_epoch(2)
    idle.let_time_pass(checkpoints=2)  # RocksDB may still merge behind the first
    files = idle.files()

    idle.let_time_pass(checkpoints=3)

    assert idle.completed == [1, 2, 3, 4, 5]
    assert [stats.epoch for stats in idle.job.heard.completed] == [2] * 5
    assert max(stats.new_bytes for stats in idle.job.heard.completed[2:]) < 100  # an empty list rides in a handle
    assert idle.files() == files
    idle.job.heard.wait_until(lambda: idle.job.heard.discarded == [1, 2, 3, 4])  # they count, as in Flink
    idle.job.cancel()
    idle.job.join()
    resumed = Idle([["a", "b"], ["a"], ["a", "c"]], storage, backend)
    resumed.gate.open()
    shown = [line.partition("> ")[2] for line in resumed.job.run().printed_lines]
    assert sorted(shown) == ["('a', 3)", "('c', 1)"]
    assert resumed.job.heard.restored_from == [(f"{resumed.job.uri}/chk-5", 2)]


def test_a_job_that_never_had_a_record_takes_them_too_and_begins_at_the_beginning() -> None:
    storage = MemoryStorage()
    idle = Idle([], storage)
    idle.job.start()

    idle.let_time_pass(checkpoints=2)

    assert [(stats.checkpoint_id, stats.epoch) for stats in idle.job.heard.completed] == [(1, 0), (2, 0)]
    idle.job.cancel()
    idle.job.join()
    resumed = Idle([["a"], ["a"]], storage)
    resumed.gate.open()
    assert [line.partition("> ")[2] for line in resumed.job.run().printed_lines] == ["('a', 1)", "('a', 2)"]
    assert resumed.job.heard.restored_from == [(f"{resumed.job.uri}/chk-2", 0)]


def test_a_restored_job_without_new_records_takes_them_too() -> None:
    storage = MemoryStorage()
    first = Idle([["a"]], storage)
    first.job.start()
    first.job.heard.wait_for_epoch(1)
    first.let_time_pass(checkpoints=1)
    first.job.cancel()
    first.job.join()

    second = Idle([["a"]], storage)
    second.job.start()
    second.let_time_pass(checkpoints=2)

    assert second.completed == [2, 3]
    assert second.job.heard.epochs == []
    second.gate.open()
    second.job.join()


def test_a_driver_that_is_killed_while_it_idles_loses_nothing() -> None:
    storage = MemoryStorage()
    idle = Idle([["a"]], storage, troubles=[Trouble(Step.BEFORE_METADATA, kill_driver, number=3)])
    idle.job.start()
    idle.job.heard.wait_for_epoch(1)
    idle.let_time_pass(checkpoints=2)
    idle.clock.advance(10)
    with pytest.raises(DriverKilled):
        idle.job.join()

    resumed = Idle([["a"], ["a"]], storage)
    resumed.gate.open()

    assert [line.partition("> ")[2] for line in resumed.job.run().printed_lines] == ["('a', 2)"]
    assert resumed.job.heard.restored_from == [(f"{resumed.job.uri}/chk-2", 1)]


# Too late


def _late(idle: Callable[[], Idle], by: float = 3.0) -> Callable[[LocalEngine, Moment], None]:
    return lambda engine, moment: idle().clock.advance(by)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Step.BEFORE_SNAPSHOT, "timed out after 0:00:03; "),
        (Step.WRITING, "timed out after 0:00:03; "),
        (Step.BEFORE_METADATA, "timed out after 0:00:03; its metadata was not written in time"),
        (Step.METADATA_WRITTEN, "timed out after 0:00:03; its metadata was not written in time"),
    ],
)
def test_the_timeout_runs_until_the_metadata_is_written(step: Step, reason: str) -> None:
    storage = MemoryStorage()
    idle: Idle
    tolerant = CheckpointConfig(interval=10 * SECOND, timeout=3 * SECOND, tolerable_failures=1)
    idle = Idle([["a"]], storage, checkpoints=tolerant, parallelism=1, troubles=[Trouble(step, _late(lambda: idle))])
    idle.job.start()
    idle.job.heard.wait_for_epoch(1)

    idle.clock.advance(10)
    idle.job.heard.wait_until(lambda: idle.job.heard.failed_checkpoints)
    idle.let_time_pass(checkpoints=1)

    [(failed, why)] = idle.job.heard.failed_checkpoints
    assert (failed, idle.completed) == (1, [2])
    assert why.startswith(reason)
    assert not storage.list(f"{JOB_ID}/chk-1")
    idle.gate.open()
    idle.job.join()


@pytest.mark.parametrize("tolerated", [0, 1])
def test_a_barrier_waits_for_the_epoch_no_longer_than_the_timeout(tolerated: int) -> None:
    idle: Idle

    def take_long(engine: LocalEngine, moment: Moment) -> None:
        idle.let_one_become_due()
        idle.clock.advance(3)
        idle.job.heard.wait_until(lambda: idle.job.heard.failed_checkpoints)

    checkpoints = CheckpointConfig(interval=10 * SECOND, timeout=3 * SECOND, tolerable_failures=tolerated)
    troubles = [Trouble(Step.AFTER_LEVEL, take_long, number=2)]
    idle = Idle([["a"], ["a"]], MemoryStorage(), checkpoints=checkpoints, parallelism=1, troubles=troubles)
    idle.gate.open()

    if tolerated:
        idle.job.run()
    else:
        with pytest.raises(JobFailedError, match="failed in a row: 1, tolerated: 0"):
            idle.job.run()

    reason = "timed out after 0:00:03; epoch 2 has not ended, and the barrier is behind it"
    assert idle.job.heard.failed_checkpoints[0] == (1, reason)
    assert idle.job.heard.triggered[0].checkpoint_id == 1


def test_a_barrier_that_waits_too_long_is_noticed_while_the_epoch_goes_on() -> None:
    """By the clock of the machine: nothing but the wait itself wakes the thread that looks at timeouts."""
    milliseconds = timedelta(milliseconds=50)
    checkpoints = CheckpointConfig(interval=milliseconds, timeout=milliseconds, tolerable_failures=1000)
    job = LocalJob(
        _building(HashMapStateBackend()),
        [["a"]],
        MemoryStorage(),
        checkpoints=checkpoints,
        troubles=[
            Trouble(Step.AFTER_LEVEL, lambda engine, moment: job.heard.wait_until(lambda: job.heard.failed_checkpoints))
        ],
    )

    job.run()

    assert job.heard.failed_checkpoints[0][1].endswith("epoch 1 has not ended, and the barrier is behind it")


class Alarm(KeyedProcessFunction):
    """Lets the clock bring an epoch a second after each record."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> None: ...


def test_a_barrier_waits_no_longer_for_an_epoch_that_the_clock_has_brought() -> None:
    def build(env: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        words.key_by(lambda word: word, key_type=str).process(Alarm(), output_type=str).uid("alarm").print()

    def take_long(engine: LocalEngine, moment: Moment) -> None:
        idle.let_one_become_due()
        idle.clock.advance(3)
        idle.job.heard.wait_until(lambda: idle.job.heard.failed_checkpoints)

    troubles = [Trouble(Step.AFTER_LEVEL, take_long, number=2)]
    idle = Idle([["a"]], MemoryStorage(), build=build, parallelism=1, troubles=troubles)
    idle.job.start()
    idle.job.heard.wait_for_epoch(1)
    idle.clock.advance(1)

    with pytest.raises(JobFailedError, match="epoch 2 has not ended, and the barrier is behind it"):
        idle.job.join()


class Paused(Heard):
    """Prints to a terminal that somebody has paused."""

    def __init__(self, event: str) -> None:
        super().__init__()
        self.begun, self.over = threading.Event(), threading.Event()
        self._tell = getattr(self, event)
        setattr(self, event, self._show)

    def _show(self, what: Any) -> None:
        self._tell(what)
        self.begun.set()
        assert self.over.wait(60)


def test_the_time_in_which_a_terminal_was_paused_does_not_make_a_barrier_late() -> None:
    troubles = [Trouble(Step.AFTER_LEVEL, lambda engine, moment: idle.let_one_become_due(), number=1)]
    idle = Idle([["a"]], MemoryStorage(), parallelism=1, troubles=troubles)
    idle.job.heard = paused = Paused("printed")
    idle.job.start()
    assert paused.begun.wait(60)

    idle.clock.advance(100)
    poll(lambda: idle.attempt.coordinator._triggered == idle.clock.monotonic())
    paused.over.set()
    paused.wait_until(lambda: idle.completed or paused.failed_checkpoints)

    assert (idle.completed, paused.failed_checkpoints) == ([1], [])
    idle.gate.open()
    idle.job.join()


def test_a_paused_terminal_holds_up_no_checkpoint() -> None:
    two_at_once = CheckpointConfig(interval=10 * SECOND, timeout=3 * SECOND, max_concurrent=2)
    idle = Idle([["a"]], MemoryStorage(), checkpoints=two_at_once, parallelism=1)
    idle.job.heard = paused = Paused("checkpoint_completed")
    idle.job.start()
    paused.wait_for_epoch(1)
    idle.clock.advance(10)
    assert paused.begun.wait(60)

    idle.clock.advance(10)
    poll(lambda: [each.checkpoint_id for each in idle.attempt.coordinator.retained] == [2])
    idle.clock.advance(3)
    paused.over.set()
    paused.wait_until(lambda: len(idle.completed) == 2 or paused.failed_checkpoints)

    assert (idle.completed, paused.failed_checkpoints) == ([1, 2], [])
    idle.gate.open()
    idle.job.join()


def test_the_time_that_a_failed_stop_took_does_not_make_a_barrier_late() -> None:
    is_over, place = threading.Event(), SavepointPlace()
    stopping: list[Future[str]] = []

    def stop(engine: Any, moment: Moment) -> None:
        idle.let_one_become_due()
        stopping.append(control.stop_with_savepoint(place.uri, SavepointFormat.CANONICAL, drain=False))

    troubles = [
        Trouble(Step.BEFORE_SNAPSHOT, stop, number=1),
        Trouble(Step.WRITING_SAVEPOINT, wait_for(is_over), number=2),
    ]
    idle = Idle([["a"]], MemoryStorage(), parallelism=1, troubles=troubles)
    control = idle.job.start()
    idle.job.heard.wait_for_epoch(1)
    control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL)
    poll(lambda: idle.attempt.coordinator.savepoint_in_progress == 2)

    idle.clock.advance(3)  # as long as a savepoint may take

    assert "timed out" in str(stopping[0].exception(60))
    is_over.set()
    idle.job.heard.wait_until(lambda: idle.completed)
    assert [number for number, _ in idle.job.heard.failed_checkpoints] == [1, 2]  # the savepoints
    idle.gate.open()
    idle.job.join()
