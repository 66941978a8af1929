"""One window operator or join in slots of its own, built with the ordinary API and run epoch by epoch by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, NamedTuple

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.config import Configuration
from checkdam.graph.contexts import OutputTag
from checkdam.graph.operators import Operator
from checkdam.graph.watermarks import MIN_WATERMARK, WatermarkStrategy
from checkdam.graph.windowing.window_functions import ProcessWindowFunction, WindowContext
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.messages import RestorePoint, SlotSetup
from checkdam.runtime.slot.operator_setup import OpenOperator, SlotResources
from checkdam.runtime.slot.timers import OF_WINDOWS, STATE_NAMES
from checkdam.state.key_groups import key_group_of, subtask_of
from checkdam.state.spec import StateKind
from checkdam.testing import ManualClock, MemoryStorage
from checkdam.testing.local_target import LocalTarget
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.types.batch import Batch
from checkdam.types.serializers import serializer
from checkdam.types.type_info import list_of, tuple_of, type_info

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend()}
UID = OperatorUid("windows")


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Event(NamedTuple):
    """A record: its key, its time in event time, and a number."""

    key: str
    at: int
    n: int = 0


class Shown(NamedTuple):
    """One window that fired: its key, its bounds and the numbers of its records."""

    key: str
    start: int
    end: int
    numbers: list[int]


class Show(ProcessWindowFunction[str, Event, Shown]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[Shown]:
        yield Shown(key, ctx.window.start, ctx.window.end, [each.n for each in elements])


class ShowAnywhere(ProcessWindowFunction[str, Event, tuple[str, list[int]], Any]):
    """For windows without bounds."""

    def process(self, key: str, ctx: WindowContext[Any], elements: Sequence[Event]) -> Iterator[tuple[str, list[int]]]:
        yield key, [each.n for each in elements]


Build = Callable[..., DataStream[Any]]


class OneWindow:
    """All subtasks of one window operator. `build(stream)`, or `build(first, second)`, returns it without a uid.

    Records carry their timestamps in `at`, unless `is_stamped` is False.
    """

    def __init__(
        self,
        build: Build,
        *,
        backend: str = "hashmap",
        record: Any = Event,
        second: Any = None,
        aside: Iterable[OutputTag[Any]] = (),
        is_stamped: bool = True,
        parallelism: int = 1,
        clock: ManualClock | None = None,
        restore: tuple[RestorePoint, MemoryStorage] | None = None,
        watermark: int = MIN_WATERMARK,
    ) -> None:
        self._options: dict[str, Any] = {
            "build": build,
            "backend": backend,
            "record": record,
            "second": second,
            "aside": list(aside),
            "is_stamped": is_stamped,
            "parallelism": parallelism,
        }
        self.clock = clock or ManualClock()
        self.watermark = watermark
        self._is_stamped = is_stamped
        self.operator, plan = self._planned(**self._options)
        assert self.operator.key is not None
        self._key_type = self.operator.key.type
        self._keys = [self.operator.key, self.operator.second_key]
        self._types = [type_info(record), type_info(second) if second is not None else None]
        self._epoch = 0
        self._taken: dict[str, list[Any]] = {tag.name: [] for tag in aside}
        self.stamps: list[int | None] = []  # of all output so far
        self.subtasks: list[OpenOperator] = []
        width = self.operator.parallelism or 1
        self._groups = plan.key_groups_of(self.operator.id)
        for subtask in range(width):
            point, storage = restore if restore is not None else (None, None)
            setup = SlotSetup(
                job_id=JobId("job"),
                attempt=Attempt("try"),
                subtask=SubtaskIndex(subtask),
                plan=plan,
                backend=BACKENDS[backend],
                last_epoch=Epoch(0),
                storage=None,
                restore=point,
            )
            event_time = EventTime(plan, self.clock, reached={self.operator.id: watermark})
            opened = OpenOperator(self.operator, SlotResources(setup, event_time, self.clock, storage))
            self.subtasks.append(opened)
            opened.open()

    # -- epochs

    def epoch(self, *records: Any, second: Sequence[Any] = (), watermark: int | None = None) -> list[Any]:
        """Run one epoch with these records, at the end of which the watermark is there; return its output."""
        self._epoch += 1
        if watermark is not None:
            self.watermark = watermark
        produced: list[Any] = []
        for side, some in enumerate((records, second)):
            for index, batch, keys in self._dealt(side, some):
                produced += self._rows(self.subtasks[index].process(batch, keys, side))
        for opened in self.subtasks:
            produced += self._rows(opened.process.flush())
            produced += self._rows(opened.process.advance(self.watermark))
            for tag, batch in opened.process.take_side_outputs().items():
                self._taken[tag] += batch.rows
            assert opened.store is not None
            opened.store.end_epoch()
        return produced

    def aside(self, tag: OutputTag[Any]) -> list[Any]:
        """Return everything that went to a side output so far."""
        return self._taken[tag.name]

    @property
    def now(self) -> int:
        """The time by the clock, in milliseconds since 1970."""
        return round(self.clock.now().timestamp() * 1000)

    @property
    def function(self) -> Any:
        """The window function of the first subtask."""
        return self.subtasks[0].operator.function.window_function

    # -- state

    def states(self) -> dict[str, dict[Any, Any]]:
        """Return everything that is kept: by name of the state, then by key or by key and window; timers are a list."""
        found: dict[str, dict[Any, Any]] = {}
        for opened in self.subtasks:
            store = opened.store
            assert store is not None
            store.publish(Epoch(self._epoch))
            assert store.published is not None
            for spec in store.published.specs:
                if spec.kind is StateKind.TIMER:
                    continue  # not every backend publishes timers
                holders = serializer(spec.holder_key(self._key_type))
                _, entries, cursor = store.published.page(spec.name, b"", 100_000)
                assert cursor is None
                for holder, value in entries:
                    if spec.map_key is None:
                        content = serializer(spec.value).decode_one(value)
                    else:
                        pairs = serializer(list_of(tuple_of([spec.map_key, spec.value]), list)).decode_one(value)
                        content = dict(pairs)
                    found.setdefault(spec.name, {})[holders.decode_one(holder)] = content
            store.unpublish()
            for name, holder, time in self._kept_timers(opened):
                found.setdefault(name, {}).setdefault(holder, []).append(time)
        return found

    @staticmethod
    def _kept_timers(opened: OpenOperator) -> list[tuple[str, Any, int]]:
        """Return the timers: the name of their state, the key or key and window, and the time."""
        timers = opened.process._timers  # type: ignore[attr-defined]  # every process of windows and joins has them
        return sorted(
            (
                STATE_NAMES[queue.domain] + OF_WINDOWS * queue._has_windows,
                holder[0] if len(holder) == 1 else holder,
                time,
            )
            for queue in (timers.event, timers.processing)
            for *parts, time in queue.members()
            for holder in [tuple(parts)]
        )

    def restored(
        self,
        *,
        backend: str | None = None,
        parallelism: int | None = None,
        build: Callable[..., DataStream[Any]] | None = None,
    ) -> OneWindow:
        """Close it, and open the same operator, or one that is built in another way, on its state."""
        storage = MemoryStorage()
        handles = []
        for opened in self.subtasks:
            assert opened.store is not None
            sealed = opened.store.snapshot(CheckpointId(1), full=True)
            handles.append(sealed.write_whole(storage, None, canonical=True))
        self.close()
        point = RestorePoint("", "", {UID: tuple(handles)}, claim=False)
        changes = {"backend": backend, "parallelism": parallelism, "build": build}
        options = {**self._options, **{name: value for name, value in changes.items() if value is not None}}
        return OneWindow(**options, clock=self.clock, restore=(point, storage), watermark=self.watermark)

    def close(self) -> None:
        for opened in self.subtasks:
            for closing in opened.closings():
                closing()

    def __enter__(self) -> OneWindow:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _planned(self, **options: Any) -> tuple[Operator, Any]:
        environment = StreamExecutionEnvironment(Launch(Configuration(), target=LocalTarget()))
        environment.set_parallelism(options["parallelism"])
        streams = [
            environment._source(name, ScriptedSource(()), type_info(of))
            for name, of in (("first", options["record"]), ("second", options["second"]))
            if of is not None
        ]
        if options["is_stamped"]:
            by_time = WatermarkStrategy.for_monotonous_timestamps(lambda record: record.at)
            streams = [each.assign_timestamps_and_watermarks(by_time) for each in streams]
        built = options["build"](*streams).uid(UID)
        built.print()
        for tag in options["aside"]:
            built.get_side_output(tag).print()
        plan = environment._prepare("windows").job.plan
        operator = next(op for op in plan.operators if op.uid == UID)
        return replace(operator, parallelism=operator.parallelism or options["parallelism"]), plan

    def _dealt(self, side: int, records: Sequence[Any]) -> Iterator[tuple[int, Batch, Batch]]:
        """Yield the records of each subtask, with their keys."""
        key, of = self._keys[side], self._types[side]
        if not records:
            return
        assert key is not None
        assert of is not None
        select = key.function or (lambda record: _column(record, key.columns[0]))  # type: ignore[index]
        for index in range(len(self.subtasks)):
            mine = [(record, select(record)) for record in records if self._subtask_of(select(record)) == index]
            if mine:
                stamps: list[int | None] | None = [each.at for each, _ in mine] if self._is_stamped else None
                batch = Batch(of, rows=[each for each, _ in mine], timestamps=stamps)
                yield index, batch, Batch(key.type, rows=[each for _, each in mine])

    def _subtask_of(self, key: Any) -> int:
        return subtask_of(key_group_of(key, self._key_type, self._groups), len(self.subtasks), self._groups)

    def _rows(self, batch: Batch | None) -> list[Any]:
        if batch is None:
            return []
        self.stamps += batch.timestamps if batch.timestamps is not None else [None] * len(batch)
        return batch.rows


def _column(record: Any, index: int) -> Any:
    return record[index] if isinstance(record, tuple) else getattr(record, fields(record)[index].name)
