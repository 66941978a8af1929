"""The machinery of a simulated attempt: the event loop, the calls to slots and the input, driven by the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from checkdam.errors import SlotLostError
from checkdam.ids import Epoch
from checkdam.runtime.driver.attempt import Machinery
from checkdam.runtime.driver.epoch_input import EXTRA, INPUT, EpochListener, Then
from checkdam.runtime.driver.event_loop import Event, EventLoop, Lane
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.stalls import Stall
from simulation.scheduler import Scheduler, Work

T = TypeVar("T")

_EXECUTE = Lane("executing an epoch")


class Outcome(Future[T]):
    """A future that is done: without the locks of one that threads wait for."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._value: T | None = None
        self._failure: BaseException | None = None
        try:
            self._value = work()
        except BaseException as failure:  # noqa: BLE001  any exception is the outcome of the work
            self._failure = failure

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._failure

    def result(self, timeout: float | None = None) -> Any:
        if self._failure is not None:
            raise self._failure
        return self._value


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
            done = Outcome(work)
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

    def _next(self, wait: float | None, end: float | None) -> Event | None:
        scheduler = self._scheduler
        while True:
            scheduler.step()
            works, frozen = scheduler.able(self._queues)
            moments = [*self._moments(wait, end), *frozen]
            chosen = scheduler.choose(works, has_event=bool(self._posted), has_moment=bool(moments))
            if chosen == "event":
                scheduler.note("event")
                return self._posted.popleft()
            if chosen == "time":
                return self._let_time_pass(min(moments) - self._now())
            assert isinstance(chosen, Work)
            scheduler.resume(chosen)
            seconds = scheduler.drift()
            if seconds:
                return self._let_time_pass(seconds)

    def _moments(self, wait: float | None, end: float | None) -> list[float]:
        moments = [self._timers[0][0]] if self._timers else []
        if wait is not None:
            moments.append(self._now() + max(wait, 0.001))
        if end is not None:
            moments.append(end)
        return moments

    def _let_time_pass(self, seconds: float) -> Event | None:
        seconds = max(0.0, seconds) + 1e-6  # the clock counts microseconds
        self._scheduler.note(f"{seconds:.3f} s pass")
        self._scheduler.clock.advance(seconds)
        return self._due_timer()


class SimulatedGroup(SlotGroup):
    """Calls the slots side by side, in an order chosen by the scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.slots = ()

    def call(self, call: Callable[[Slot], T]) -> list[T]:
        outcomes = self._call(call)
        errors = [error for _, error in outcomes if error is not None]
        if errors:
            raise errors[0]
        return [answer for answer, _ in outcomes]

    def close_soon(self) -> None:
        self._call(lambda slot: slot.close())  # a lost slot is not waited for

    def kill(self) -> None:
        for slot in self.slots:
            slot.kill()

    def dispose(self) -> None:
        """Do nothing: no work runs outside the scheduler."""

    def _call(self, call: Callable[[Slot], T]) -> list[tuple[Any, BaseException | None]]:
        return self._scheduler.call_all(
            [(f"call to slot {slot.subtask}", partial(self._answer, call, slot)) for slot in self.slots]
        )

    def _answer(self, call: Callable[[Slot], T], slot: Any) -> T:
        answer = call(slot)
        self._scheduler.pause()
        if slot.is_cut_off:
            raise SlotLostError(f"slot {slot.subtask} does not answer")
        return answer


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
            then(Outcome(partial(_end_with, failure)))

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


def _end_with(failure: BaseException | None) -> None:
    if failure is not None:
        raise failure


def simulated(scheduler: Scheduler) -> Machinery:
    """Return the machinery of attempts under this scheduler."""
    return Machinery(lambda: SimulatedLoop(scheduler), lambda size: SimulatedGroup(scheduler), SimulatedInput)
