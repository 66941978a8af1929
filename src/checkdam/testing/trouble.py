"""What a test can let happen to a LocalJob, and at which moment of it."""

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
    """The driver process is gone; what it left is on storage, and nowhere else."""


class Step(Enum):
    """The steps a job takes; a moment's number is an epoch down to EPOCH_ENDED, and a checkpoint's id from there on."""

    BEFORE_EPOCH = "before an epoch"
    BEFORE_LEVEL = "before a slot gets the records of a level"
    AFTER_LEVEL = "after a slot has done a level"
    EPOCH_DONE = "before a slot ends an epoch"
    EPOCH_ENDED = "after a slot has ended an epoch"
    BEFORE_SEAL = "before a slot cuts a checkpoint"
    SEALED = "between the cut and its being written"
    WRITING_OUTPUT = "before a slot writes, or closes, a file of the output"
    WRITING = "before a slot writes a file of its state"
    SNAPSHOT_TAKEN = "a slot's snapshot is written, the driver has not heard"
    BEFORE_METADATA = "every slot has reported, _metadata is not written"
    METADATA_WRITTEN = "_metadata is written, nobody knows"
    COMMITTING = "before a file of the output becomes visible"
    COMMITTED = "after a file of the output became visible"
    REMEMBERING = "before what is to become visible is remembered"
    REMEMBERED = "after what is to become visible is remembered"
    BEFORE_COMPLETED = "before a slot hears of a completed checkpoint"
    AFTER_COMPLETED = "after a slot has heard of a completed checkpoint"
    BEFORE_DISCARD = "before an old checkpoint is removed"
    DISCARDED = "the _metadata of an old checkpoint is gone"
    WITHDRAWING = "before a published file is withdrawn"
    WITHDRAWN = "after a published file was withdrawn"
    BEFORE_ABORTED = "before a slot hears of an aborted checkpoint"
    AFTER_ABORTED = "after a slot has heard of an aborted checkpoint"
    WRITING_SAVEPOINT = "before a slot writes, or closes, a file of a savepoint"
    BEFORE_SAVEPOINT_METADATA = "every slot has reported, _metadata of the savepoint is not written"
    SAVEPOINT_WRITTEN = "_metadata of the savepoint is written, nobody knows"


@dataclass(frozen=True)
class Moment:
    step: Step
    number: int
    subtask: int | None = None
    level: int | None = None


Deed = Callable[["LocalEngine", Moment], None]


@dataclass
class Trouble:
    """Does something at the first moment that fits; None fits all."""

    step: Step
    do: Deed
    number: int | None = None
    subtask: int | None = None
    happened: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, moment: Moment) -> bool:
        """Whether this is the moment; it comes once."""
        if moment.step is not self.step or self.number not in (None, moment.number):
            return False
        if self.subtask not in (None, moment.subtask):
            return False
        with self._lock:
            is_first = not self.happened.is_set()
            self.happened.set()
        return is_first


def kill_slot(subtask: int = 0) -> Deed:
    """SIGKILL of a slot."""
    return lambda engine, moment: engine.slots[subtask % len(engine.slots)].kill()


def kill_driver(engine: LocalEngine, moment: Moment) -> None:
    """SIGKILL of the driver; its slots go with it."""
    engine.kill_driver()


def refuse(engine: LocalEngine, moment: Moment) -> None:
    """The step fails with a StorageError."""
    raise StorageError(f"refused by the test: {moment.step.value}")


def repeat_level(engine: LocalEngine, moment: Moment) -> None:
    """Spark runs a task again that had succeeded."""
    assert moment.subtask is not None
    engine.slots[moment.subtask].repeat()


def wait_for(event: threading.Event) -> Deed:
    """The step takes until then."""
    return lambda engine, moment: _wait(event)


def signal(event: threading.Event) -> Deed:
    return lambda engine, moment: event.set()


def ask(request: Callable[[], Future[Any]], asked: list[Future[Any]] | None = None) -> Deed:
    """Something is asked of the job, and done before the step goes on, unless it ends the attempt."""

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
    """Of a process: once it is over, nothing that the process would do happens any more."""

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
