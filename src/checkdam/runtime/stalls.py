"""Threads that stand still: since when, and where."""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from checkdam.clock import Clock

if TYPE_CHECKING:
    from checkdam.runtime.slot.level import RunningOperator

_COMPUTING = 0.01
"""A thread that uses more than this share of a core computes, and does not stand still."""

_RUNTIME = str(Path(__file__).parent)
_MOST_FRAMES = 500
_PLAIN = frozenset({int, float, str, bytes, bool})
_TICKS_A_SECOND = 100


@dataclass(frozen=True)
class Stall:
    """A thread without progress for some seconds: what it works on, and where it stands."""

    work: str
    seconds: float
    stack: str

    def __str__(self) -> str:
        return f"{self.work} has stood still for {self.seconds:.0f} s, at:\n{self.stack.rstrip()}"


class StackWatch:
    """Measures how long a thread has stood at one place.

    A place is the stack, with the instruction and the local variables of each frame. So a loop over records counts as
    moving, however slow it is, and a thread that computes never counts as standing still.
    """

    def __init__(self, clock: Clock, longest_look: timedelta) -> None:
        """Watch the calling thread.

        The time between two looks counts for `longest_look` at most: if it is longer, the whole process was stopped.
        """
        self._ident = threading.get_ident()
        self._native_id = threading.get_native_id()
        self._clock = clock
        self._longest_look = longest_look.total_seconds()
        self._place: Hashable = None
        self._looked_at = clock.monotonic()
        self._still = 0.0
        self._computed = 0.0

    def seconds_still(self) -> float:
        """Look at the thread. Return 0.0 if it has moved since the last look."""
        now = self._clock.monotonic()
        computed = cpu_seconds(Path(f"/proc/self/task/{self._native_id}/stat"))
        place = _place(sys._current_frames().get(self._ident))
        still = self._still + min(now - self._looked_at, self._longest_look)
        if place != self._place or computed - self._computed > _COMPUTING * still:
            still, self._place, self._computed = 0.0, place, computed
        self._looked_at, self._still = now, still
        return still

    def stall(self, work: str) -> Stall:
        """Describe where the thread stands, and for how long it had when last looked at."""
        frame = sys._current_frames().get(self._ident)
        if frame is None:
            return Stall(work, self._still, "")
        running = _running_operator(frame)
        if running is None:
            return Stall(work, self._still, stack_text(frame))
        where = running.process.where_it_waits() or stack_text(frame)
        return Stall(f'operator "{running.operator.name}" in {work}', self._still, where)


def stack_text(frame: FrameType) -> str:
    """Return the frames as text, without those of the runtime; all of them if there are no others."""
    frames = traceback.extract_stack(frame)
    of_runtime = [each.filename.startswith(_RUNTIME) for each in frames]
    begin = of_runtime.index(True) if any(of_runtime) else 0
    theirs = [each for each in frames[begin:] if not each.filename.startswith(_RUNTIME)]
    return "".join(traceback.StackSummary.from_list(theirs or frames).format())


def _place(frame: FrameType | None) -> Hashable:
    return tuple((frame.f_code, frame.f_lasti, _locals(frame)) for frame in _frames(frame))


def _locals(frame: FrameType) -> Hashable:
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None  # module or class body: it may have thousands of names
    return tuple(each if type(each) in _PLAIN else id(each) for each in list(frame.f_locals.values()))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _running_operator(frame: FrameType) -> RunningOperator | None:
    """Return the operator that runs in this stack: every step of one goes through `work`."""
    from checkdam.runtime.slot.level import RunningOperator

    for each in _frames(frame):
        if each.f_code is RunningOperator.work.__code__:
            running = each.f_locals["self"]
            assert isinstance(running, RunningOperator)
            return running
    return None


def cpu_seconds(stat: Path) -> float:
    """Return the processor time of a process or thread, from its file in /proc; 0.0 where there is none."""
    try:
        text = stat.read_text()
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_A_SECOND
