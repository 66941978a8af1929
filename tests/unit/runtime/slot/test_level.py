"""The order in which a level drives its operators, and where what they give goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from checkdam.graph.levels import Edge, JobPlan, Level, Partitioning
from checkdam.graph.operators import ConnectKind, MapKind, Operator, ProcessKind, SideOutputKind
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.runtime.exchange_rows import Wire, wire_before
from checkdam.runtime.slot.event_time import EventTime, SeenTimestamps
from checkdam.runtime.slot.level import RunningLevel, RunningOperator, running_level
from checkdam.runtime.slot.process import Process
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.testing import ManualClock
from checkdam.types.batch import Batch
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.type_info import type_info

TEXT = type_info(str)
RULES = MapStateDescriptor("rules", str, str)


class Noting(Process):
    """Notes every call in a common list, and gives what it is asked to."""

    def __init__(self, name: str, calls: list[str], gives: Mapping[str, str], aside: Mapping[str, str]) -> None:
        self.name, self.calls, self.gives, self.aside = name, calls, gives, aside
        self.emitted: dict[str, Batch] = {}

    def _note(self, what: str, given: str | None = None) -> Batch | None:
        self.calls.append(f"{self.name} {what}")
        kind = what.split()[0]
        if kind in self.aside:
            self.emitted = {"tag": Batch(TEXT, rows=[self.aside[kind]])}
        given = self.gives.get(kind, given)
        return None if given is None else Batch(TEXT, rows=[given])

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        rows = ",".join(map(str, batch.rows))
        return self._note(f"call {side} {rows} {batch.timestamps or ''}".strip(), rows)

    def pull(self) -> Batch | None:
        return self._note("pull")

    def flush(self) -> Batch | None:
        return self._note("flush")

    def advance(self, watermark: int) -> Batch | None:
        return self._note(f"advance {watermark}")

    def take_side_outputs(self) -> Mapping[str, Batch]:
        emitted, self.emitted = self.emitted, {}
        return emitted


class Chain:
    """Operators 1, 2, … of level 1 over edges from operators 100, 101, … of the source side."""

    def __init__(self, operators: list[Operator], edges: list[Edge], outputs: list[Edge] | None = None) -> None:
        self.calls: list[str] = []
        outputs = outputs or []
        level = Level(1, 2, tuple(operators), tuple(edges), tuple(outputs))
        behind = [Level(2, 3, (), tuple(outputs), ())] if outputs else []
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda value: value)
        self.plan = JobPlan(
            name="job",
            operators=tuple(operators),
            source_side=(),
            levels=(level, *behind),
            edges=(*edges, *outputs),
            max_parallelism=128,
            assigners={1: (50,), 2: (50,)},
            strategies={50: strategy},
        )
        self.processes: dict[int, Noting] = {}
        self._level = level

    def open(
        self, gives: dict[int, dict[str, str]] | None = None, aside: dict[int, dict[str, str]] | None = None
    ) -> Any:
        running = {}
        for op in self._level.operators:
            process = Noting(op.name, self.calls, (gives or {}).get(op.id, {}), (aside or {}).get(op.id, {}))
            running[op.id] = RunningOperator(op, process)
        self.event_time = EventTime(self.plan, ManualClock())
        return running_level(self.plan, self._level, running, self.event_time)

    @property
    def wire(self) -> Wire:
        wire = wire_before(self.plan, 1)
        assert wire is not None
        return wire

    def batch(self, edge: Edge, *rows: str, timestamps: list[int] | None = None) -> pa.RecordBatch:
        return self.wire.pack(edge, to_arrow(TEXT, list(rows)), None, timestamps)


def operator(number: int, name: str, kind: Any = None, inputs: tuple[int, ...] = (), **more: Any) -> Operator:
    return Operator(number, name, kind or MapKind(str), inputs, TEXT, **more)


def edge(number: int, source: int, target: int, **more: Any) -> Edge:
    base = Edge(number, source, target, 1, Partitioning.ORIGIN, 2, TEXT)
    return replace(base, **more)


def test_at_its_end_each_operator_is_pulled_flushed_and_advanced_before_the_next_one_is() -> None:
    chain = Chain([operator(1, "one", inputs=(100,)), operator(2, "two", inputs=(1,))], [edge(0, 100, 1)])
    level = chain.open(gives={1: {"pull": "p", "flush": "f", "advance": "a"}})
    control = SeenTimestamps()
    control.observe(50, 10)

    list(level.receive(chain.batch(chain.plan.edges[0], "r")))
    list(level.receive(chain.wire.pack_control(control.control(), 1)))
    list(level.flush())

    assert chain.calls == [
        "one call 0 r",
        "two call 0 r",
        "one pull",
        "two call 0 p",
        "one flush",
        "two call 0 f",
        "one advance 9",
        "two call 0 a",
        "two pull",
        "two flush",
        "two advance 9",
    ]
    assert [(r.records_in, r.records_out) for r in level.operators.values()] == [(1, 4), (4, 4)]


def test_records_beside_a_broadcast_side_wait_until_the_end_of_the_level_in_every_epoch() -> None:
    kind = ConnectKind(None, (RULES,))
    chain = Chain(
        [operator(1, "match", kind, (100,), second_inputs=(101,))],
        [edge(0, 100, 1), edge(1, 101, 1, side=1, partitioning=Partitioning.BROADCAST)],
    )
    level = chain.open()
    items, rules = chain.plan.edges

    for _ in range(2):
        list(level.receive(chain.batch(items, "item")))
        list(level.receive(chain.batch(rules, "rule")))
        list(level.receive(chain.batch(items, "another")))
        list(level.flush())

    once = ["match call 1 rule", "match call 0 item", "match call 0 another"]
    ends = [call for call in chain.calls if " call " in call]
    assert ends == once * 2
    assert chain.calls.index("match pull") == 3


def test_each_side_of_connected_streams_comes_with_its_number_and_timestamps() -> None:
    chain = Chain(
        [operator(1, "both", ConnectKind(None), (100,), second_inputs=(101,))],
        [edge(0, 100, 1), edge(1, 101, 1, side=1, has_timestamps=True)],
    )
    level = chain.open()
    first, second = chain.plan.edges

    list(level.receive(chain.batch(first, "a")))
    list(level.receive(chain.batch(second, "b", timestamps=[7])))

    assert chain.calls == ["both call 0 a", "both call 1 b [7]"]


def test_side_outputs_of_every_call_reach_only_the_operators_behind_their_tag() -> None:
    chain = Chain(
        [
            operator(1, "split", ProcessKind(None), (100,)),
            operator(2, "tag", SideOutputKind("tag"), (1,)),
            operator(3, "other tag", SideOutputKind("other"), (1,)),
            operator(4, "main", inputs=(1,)),
            operator(5, "aside", inputs=(2,)),
            operator(6, "nothing", inputs=(3,)),
        ],
        [edge(0, 100, 1)],
    )
    level = chain.open(aside={1: {"call": "s1", "advance": "s2"}})

    list(level.receive(chain.batch(chain.plan.edges[0], "r")))
    list(level.flush())

    calls = [call for call in chain.calls if " call " in call]
    assert calls == ["split call 0 r", "main call 0 r", "aside call 0 s1", "aside call 0 s2"]
    assert [(level.operators[op].records_in, level.operators[op].records_out) for op in (2, 3)] == [(2, 2), (0, 0)]


def test_what_was_seen_of_event_time_is_told_to_every_partition_behind_after_all_records() -> None:
    out = edge(1, 1, 9, level=2, has_timestamps=True)
    chain = Chain([operator(1, "one", inputs=(100,))], [edge(0, 100, 1)], [out])
    level = chain.open(gives={1: {"advance": "late"}})
    level.event_time.observe(50, 30)

    records, control = level.flush()

    wire = level.wire_out
    assert [from_arrow(TEXT, rows.values) for rows in wire.unpack(records)] == [["late"]]
    assert control.column(1).to_pylist() == [0, 1, 2]
    behind = EventTime(chain.plan, ManualClock())
    behind.merge_control(wire.unpack_control(control)[0])
    assert behind.watermark_of(1) == 29


def test_without_event_time_nothing_but_records_leaves() -> None:
    out = edge(1, 1, 9, level=2)
    chain = Chain([operator(1, "one", inputs=(100,))], [edge(0, 100, 1)], [out])
    chain.plan = replace(chain.plan, assigners={}, strategies={})
    level = chain.open()

    sent = [*level.receive(chain.batch(chain.plan.edges[0], "r")), *level.flush()]

    assert [batch.schema.names for batch in sent] == [["e1_0"]]
    assert isinstance(level, RunningLevel)


def test_records_that_go_two_ways_keep_their_timestamps_on_both() -> None:
    operators = [operator(1, "one", inputs=(100,)), operator(2, "two", inputs=(100,))]
    chain = Chain(operators, [edge(0, 100, 1)])
    level = chain.open()
    lists = type_info(list[str])  # can be changed in place, so each gets its own

    list(level.pass_on(100, Batch(lists, rows=[["a"]], timestamps=[7]).with_timestamps([8])))

    assert chain.calls == ["one call 0 ['a'] [8]", "two call 0 ['a'] [8]"]
