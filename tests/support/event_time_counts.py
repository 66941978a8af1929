"""Jobs that count records in windows in event time, with a model of what Flink's rules let them write."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import AggregateFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.graph.windowing.assigners import EventTimeSessionWindows, SlidingEventTimeWindows
from checkdam.graph.windowing.window_functions import ProcessWindowFunction
from checkdam.testing.local_job import LocalJob

Event = tuple[str, int]
"""Key and timestamp."""

Line = tuple[str, int, int, int]
"""Key, start and end of the window, and how many records it has. A late record is its own window with 0 records."""

_DISORDER = 4
_LATE = OutputTag("late", Event)


def random_events(rng: random.Random, keys: str) -> list[list[Event]]:
    """Return epochs of records that are somewhat out of order, a few of them late."""
    now, epochs = 0, []
    for _ in range(7):
        epoch = []
        for _ in range(rng.randint(1, 4)):
            now += rng.choice([0, 1, 3, 12])
            behind = rng.randint(0, _DISORDER) if rng.random() < 0.8 else rng.randint(10, 40)
            epoch.append((rng.choice(keys), now - behind))
        epochs.append(epoch)
    return epochs


class EventTimeCount(WordCount):
    """Counts records in sliding windows; a slide as long as the windows makes them tumbling."""

    size, slide, lateness = 10, 5, 8

    def job(self, **options: Any) -> LocalJob:
        return LocalJob(self.build, self.epochs, self.storage, record_type=Event, **options)

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(_ms(_DISORDER), lambda event: event[1])
        windows = stream.assign_timestamps_and_watermarks(strategy).key_by(0).window(self._assigner())
        counted = windows.allowed_lateness(_ms(self.lateness)).side_output_late_data(_LATE)
        counts = counted.aggregate(_Count(), _WithWindow()).uid(UID)
        late = counts.get_side_output(_LATE).map(_late_line, output_type=Line)
        counts.union(late).sink_to_files(self._sink_uri).uid("out")

    def expected_state(self) -> dict[str, Any]:
        return {}  # at the end of time every window is over

    def expected_output(self, epochs: int | None = None) -> Counter[Any]:
        """Return the lines of the whole job, or those of its first epochs."""
        lines: Counter[Any] = Counter()
        windows: dict[str, dict[tuple[int, int], int]] = {}
        watermark = newest = -(10**9)
        for epoch in self.epochs[:epochs]:
            for key, time in epoch:
                lines.update(self._add(key, time, windows.setdefault(key, {}), watermark))
                newest = max(newest, time)
            before, watermark = watermark, max(watermark, newest - _DISORDER - 1)
            lines.update(self._ended(windows, before, watermark))
        if epochs is None:
            lines.update(self._ended(windows, watermark, 10**9))
        return lines

    def _assigner(self) -> Any:
        return SlidingEventTimeWindows(_ms(self.size), _ms(self.slide))

    def _add(self, key: str, time: int, windows: dict[tuple[int, int], int], watermark: int) -> Iterator[Line]:
        last = time // self.slide * self.slide
        starts = range(last, time - self.size, -self.slide)
        open_windows = [(start, start + self.size) for start in starts if self._is_open(start + self.size, watermark)]
        for window in open_windows:
            windows[window] = windows.get(window, 0) + 1
            if window[1] - 1 <= watermark:  # late, but allowed: the window fires again
                yield key, *window, windows[window]
        if not open_windows and time + self.lateness <= watermark:
            yield _late_line((key, time))

    def _is_open(self, end: int, watermark: int) -> bool:
        return end - 1 + self.lateness > watermark

    def _ended(self, windows: dict[str, dict[tuple[int, int], int]], before: int, watermark: int) -> Iterator[Line]:
        for key, counts in windows.items():
            for window, count in list(counts.items()):
                if before < window[1] - 1 <= watermark:
                    yield key, *window, count
                if not self._is_open(window[1], watermark):
                    del counts[window]


class TumblingCount(EventTimeCount):
    """Counts records in tumbling windows."""

    size, slide, lateness = 10, 10, 0


class SessionCount(EventTimeCount):
    """Counts records in sessions."""

    gap, lateness = 6, 0

    def _assigner(self) -> Any:
        return EventTimeSessionWindows(_ms(self.gap))

    def _add(self, key: str, time: int, windows: dict[tuple[int, int], int], watermark: int) -> Iterator[Line]:
        start, end, count = time, time + self.gap, 1
        touching = [each for each in windows if each[0] <= end and start <= each[1]]
        if not touching and not self._is_open(end, watermark):
            yield _late_line((key, time))
            return
        for window in touching:
            start, end, count = min(start, window[0]), max(end, window[1]), count + windows.pop(window)
        windows[start, end] = count
        if end - 1 <= watermark:
            yield key, start, end, count


class LateSessionCount(SessionCount):
    """Counts records in sessions that may still grow, and merge, after they have fired."""

    lateness = 8


EVENT_TIME_COUNTS: Sequence[type[EventTimeCount]] = (EventTimeCount, TumblingCount, SessionCount, LateSessionCount)


class _Count(AggregateFunction[Event, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


class _WithWindow(ProcessWindowFunction[str, int, Line, Any]):
    def process(self, key: str, ctx: Any, elements: Iterable[int]) -> Iterator[Line]:
        for count in elements:
            yield key, ctx.window.start, ctx.window.end, count


def _late_line(event: Event) -> Line:
    return event[0], event[1], event[1], 0


def _ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)
