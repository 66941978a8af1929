"""Event time in one slot: the timestamps seen, and the watermark of each operator.

The watermark of an assigner follows from the largest timestamp it has seen in the whole job. Control rows carry what
one task has seen, with the records, to every downstream subtask: watermarks do not depend on the parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from checkdam.clock import Clock, milliseconds_in, to_milliseconds
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator, TimestampsKind
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.process import Process
from checkdam.types.batch import Batch


class _Control(msgspec.Struct, array_like=True):
    """The content of a control row."""

    largest: dict[int, int]
    active: list[int]  # the assigners that had records in this epoch
    ended: list[tuple[int, int]] = []  # source functions that have ended, with the subtask


_decode = msgspec.msgpack.Decoder(_Control).decode


class SeenTimestamps:
    """The largest timestamp of each assigner, those with records in the current epoch, and the ended sources."""

    def __init__(self, largest: Mapping[int, int] | None = None) -> None:
        self._largest: dict[int, int] = dict(largest or {})
        self._active: set[int] = set()
        self._ended: set[tuple[int, int]] = set()

    @property
    def largest(self) -> Mapping[int, int]:
        return self._largest

    @property
    def active(self) -> frozenset[int]:
        return frozenset(self._active)

    def end_source(self, source: int, subtask: int) -> None:
        """Record that one subtask of a source function has no more records."""
        self._ended.add((source, subtask))

    def has_ended(self, source: int, subtasks: int) -> bool:
        """Return whether all subtasks of a source function are known to have ended."""
        return self._ended.issuperset((source, subtask) for subtask in range(subtasks))

    def observe(self, assigner: int, timestamp: int) -> None:
        self._active.add(assigner)
        if timestamp > self._largest.get(assigner, MIN_WATERMARK):
            self._largest[assigner] = timestamp

    def merge_control(self, content: bytes) -> None:
        """Merge what another task has seen."""
        control = _decode(content)
        self._active.update(control.active)
        self._ended.update(control.ended)
        for assigner, timestamp in control.largest.items():
            if timestamp > self._largest.get(assigner, MIN_WATERMARK):
                self._largest[assigner] = timestamp

    def control(self) -> bytes:
        """Return the content of the control row for downstream tasks; empty if there is nothing new."""
        if not self._largest and not self._ended:
            return b""
        return msgspec.msgpack.encode(_Control(dict(self._largest), sorted(self._active), sorted(self._ended)))

    def end_epoch(self) -> None:
        self._active.clear()


class EventTime:
    """One slot's view of event time. Watermarks never fall: a restored slot starts with the restored ones."""

    def __init__(
        self,
        plan: JobPlan,
        clock: Clock,
        largest: Mapping[int, int] | None = None,
        reached: Mapping[int, int] | None = None,
        *,
        subtask: int = 0,
        last_epoch: int = -1,
        unread: frozenset[int] = frozenset(),
        ended: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Start from the restored state.

        `ended` are the source functions, each with a subtask, that had no more records when the state was saved.
        """
        self._plan = plan
        self._clock = clock
        self._seen = SeenTimestamps(largest)
        for source, ended_subtask in ended:
            self._seen.end_source(source, ended_subtask)
        self._subtask = subtask
        self._subtasks = {op.id: op.parallelism or 1 for level in plan.levels for op in level.operators}
        self._static = plan.static_assigners - unread if last_epoch >= 0 else frozenset()
        self._unread = unread  # assigners downstream of static sources that are not read yet
        self._looked_at = self._now()  # when the last epoch judged which streams are idle
        self._is_looking = False  # whether the current epoch has judged
        idle = (each for each, strategy in plan.strategies.items() if strategy.idleness is not None)
        self._last_active = dict.fromkeys(idle, self._looked_at)
        self._reached: dict[int, int] = dict(reached or {})
        self._has_ended_now = False  # whether the last epoch ended the static sources
        self._is_over = False

    @property
    def largest(self) -> Mapping[int, int]:
        """The largest timestamp that each assigner has seen so far; kept in checkpoints."""
        return dict(self._seen.largest)

    @property
    def reached(self) -> Mapping[int, int]:
        """The watermark of each operator; kept in checkpoints.

        Timestamps alone are not enough: a stream that was idle before a restart counts as active after it. The end of
        time is left out: a restored slot detects again that all streams have ended, and a changed job may have others.
        """
        return {
            op: watermark
            for op, watermark in self._reached.items()
            if watermark > MIN_WATERMARK and not self._have_all_ended(op)
        }

    def observe(self, assigner: int, timestamp: int) -> None:
        self._seen.observe(assigner, timestamp)

    def end_source(self, source: int) -> None:
        """Record that a source function of this slot has no more records; downstream tasks learn it in this epoch."""
        self._seen.end_source(source, self._subtask)

    def merge_control(self, content: bytes) -> None:
        self._seen.merge_control(content)

    def control(self) -> bytes:
        return self._seen.control()

    def watermark_of(self, operator: int) -> int:
        """Return the watermark of an operator: that of the slowest stream that reaches it.

        Idle and ended streams do not count; once all have ended it is the end of time.
        """
        if self._is_over:
            return MAX_WATERMARK
        before = self._reached.get(operator, MIN_WATERMARK)
        if self._have_all_ended(operator):
            reached = MAX_WATERMARK
        else:
            assigners = self._plan.assigners.get(operator, ())
            counting = (each for each in assigners if not self._has_ended(each) and not self._is_idle(each))
            reached = max(before, min(map(self._watermark, counting), default=before))
        self._reached[operator] = reached
        return reached

    def _have_all_ended(self, operator: int) -> bool:
        assigners = self._plan.assigners.get(operator, ())
        return bool(assigners) and all(map(self._has_ended, assigners))

    def _has_ended(self, assigner: int) -> bool:
        if assigner in self._static:
            return True
        functions = self._plan.ending_assigners.get(assigner)
        if functions is None or assigner in self._unread:
            return False
        return all(self._seen.has_ended(each, self._subtasks[each]) for each in functions)

    def _watermark(self, assigner: int) -> int:
        largest = self._seen.largest.get(assigner)
        if largest is None:
            return MIN_WATERMARK
        return max(self._plan.strategies[assigner].watermark(largest), MIN_WATERMARK)

    def _is_idle(self, assigner: int) -> bool:
        deadline = self._deadline(assigner)
        return deadline is not None and assigner not in self._seen.active and self._look() >= deadline

    def _look(self) -> int:
        """Return the time, read once per epoch, so that all operators judge alike."""
        if not self._is_looking:
            self._is_looking, self._looked_at = True, self._now()
        return self._looked_at

    def _deadline(self, assigner: int) -> int | None:
        """Return when a stream becomes idle if it continues to have no records."""
        idleness = self._plan.strategies[assigner].idleness
        if idleness is None or self._has_ended(assigner):
            return None
        return self._last_active[assigner] + -milliseconds_in(-idleness)

    def next_due(self) -> int | None:
        """Return when the next stream becomes idle or ends, in ms since 1970; in the past until an epoch handles it."""
        if self._has_ended_now:
            return self._looked_at
        deadlines = (self._deadline(each) for each in self._last_active)
        return min((each for each in deadlines if each is not None and each > self._looked_at), default=None)

    def end_epoch(self, epoch: int) -> None:
        self._look()
        now = self._now()
        for assigner in self._seen.active & self._last_active.keys():
            self._last_active[assigner] = now
        self._seen.end_epoch()
        self._is_looking = False
        static = self._plan.static_assigners if epoch >= 0 else frozenset()
        self._has_ended_now = (static != self._static or bool(self._unread)) and self._plan.has_ticks
        self._static, self._unread = static, frozenset()

    def end_of_input(self) -> None:
        """Set event time to its end: there will be no more records."""
        self._is_over = True

    def _now(self) -> int:
        return to_milliseconds(self._clock.now())


class AssignTimestamps(Process):
    """Assigns event time to records by the user's function, and tracks the largest timestamp."""

    def __init__(self, operator: Operator, observe: Callable[[int, int], None]) -> None:
        assert isinstance(operator.kind, TimestampsKind)
        self._operator = operator
        self._function = operator.kind.strategy.timestamp
        self._observe = observe

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        timestamps: list[int] = []
        record = None
        try:
            for record in batch.rows:
                timestamps.append(_milliseconds(self._function(record)))
        except Exception as cause:
            raise user_error(self._operator, record, cause) from cause
        if timestamps:
            self._observe(self._operator.id, max(timestamps))
        return batch.with_timestamps(timestamps)


def _milliseconds(timestamp: Any) -> int:
    """Convert a timestamp returned by the user's function; naive datetimes are taken as UTC."""
    if type(timestamp) is int:
        if not MIN_WATERMARK < timestamp < MAX_WATERMARK:
            raise ValueError(f"timestamp {timestamp} is not a time in milliseconds: it does not fit into 64 bits")
        return timestamp
    if isinstance(timestamp, datetime):
        return to_milliseconds(timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC))
    raise TypeError(f"a timestamp is an int in milliseconds since 1970 or a datetime, not {timestamp!r}")
