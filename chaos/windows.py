"""A job with windows on RocksDB: tumbling ones with late records, and sessions, whose results are known exactly.

All records of a key in one batch come from one file, so they arrive in order.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from chaos.contract import difference
from chaos.place import FILES_PER_BATCH, Place
from checkdam import (
    AggregateFunction,
    DataStream,
    EventTimeSessionWindows,
    OutputTag,
    ProcessWindowFunction,
    RocksDBStateBackend,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
    WindowContext,
)
from checkdam.state_reader import Savepoint

Record = tuple[str, int]  # key, milliseconds

_KEYS = 30
_BATCH_MILLIS = 1000
_SIZE, _GAP = 700, 300  # milliseconds
_LATE = OutputTag("late", Record)
_TOTAL = ValueStateDescriptor("total", int, default=0)
_END = float("inf")


class Count(AggregateFunction[Record, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, record: Record, count: int) -> int:
        return count + 1

    def get_result(self, count: int) -> int:
        return count

    def merge(self, one: int, other: int) -> int:
        return one + other


class Told(ProcessWindowFunction[str, int, str, TimeWindow]):
    """Emits each window with its count, and keeps the sum of the key's counts in state that outlives windows."""

    def process(self, key: str, ctx: WindowContext[TimeWindow], counts: Sequence[int]) -> Iterator[str]:
        total = ctx.global_state().get_state(_TOTAL)
        total.update(total.value() + counts[0])
        yield _told(key, ctx.window.start, ctx.window.end, counts[0])


class Windows:
    """Counts the records of each key in tumbling windows and in sessions."""

    name = "windows"

    def write_input(self, place: Place, rng: random.Random) -> None:
        def lines(batch: int, number: int) -> list[str]:
            keys = [f"key{n}" for n in range(_KEYS) if (n + batch) % FILES_PER_BATCH == number]
            return [f"{rng.choice(keys)} {_time(batch, rng)}" for _ in range(rng.randint(0, 120))]

        place.write_input(lines)

    def build(self, environment: StreamExecutionEnvironment, lines: DataStream[Any], place: Place) -> None:
        environment.set_state_backend(RocksDBStateBackend("32 MB"))
        keyed = (
            lines.map(_parse, output_type=Record)
            .assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1]))
            .key_by(lambda record: record[0], key_type=str)
        )
        tumbling = keyed.window(TumblingEventTimeWindows(timedelta(milliseconds=_SIZE))).side_output_late_data(_LATE)
        counts = tumbling.aggregate(Count(), Told()).uid("tumbling")
        counts.sink_to_files(str(place.output / "tumbling"))
        counts.get_side_output(_LATE).sink_to_files(str(place.output / "late"))
        sessions = keyed.window(EventTimeSessionWindows(timedelta(milliseconds=_GAP)))
        sessions.aggregate(Count(), Told()).uid("sessions").sink_to_files(str(place.output / "sessions"))

    def output_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        course = _course(place.read_input())
        for sink, expected in (("tumbling", course.tumbling), ("sessions", course.sessions)):
            found = Counter(record["value"] for record in place.published(sink))
            yield from difference(f"output of {sink}", found, expected)
        late = Counter((record["f0"], record["f1"]) for record in place.published("late"))
        yield from difference("late records", late, course.late)

    def final_state_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        found, expected = _states(last), _course(place.read_input()).stages[-1]
        for name, value in expected.items():
            yield from difference(f"state {name}", found[name], value)

    def state_faults(self, place: Place, snapshot: Savepoint) -> Iterator[str]:
        stages, found = _course(place.read_input()).stages, _states(snapshot)
        if found not in stages:
            yield f"{snapshot.path} is no state the job goes through"


# -- the model -------------------------------------------------------------------------------------------------------


@dataclass
class _Course:
    """The output of the job, and its states before the first batch, after each one, and at the end."""

    tumbling: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    late: Counter[Record] = field(default_factory=Counter)
    stages: list[dict[str, Counter[Any]]] = field(default_factory=list)


def _course(batches: Iterable[Sequence[str]]) -> _Course:
    course = _Course()
    counts: Counter[tuple[str, int, int]] = Counter()  # by key, start and end
    sessions: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    totals: dict[str, Counter[str]] = {"tumbling": Counter(), "sessions": Counter()}
    watermark: float = -1 - _BATCH_MILLIS

    def fire() -> None:
        for window in [window for window in counts if window[2] - 1 <= watermark]:
            totals["tumbling"][window[0]] += counts[window]
            course.tumbling[_told(*window, counts.pop(window))] += 1
        for key, own in sessions.items():
            for start, end in [session for session in own if session[1] - 1 <= watermark]:
                totals["sessions"][key] += own[start, end]
                course.sessions[_told(key, start, end, own.pop((start, end)))] += 1

    def keep_stage() -> None:
        course.stages.append(
            {
                "tumbling windows": Counter(counts),
                "tumbling totals": Counter(totals["tumbling"]),
                "sessions": Counter((key, *session) for key, own in sessions.items() for session in own),
                "session counts": Counter((key, count) for key, own in sessions.items() for count in own.values()),
                "session totals": Counter(totals["sessions"]),
            }
        )

    keep_stage()
    for batch in batches:
        records = [_parse(line) for line in batch]
        for key, at in records:
            start = at - at % _SIZE
            if start + _SIZE - 1 <= watermark:
                course.late[key, at] += 1
            else:
                counts[key, start, start + _SIZE] += 1
            _add_to_sessions(sessions[key], at, watermark)
        watermark = max([watermark, *(at - 1 for _, at in records)])
        fire()
        keep_stage()
    watermark = _END
    fire()
    keep_stage()
    return course


def _add_to_sessions(own: Counter[tuple[int, int]], at: int, watermark: float) -> None:
    """Merge a record with the open sessions that it touches; without one it may be late."""
    touched = [session for session in own if session[0] <= at + _GAP and at <= session[1]]
    if not touched and at + _GAP - 1 <= watermark:
        return
    count = 1 + sum(own.pop(session) for session in touched)
    own[min([at, *(start for start, _ in touched)]), max([at + _GAP, *(end for _, end in touched)])] = count


def _states(snapshot: Savepoint) -> dict[str, Counter[Any]]:
    return {
        "tumbling windows": Counter({(key, *w): n for (key, w), n in _state(snapshot, "tumbling", "window-contents")}),
        "tumbling totals": Counter(dict(_state(snapshot, "tumbling", "total"))),
        "sessions": Counter(
            (key, *window)
            for key, windows in _state(snapshot, "sessions", "merging-window-set")
            for window, _ in windows
        ),
        # The contents are kept under one of the windows that have merged, whichever it is.
        "session counts": Counter((key, n) for (key, _), n in _state(snapshot, "sessions", "window-contents")),
        "session totals": Counter(dict(_state(snapshot, "sessions", "total"))),
    }


def _state(snapshot: Savepoint, uid: str, name: str) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a state, which is not there before it is first used."""
    return snapshot.keyed_state(uid, name) if name in {state.name for state in snapshot.states(uid)} else ()


def _time(batch: int, rng: random.Random) -> int:
    """Return a time of this batch, or now and then of an earlier one."""
    late = rng.randrange(3 * _BATCH_MILLIS) if rng.random() < 0.15 else 0
    return max(0, batch * _BATCH_MILLIS + rng.randrange(_BATCH_MILLIS) - late)


def _parse(line: str) -> Record:
    key, at = line.split()
    return key, int(at)


def _told(key: str, start: int, end: int, count: int) -> str:
    return f"{key} [{start}, {end}) {count}"
