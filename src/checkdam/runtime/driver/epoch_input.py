"""Epochs as the loop sees them: offered by the engine, begun and ended by the loop, executed on other threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from checkdam.errors import JobControlError
from checkdam.ids import Epoch
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.engine import Engine, RunEpoch, Slot

INPUT = Lane("the engine")
EXTRA = Lane("an epoch without records")

Then = Callable[[Future[None]], None]


class OfferedEpoch(Protocol):
    """An epoch whose records are ready. The loop lets it begin, and ends it after the slots have."""

    @property
    def is_extra(self) -> bool:
        """Whether it has no records and was requested by `run_extra`."""

    def begin(self, epoch: Epoch) -> None:
        """Execute the epoch; the listener's `executed` follows as an event."""

    def end(self) -> None:
        """Let the engine continue with the next epoch."""

    def skip(self) -> None:
        """Let the engine continue without executing the epoch: the job is being stopped."""

    def refuse(self, failure: BaseException) -> None:
        """Raise the failure that ends the attempt in the engine's thread, unless the epoch has ended."""


class EpochListener(Protocol):
    """Receives the events of epochs, in the loop."""

    def epoch_offered(self, epoch: OfferedEpoch) -> None: ...

    def epoch_executed(self, epoch: OfferedEpoch, failure: BaseException | None) -> None: ...


class EpochInput(Protocol):
    """The source of epochs. Calls `then` when there are no more of them."""

    def run_static(self, slots: Sequence[Slot], then: Then) -> None: ...

    def run(self, slots: Sequence[Slot], then: Then) -> None: ...

    def run_extra(self, slots: Sequence[Slot], then: Then) -> None: ...


class _OfferedByThread:
    """An epoch that an engine thread is waiting with."""

    def __init__(self, *, is_extra: bool) -> None:
        self.is_extra = is_extra
        self.begun: Future[Epoch | None] = Future()
        self.ended: Future[None] = Future()

    def begin(self, epoch: Epoch) -> None:
        self.begun.set_result(epoch)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def skip(self) -> None:
        self.begun.set_result(None)

    def refuse(self, failure: BaseException) -> None:
        for future in (self.begun, self.ended):
            if not future.done():
                future.set_exception(failure)


class EngineInput:
    """Runs the engine on its own threads, which wait for the loop at the beginning and end of each epoch."""

    def __init__(self, engine: Engine, loop: EventLoop, hangs: HangWatch, listener: EpochListener) -> None:
        self._engine = engine
        self._loop = loop
        self._hangs = hangs
        self._listener = listener

    def run_static(self, slots: Sequence[Slot], then: Then) -> None:
        self._start(INPUT, self._engine.run_static, slots, then)

    def run(self, slots: Sequence[Slot], then: Then) -> None:
        self._start(INPUT, self._engine.run, slots, then)

    def run_extra(self, slots: Sequence[Slot], then: Then) -> None:
        self._start(EXTRA, self._engine.run_extra, slots, then)

    def _start(
        self, lane: Lane, run: Callable[[Sequence[Slot], RunEpoch], None], slots: Sequence[Slot], then: Then
    ) -> None:
        run_epoch = partial(self._run_epoch, is_extra=lane is EXTRA)
        self._loop.start(lane, lambda: run(slots, run_epoch), then)

    def _run_epoch(self, execute: Callable[[Epoch], None], *, is_extra: bool) -> Future[None]:
        """Execute one epoch in the calling thread when the loop lets it begin. Return the future of its end."""
        offered = _OfferedByThread(is_extra=is_extra)
        if not self._loop.post(partial(self._listener.epoch_offered, offered)):
            raise JobControlError("the job has ended")
        epoch = offered.begun.result()
        if epoch is None:
            offered.end()
            return offered.ended
        with ExitStack() as expecting:
            expecting.enter_context(self._hangs.expecting_progress(f"epoch {epoch}"))
            try:
                execute(epoch)
            except BaseException as failure:
                if self._loop.post(partial(self._listener.epoch_executed, offered, failure)):
                    offered.ended.exception()  # the engine is interrupted before it learns the reason
                raise
            until_end = expecting.pop_all()
        offered.ended.add_done_callback(lambda ended: until_end.close())
        if not self._loop.post(partial(self._listener.epoch_executed, offered, None)):
            offered.refuse(JobControlError("the job has ended"))
        return offered.ended
