"""Metrics of user functions: counters, gauges, histograms and meters, in groups. `ctx.metrics` is the outermost group.

Updating a metric changes an object of the subtask and nothing else; the slot reads all of them once, at the end of an
epoch.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from checkdam.errors import JobGraphError

_log = logging.getLogger(__name__)

MOST_METRICS: Final = 200
"""How many metrics one operator may have in a subtask: all of them travel to the driver with every epoch."""
LONGEST_NAME: Final = 80
LONGEST_TEXT: Final = 200
"""How many characters of a gauge's text are kept."""
REMEMBERED: Final = 1000
"""How many of the latest values the statistics of a histogram are made of."""
OF_EVERY_OPERATOR: Final = frozenset(
    {
        "currentInputWatermark",
        "currentOutputWatermark",
        "numLateRecordsDropped",
        "numRecordsIn",
        "numRecordsInPerSecond",
        "numRecordsOut",
        "numRecordsOutPerSecond",
        "pendingBytes",
        "pendingRecords",
        "sourceIdleTime",
        "watermarkLag",
    }
)
"""The names of the metrics that every operator has."""

_NAME = re.compile(rf"[A-Za-z0-9_\-.:, ]{{1,{LONGEST_NAME}}}", re.ASCII)
_SEPARATORS = re.compile(r"[.:, ]")
_UNFIT = re.compile(r"[^A-Za-z0-9_]")
_LARGEST = 2**63
_MOST_EVENTS = 1e300  # the rate of so many is still finite
_SQUARED_SAFELY = 1e100  # the sum of squares of so large values is still finite
_SCALE = 2.0**600  # larger values are divided by it while they are summed up; a power of 2, so that it is exact
_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.9)

M = TypeVar("M")


class HistogramStatistics(msgspec.Struct, frozen=True, tag="histogram"):
    """The statistics of a histogram's latest values; `count` is of all values. 0 throughout before the first one."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    stddev: float = 0.0
    median: float = 0.0
    p75: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p98: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


class MeterReading(msgspec.Struct, frozen=True, tag="meter"):
    """The events of a meter so far, and its rate over the last `seconds`, which the driver works out."""

    count: int | float
    seconds: float
    rate: float = 0.0


MetricValue: TypeAlias = int | float | str | HistogramStatistics | MeterReading


class Counter:
    """A count that goes up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class Meter:
    """Counts events; what is shown is their rate per second over the last `time_span_in_seconds`."""

    __slots__ = ("_count", "time_span_in_seconds")

    def __init__(self, time_span_in_seconds: float = 60) -> None:
        self._count = 0
        self.time_span_in_seconds = time_span_in_seconds

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count


class Histogram:
    """The distribution of the last 1,000 values."""

    __slots__ = ("_count", "_known", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._values: deque[float] = deque(maxlen=REMEMBERED)
        self._known = HistogramStatistics()

    def update(self, value: float) -> None:
        self._values.append(float(value))
        self._count += 1

    def get_count(self) -> int:
        return self._count

    def get_statistics(self) -> HistogramStatistics:
        """Return the statistics as of now; values that are not finite do not count in them."""
        if self._known.count != self._count:
            self._known = _statistics(self._count, sorted(filter(math.isfinite, self._values.copy())))
        return self._known


class _Gauge:
    """Asks a function for the value."""

    __slots__ = ("get",)

    def __init__(self, get: Callable[[], Any]) -> None:
        self.get = get


class OperatorMetrics:
    """The metrics of one operator in one subtask, by name; names of groups stand before it, separated by dots."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._metrics: dict[str, Counter | Meter | Histogram | _Gauge] = {}
        self._exported: dict[str, str] = {}  # the name by its form for Prometheus, which may have only one of that form
        self._failed: set[str] = set()  # the metrics that could not be read once; the log says so

    def add(self, path: tuple[str, ...], metric: Any) -> Any:
        """Add a metric. Return the one that has this name already, if it is of the same kind."""
        name = ".".join(path)
        known = self._metrics.get(name)
        if known is not None:
            if type(known) is not type(metric):
                raise self._refused(name, f"is a {_kind(known)} already, and cannot be a {_kind(metric)} too")
            return known
        if name in OF_EVERY_OPERATOR:
            raise self._refused(name, "has the name of a metric that every operator has")
        other = self._exported.setdefault(_UNFIT.sub("_", name), name)
        if other != name:
            raise self._refused(name, f'has the same name in Prometheus as "{other}"')
        if len(self._metrics) >= MOST_METRICS:
            raise self._refused(name, f"is one too many: an operator has at most {MOST_METRICS}")
        self._metrics[name] = metric
        return metric

    def read(self) -> Mapping[str, MetricValue]:
        """Return the current value of every metric, except of those that cannot be read: they never fail the job."""
        values: dict[str, MetricValue] = {}
        for name, metric in list(self._metrics.items()):  # a thread of the function's may add one meanwhile
            try:
                values[name] = _value(metric)
            except Exception:  # noqa: BLE001  what users count, and their functions, may raise anything
                if name not in self._failed:
                    self._failed.add(name)
                    _log.warning(
                        '%s "%s" of operator "%s" has no value: reading it failed',
                        _kind(metric),
                        name,
                        self._operator,
                        exc_info=True,
                    )
        return values

    def _refused(self, name: str, reason: str) -> JobGraphError:
        return JobGraphError(f'metric "{name}" of operator "{self._operator}" {reason}', hint="Give it another name.")


class MetricGroup:
    """Makes metrics, and groups of them. Asking again for a name returns the same metric."""

    def __init__(self, metrics: OperatorMetrics, path: tuple[str, ...] = ()) -> None:
        self._metrics = metrics
        self._path = path

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group within this one; with `extra`, the group of that name within it."""
        group = MetricGroup(self._metrics, (*self._path, _checked("group", name)))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Return a counter, which starts at 0 with every attempt of the job."""
        return self._add(name, Counter())

    def gauge(self, name: str, get: Callable[[], Any]) -> None:
        """Show the result of a function, a number or text; it is called in the slot at the end of every epoch."""
        if not callable(get):
            raise JobGraphError(
                f'gauge "{name}" needs a function that returns its value, not {get!r}',
                hint='Write ctx.metrics.gauge("size", lambda: len(self.cache)).',
            )
        self._add(name, _Gauge(get))

    def histogram(self, name: str) -> Histogram:
        """Return a histogram: `update` it with numbers."""
        return self._add(name, Histogram())

    distribution = histogram
    """PyFlink's name of it."""

    def meter(self, name: str, time_span_in_seconds: float = 60) -> Meter:
        """Return a meter, which shows the rate of events over the time span."""
        if not 1 <= time_span_in_seconds <= 3600:
            raise JobGraphError(
                f'meter "{name}" has a time span of {time_span_in_seconds!r} seconds', hint="Use 1 to 3600 seconds."
            )
        return self._add(name, Meter(float(time_span_in_seconds)))

    def _add(self, name: str, metric: M) -> M:
        added: M = self._metrics.add((*self._path, _checked("metric", name)), metric)
        return added


def _checked(what: str, name: object) -> str:
    """Return a name as Flink's REST shows it: with "_" for the characters that separate scopes."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise JobGraphError(
            f"a {what} cannot have the name {name!r}",
            hint=f'Use 1 to {LONGEST_NAME} letters a to z, digits, "_" and "-".',
        )
    return _SEPARATORS.sub("_", name)


def _kind(metric: object) -> str:
    return type(metric).__name__.strip("_").lower()


def _value(metric: Counter | Meter | Histogram | _Gauge) -> MetricValue:
    match metric:
        case Counter():
            return _plain(metric.get_count())
        case Meter():
            count = _number(metric.get_count())
            if not abs(count) <= _MOST_EVENTS:
                raise ValueError(f"a rate cannot be worked out of {count!r} events")
            return MeterReading(count, metric.time_span_in_seconds)
        case Histogram():
            return metric.get_statistics()
        case _:
            return _plain(metric.get())


def _plain(value: Any) -> MetricValue:
    """Return a value that can be sent and kept as JSON: a finite number, or text of a limited length."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT].encode("utf-8", "replace").decode()
    try:
        number = _number(value)
    except TypeError:
        return _plain(str(value))
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"  # as Flink shows them


def _number(value: Any) -> int | float:
    if isinstance(value, float):
        return float(value)
    try:
        whole = index(value)
    except TypeError:
        return float(value)
    if -_LARGEST <= whole < _LARGEST:
        return whole
    if whole.bit_length() > 1000:
        return math.inf if whole > 0 else -math.inf
    return float(whole)


def _statistics(count: int, ordered: Sequence[float]) -> HistogramStatistics:
    if not ordered:
        return HistogramStatistics(count)
    low, high = ordered[0], ordered[-1]
    scale = _SCALE if max(-low, high) > _SQUARED_SAFELY else 1.0
    scaled = [value / scale for value in ordered]
    mean = math.fsum(scaled) / len(scaled)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / max(1, len(scaled) - 1))
    within = (mean, *(percentile(scaled, percent) for percent in _PERCENTILES))
    mean, *ranks = (min(max(each * scale, low), high) for each in within)  # rounding may lead just outside
    return HistogramStatistics(count, low, high, mean, min(spread * scale, sys.float_info.max), *ranks)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values as Flink's library estimates it: interpolated at position p(n + 1)."""
    place = percent / 100 * (len(ordered) + 1)
    if place < 1:
        return float(ordered[0])
    if place >= len(ordered):
        return float(ordered[-1])
    below = int(place)
    return ordered[below - 1] + (place - below) * (ordered[below] - ordered[below - 1])
