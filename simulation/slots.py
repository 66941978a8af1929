"""Slots and engine of a simulated job: the real slot code, whose writers run when the scheduler picks them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
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
from checkdam.testing.local_slot import DriverLife, LocalSlot
from checkdam.testing.mounts import watched_by
from checkdam.testing.trouble import Life
from simulation.scheduler import CooperativeLock, Scheduler, Work

T = TypeVar("T")


class _SlotLife(Life):
    """The life of a slot, which pauses at each of its storage operations."""

    def __init__(self, subtask: SubtaskIndex, scheduler: Scheduler) -> None:
        super().__init__(f"slot {subtask}")
        self._scheduler = scheduler

    def before(self, operation: str, path: str) -> None:
        self.check()
        self._scheduler.pause()
        self.check()

    def after(self, operation: str, path: str) -> None:
        self.before(operation, path)


class _DriverLife(DriverLife):
    """The life of a driver, which pauses at each of its storage operations."""

    def __init__(self, engine: LocalEngine, scheduler: Scheduler) -> None:
        super().__init__(engine)
        self._scheduler = scheduler

    def before(self, operation: str, path: str) -> None:
        self.check()
        self._scheduler.pause()
        self.check()

    def after(self, operation: str, path: str) -> None:
        self.before(operation, path)


class _LaterResult(Future[Any]):
    """A result that other work lets come first while it is awaited."""

    def __init__(self, slot: SimulatedSlot) -> None:
        super().__init__()
        self._slot = slot

    def result(self, timeout: float | None = None) -> Any:
        self._slot.wait_for(self.done)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._slot.wait_for(self.done)
        return super().exception(0)


class SimulatedExecutor(Executor):
    """One thread of a slot: its tasks run one after another, each when the scheduler picks it."""

    def __init__(self, slot: SimulatedSlot, name: str) -> None:
        self._slot = slot
        self._name = f"slot {slot.subtask}: {name}"
        self.tasks: deque[Work] = deque()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done = _LaterResult(self._slot)

        def do() -> None:
            try:
                result = fn(*args, **kwargs)
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
        self._slot.wait_for(lambda: not self.tasks)


class SimulatedSlot(LocalSlot):
    """A slot that the scheduler can also disconnect: it keeps working, but its reports are lost."""

    def __init__(self, engine: SimulatedEngine, subtask: SubtaskIndex) -> None:
        super().__init__(engine, subtask)
        self._scheduler = engine.scheduler
        self._life: Any = _SlotLife(subtask, engine.scheduler)
        self._lock: Any = CooperativeLock(engine.scheduler)
        self.executors: list[SimulatedExecutor] = []
        self.is_cut_off = False

    def configure(self, setup: SlotSetup) -> None:
        self._life.check()
        with watched_by(self._life):
            copy = cloudpickle.loads(cloudpickle.dumps(setup))
            self._task = SlotTask(copy, clock=self._engine.clock, executors=self._executor)
        self._life.check()

    def _executor(self, name: str) -> Executor:
        executor = SimulatedExecutor(self, name)
        self.executors.append(executor)
        return executor

    def works(self) -> list[Work]:
        """Return the next work of its threads. A killed slot has none."""
        return [] if self._life.is_dead else [each.tasks[0] for each in self.executors if each.tasks]

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Let other work come first until the condition holds; raise if the slot is killed meanwhile."""
        self._scheduler.wait_for(lambda: self._life.is_dead or is_ready())
        self._life.check()

    def snapshot(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        written = self._alive()._snapshots._written.get(checkpoint_id)
        if written is not None:
            self.wait_for(lambda: self.is_cut_off or written.is_settled.is_set())
        return super().snapshot(checkpoint_id)

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        self._scheduler.wait_for(lambda: self.is_cut_off or self._ended.is_set())
        if self.is_cut_off:
            raise SlotLostError(f"slot {self.subtask} is silent")
        self._life.check()

    def _alive(self) -> SlotTask:
        if self.is_cut_off:
            raise SlotLostError(f"slot {self.subtask} does not answer")
        return super()._alive()


class SimulatedEngine(LocalEngine):
    """Returns the work of each epoch instead of doing it."""

    scheduler: Scheduler

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.driver = _DriverLife(self, self.scheduler)

    def start_slots(self, attempt: Attempt, count: int) -> Sequence[LocalSlot]:
        self.make_slot = SimulatedSlot  # type: ignore[assignment]  # it is called with this engine
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

        def capture(execute: Callable[[Epoch], None]) -> Future[None]:
            captured.append(execute)
            ended: Future[None] = Future()
            ended.set_result(None)
            return ended

        run(capture)
        return captured[0] if captured else None
