"""The machinery of a simulated attempt: work runs only when the scheduler picks it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from checkdam.ids import Epoch
from checkdam.runtime.driver.attempt import Machinery
from checkdam.runtime.driver.epoch_input import EXTRA, INPUT, EpochListener, Then
from checkdam.runtime.driver.event_loop import Event, EventLoop, Lane
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.stalls import Stall
from checkdam.testing.manual_clock import ManualClock

T = TypeVar("T")

_MOST_STEPS = 20_000
_EXECUTE = Lane("executing an epoch")


class NotYetError(BaseException):
    """Raised by work that waits for something that has not happened; the scheduler retries it later."""


class HangError(Exception):
    """No work can continue, or there are too many steps, and the job has not ended."""


@dataclass
class Work:
    """Work that another thread or process would do at some time."""

    name: str
    do: Callable[[], None]
    blocked_at: int = -1  # the step at which it was blocked; it is retried only after another step
    frozen_until: float = 0.0  # on the virtual clock: a slow writer


@dataclass
class Plan:
    """The faults and requests of a seed, by step number."""

    deeds: dict[int, Callable[[], None]] = field(default_factory=dict)


class Scheduler:
    """Chooses the next work by a seed. It outlives the attempts and drivers of one run."""

    def __init__(self, rng: random.Random, clock: ManualClock) -> None:
        self.rng = rng
        self.clock = clock
        self.steps = 0
        self.plan = Plan()
        self.trace: list[str] = []
        self.outside: list[Callable[[], Iterator[Work]]] = []  # the slots' work, collected at each step
        self.freeze_next = 0.0  # seconds for which the next picked work is frozen

    def note(self, what: str) -> None:
        self.trace.append(f"{self.steps:5} {self.clock.monotonic():8.3f}  {what}")

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise HangError(f"the job has not ended after {_MOST_STEPS} steps")
        deed = self.plan.deeds.pop(self.steps, None)
        if deed is not None:
            deed()

    def pick(self, works: Sequence[Work]) -> Work | None:
        now = self.clock.monotonic()
        free = [work for work in works if work.blocked_at != self.steps - 1 and work.frozen_until <= now]
        free = free or [work for work in works if work.blocked_at < 0 and work.frozen_until <= now]
        return self.rng.choice(free) if free else None


class SimulatedLoop(EventLoop):
    """An event loop whose lanes are lists of work, and whose time is virtual."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._queues: dict[Lane, deque[Work]] = {}
        self._posted: deque[Event] = deque()

    def post(self, event: Event) -> bool:
        if not self._is_closed:
            self._posted.append(event)
        return not self._is_closed

    def start(
        self,
        lane: Lane,
        work: Callable[[], T],
        then: Callable[[Future[T]], object],
        if_closed: Callable[[Future[T]], object] = lambda done: None,
    ) -> bool:
        if self._is_closed:
            return False
        self._under_way[lane] += 1
        queue = self._queues.setdefault(lane, deque())

        def do() -> None:
            done: Future[T] = Future()
            try:
                done.set_result(work())
            except NotYetError:
                raise
            except BaseException as failure:  # noqa: BLE001  any exception is the outcome of the work
                done.set_exception(failure)
            queue.remove(started)
            if not self.post(lambda: self._end(lane, then, done)):
                if_closed(done)

        started = Work(lane.name, do)
        queue.append(started)
        return True

    def within(
        self,
        seconds: float,
        what: str,
        work: Callable[[], T],
        if_late: Callable[[Future[T]], object] = lambda done: None,
    ) -> T:
        return work()

    def stall(self, *lanes: Lane) -> Stall | None:
        return None

    def _is_quiet(self, *lanes: Lane) -> bool:
        return not self._posted and self.is_idle(*lanes)

    def close(self, *lanes: Lane) -> None:
        super().close(*lanes)
        left = [work.name for queue in self._queues.values() for work in queue]
        if left:
            self._scheduler.note(f"left under way: {left}")

    def _now(self) -> float:
        return self._scheduler.clock.monotonic()

    def _eligible(self) -> list[Work]:
        found: list[Work] = []
        for lane, queue in self._queues.items():
            found += list(queue) if lane.threads > 1 else list(queue)[:1]
        for works in self._scheduler.outside:
            found += works()
        return found

    def _next(self, wait: float | None, end: float | None) -> Event | None:
        scheduler = self._scheduler
        scheduler.step()
        works = self._eligible()
        moments = self._moments(works, wait, end)
        if self._posted and (not works or scheduler.rng.random() < 0.5):
            scheduler.note("event")
            return self._posted.popleft()
        if moments and works and scheduler.rng.random() < 0.03:
            return self._let_time_pass(min(moments))
        work = scheduler.pick(works)
        if work is not None:
            self._do(work)
            return None
        if self._posted:
            scheduler.note("event")
            return self._posted.popleft()
        if moments:
            return self._let_time_pass(min(moments))
        raise HangError(f"nothing can happen any more; under way: {[each.name for each in works]}")

    def _moments(self, works: Sequence[Work], wait: float | None, end: float | None) -> list[float]:
        now = self._now()
        moments = [self._timers[0][0]] if self._timers else []
        moments += [] if wait is None else [now + max(wait, 0.001)]
        moments += [] if end is None else [end]
        return moments + [work.frozen_until for work in works if work.frozen_until > now]

    def _let_time_pass(self, until: float) -> Event | None:
        seconds = max(0.0, until - self._now())
        self._scheduler.note(f"{seconds:.3f} s pass")
        self._scheduler.clock.advance(seconds)
        return self._due_timer()

    def _do(self, work: Work) -> None:
        scheduler = self._scheduler
        if scheduler.freeze_next:
            work.frozen_until, scheduler.freeze_next = self._now() + scheduler.freeze_next, 0.0
            scheduler.note(f"{work.name} is slow")
            return
        try:
            work.do()
        except NotYetError:
            work.blocked_at = scheduler.steps
        else:
            scheduler.note(work.name)
            for other in self._eligible():
                other.blocked_at = -1


class SimulatedGroup(SlotGroup):
    """Calls the slots one after another, in the calling thread."""

    def __init__(self, size: int) -> None:
        self.slots = ()

    def call(self, call: Callable[[Slot], T]) -> list[T]:
        answers: list[T] = []
        errors: list[BaseException] = []
        for slot in self.slots:
            try:
                answers.append(call(slot))
            except Exception as error:  # noqa: BLE001  the first one is raised after all slots have answered
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def close_soon(self) -> None:
        for slot in self.slots:
            try:
                slot.close()
            except Exception:  # noqa: BLE001  a lost slot is not waited for
                continue

    def kill(self) -> None:
        for slot in self.slots:
            slot.kill()

    def dispose(self) -> None:
        """Do nothing: no work runs outside the scheduler."""


class SimulatedInput:
    """Offers the epochs of a simulated engine, each when the scheduler picks it."""

    def __init__(self, engine: Engine, loop: EventLoop, hangs: HangWatch, listener: EpochListener) -> None:
        self._engine: Any = engine  # a SimulatedEngine
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self.listener = listener

    def run_static(self, slots: Sequence[Slot], then: Then) -> None:
        self._run(INPUT, slots, then, self._engine.static_epoch, is_repeated=False)

    def run(self, slots: Sequence[Slot], then: Then) -> None:
        self._run(INPUT, slots, then, self._engine.next_epoch, is_repeated=True)

    def run_extra(self, slots: Sequence[Slot], then: Then) -> None:
        self._run(EXTRA, slots, then, self._engine.extra_epoch, is_repeated=False)

    def _run(
        self,
        lane: Lane,
        slots: Sequence[Slot],
        then: Then,
        look: Callable[[], Callable[[Epoch], None] | None],
        *,
        is_repeated: bool,
    ) -> None:
        self._loop._under_way[lane] += 1

        def over(failure: BaseException | None) -> None:
            self._loop._under_way[lane] -= 1
            done: Future[None] = Future()
            done.set_exception(failure) if failure is not None else done.set_result(None)
            then(done)

        def offer() -> None:
            self._loop.start(Lane(f"{lane.name}: next epoch"), look, offered)

        def offered(found: Future[Callable[[Epoch], None] | None]) -> None:
            failure = found.exception()
            execute = None if failure is not None else found.result()
            if execute is None:
                over(failure)
            else:
                following = offer if is_repeated else (lambda: over(None))
                epoch = _SimulatedEpoch(self, execute, following, over, is_extra=lane is EXTRA)
                self.listener.epoch_offered(epoch)

        offer()


class _SimulatedEpoch:
    def __init__(
        self,
        source: SimulatedInput,
        execute: Callable[[Epoch], None],
        following: Callable[[], None],
        over: Callable[[BaseException | None], None],
        *,
        is_extra: bool,
    ) -> None:
        self.is_extra = is_extra
        self._source = source
        self._execute = execute
        self._following = following
        self._over = over
        self._is_executing = self._is_ended = False

    def begin(self, epoch: Epoch) -> None:
        self._is_executing = True
        self._source._loop.start(_EXECUTE, lambda: self._execute(epoch), self._executed)

    def _executed(self, done: Future[None]) -> None:
        self._is_executing = False
        failure = done.exception()
        self._source.listener.epoch_executed(self, failure)

    def end(self) -> None:
        self._end(self._following)

    def skip(self) -> None:
        self._end(self._following)

    def refuse(self, failure: BaseException) -> None:
        if not self._is_executing:
            self._end(lambda: self._over(failure))

    def _end(self, then: Callable[[], None]) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._source._loop.post(then)


def simulated(scheduler: Scheduler) -> Machinery:
    """Return the machinery of attempts under this scheduler."""
    return Machinery(lambda: SimulatedLoop(scheduler), SimulatedGroup, SimulatedInput)
