"""Slots and engine of a simulated job: the real slot code, whose writers run when the scheduler picks them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import cloudpickle

from checkdam.errors import SlotLostError
from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.engine import RunEpoch
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.slot.task import SlotTask
from checkdam.state.snapshot_handles import SlotSnapshot
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_slot import LocalSlot
from checkdam.testing.mounts import watched_by
from simulation.scheduler import NotYetError, Scheduler, Work

T = TypeVar("T")


class _LaterResult(Future[Any]):
    """A result that is awaited by retrying."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            raise NotYetError
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            raise NotYetError
        return super().exception(0)


class SimulatedExecutor(Executor):
    """One thread of a slot: its tasks run one after another, each when the scheduler picks it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.tasks: deque[Work] = deque()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done = _LaterResult()

        def do() -> None:
            try:
                result = fn(*args, **kwargs)
            except NotYetError:
                raise
            except BaseException as failure:  # noqa: BLE001  the outcome of the task
                self.tasks.remove(task)
                done.set_exception(failure)
            else:
                self.tasks.remove(task)
                done.set_result(result)

        task = Work(self._name, do)
        self.tasks.append(task)
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as Executor
        while self.tasks:
            self.tasks[0].do()


class SimulatedSlot(LocalSlot):
    """A slot that the scheduler can also disconnect: it keeps working, but its reports are lost."""

    def __init__(self, engine: LocalEngine, subtask: SubtaskIndex) -> None:
        super().__init__(engine, subtask)
        self.executors: list[SimulatedExecutor] = []
        self.is_cut_off = False

    def configure(self, setup: SlotSetup) -> None:
        self._life.check()
        with watched_by(self._life):
            copy = cloudpickle.loads(cloudpickle.dumps(setup))
            self._task = SlotTask(copy, clock=self._engine.clock, executors=self._executor)
        self._life.check()

    def _executor(self, name: str) -> Executor:
        executor = SimulatedExecutor(f"slot {self.subtask}: {name}")
        self.executors.append(executor)
        return executor

    def works(self) -> Iterator[Work]:
        """Yield the next work of its threads. A killed slot has none."""
        if not self._life.is_dead:
            for executor in self.executors:
                yield from list(executor.tasks)[:1]

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        task = self._alive()
        written = task._snapshots._written.get(checkpoint_id)
        if written is not None and not written.is_settled.is_set():
            raise NotYetError
        return super().snapshot(checkpoint_id)

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        if self.is_cut_off:
            raise SlotLostError(f"slot {self.subtask} is silent")
        if not self._ended.is_set():
            raise NotYetError
        self._life.check()

    def _alive(self) -> SlotTask:
        if self.is_cut_off:
            raise SlotLostError(f"slot {self.subtask} does not answer")
        return super()._alive()


class SimulatedEngine(LocalEngine):
    """Returns the work of each epoch instead of doing it."""

    scheduler: Scheduler

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[LocalSlot]:
        self.make_slot = SimulatedSlot
        started = super().start_slots(attempt, count)
        self.scheduler.outside[:] = [slot.works for slot in self.slots if isinstance(slot, SimulatedSlot)]
        return started

    def static_epoch(self) -> Callable[[Epoch], None] | None:
        return self._captured(lambda capture: self.run_static(self.slots, capture))

    def next_epoch(self) -> Callable[[Epoch], None] | None:
        self.driver.check()
        return None if self.is_stopped else self._captured(self.run_next)

    def extra_epoch(self) -> Callable[[Epoch], None] | None:
        return self._captured(lambda capture: self.run_extra(self.slots, capture))

    def _captured(self, run: Callable[[RunEpoch], object]) -> Callable[[Epoch], None] | None:
        captured: list[Callable[[Epoch], None]] = []
        run(captured.append)
        return captured[0] if captured else None
