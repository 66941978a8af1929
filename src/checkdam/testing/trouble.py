"""Faults that a test can inject into a LocalJob, and the moments at which it can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from checkdam.errors import SlotLostError, StorageError
from checkdam.testing.mounts import Watch

if TYPE_CHECKING:
    from checkdam.testing.local_engine import LocalEngine


class DriverKilled(BaseException):
    """The driver process was killed; only what it wrote to storage is left."""


class Step(Enum):
    """The steps of a job. The number of a moment is an epoch up to EPOCH_ENDED, and a checkpoint id after it."""

    BEFORE_EPOCH = "before an epoch"
    BEFORE_LEVEL = "before a slot gets the records of a level"
    AFTER_LEVEL = "after a slot has done a level"
    EPOCH_DONE = "before a slot ends an epoch"
    EPOCH_ENDED = "after a slot has ended an epoch"
    BEFORE_SNAPSHOT = "before a slot takes its snapshot"
    BEFORE_WRITING = "after a slot has taken its snapshot, before it is written"
    WRITING_OUTPUT = "before a slot writes, or closes, a file of the output"
    WRITING = "before a slot writes a file of its state"
    SNAPSHOT_TAKEN = "a slot's snapshot is written and not acknowledged"
    BEFORE_METADATA = "every slot has acknowledged, _metadata is not written"
    METADATA_WRITTEN = "directly after _metadata is written"
    COMMITTING = "before a file of the output becomes visible"
    COMMITTED = "after a file of the output became visible"
    REMEMBERING = "before the output to publish is recorded"
    REMEMBERED = "after the output to publish is recorded"
    BEFORE_COMPLETED = "before a slot is notified of a completed checkpoint"
    AFTER_COMPLETED = "after a slot was notified of a completed checkpoint"
    BEFORE_DISCARD = "before an old checkpoint is removed"
    DISCARDED = "the _metadata of an old checkpoint is gone"
    WITHDRAWING = "before a published file is withdrawn"
    WITHDRAWN = "after a published file was withdrawn"
    BEFORE_ABORTED = "before a slot is notified of an aborted checkpoint"
    AFTER_ABORTED = "after a slot was notified of an aborted checkpoint"
    WRITING_SAVEPOINT = "before a slot writes, or closes, a file of a savepoint"
    BEFORE_SAVEPOINT_METADATA = "every slot has acknowledged, _metadata of the savepoint is not written"
    SAVEPOINT_WRITTEN = "directly after _metadata of the savepoint is written"


@dataclass(frozen=True)
class Moment:
    step: Step
    number: int
    subtask: int | None = None
    level: int | None = None


Deed = Callable[["LocalEngine", Moment], None]


@dataclass
class Trouble:
    """Does something at the first matching moment; None matches all."""

    step: Step
    do: Deed
    number: int | None = None
    subtask: int | None = None
    happened: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, moment: Moment) -> bool:
        """Return whether this is the moment; True only once."""
        if moment.step is not self.step or self.number not in (None, moment.number):
            return False
        if self.subtask not in (None, moment.subtask):
            return False
        with self._lock:
            is_first = not self.happened.is_set()
            self.happened.set()
        return is_first


def kill_slot(subtask: int = 0) -> Deed:
    """Kill a slot, as SIGKILL does."""
    return lambda engine, moment: engine.slots[subtask % len(engine.slots)].kill()


def kill_driver(engine: LocalEngine, moment: Moment) -> None:
    """Kill the driver and its slots, as SIGKILL does."""
    engine.kill_driver()


def refuse(engine: LocalEngine, moment: Moment) -> None:
    """Fail the step with a StorageError."""
    raise StorageError(f"refused by the test: {moment.step.value}")


def repeat_level(engine: LocalEngine, moment: Moment) -> None:
    """Run a task again that has succeeded, as Spark may."""
    assert moment.subtask is not None
    engine.slots[moment.subtask].repeat()


def wait_for(event: threading.Event) -> Deed:
    """Delay the step until the event is set."""
    return lambda engine, moment: _wait(event)


def signal(event: threading.Event) -> Deed:
    return lambda engine, moment: event.set()


def ask(request: Callable[[], Future[Any]], asked: list[Future[Any]] | None = None) -> Deed:
    """Send a request to the job and wait until it is done, unless the attempt ends, before the step continues."""

    def do(engine: LocalEngine, moment: Moment) -> None:
        future = request()
        if asked is not None:
            asked.append(future)
        engine.wait_for(future)

    return do


def _wait(event: threading.Event) -> None:
    if not event.wait(60):
        raise AssertionError("the test never let the step go on")


class Life(Watch):
    """The life of a process: after its end, none of its operations succeeds."""

    def __init__(self, who: str) -> None:
        self._who = who
        self.is_dead = False

    def end(self) -> None:
        self.is_dead = True

    def check(self) -> None:
        if self.is_dead:
            raise SlotLostError(f"{self._who} was killed")

    def before(self, operation: str, path: str) -> None:
        self.check()

    def after(self, operation: str, path: str) -> None:
        self.check()
