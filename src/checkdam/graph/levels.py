"""Planning: which operators run together as a level, and which edges cross an exchange.

Level 0 is the source side: Spark's sources and the plain functions downstream of them, run by Spark where the records
are. Every other level runs in the slots; an edge into it is a shuffle. The operators of a level are chained in order.
A level that consists only of source functions has no incoming edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from checkdam.graph.checks import (
    check_event_time,
    check_max_parallelism,
    check_parallelism,
    check_uids,
    without_dead_ends,
)
from checkdam.graph.operators import (
    KeySelector,
    MapKind,
    Operator,
    SideOutputKind,
    SinkKind,
    SourceFunctionKind,
    SourceKind,
    TimestampsKind,
)
from checkdam.graph.pickle_check import check_picklable
from checkdam.graph.source_uids import with_source_uids
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.key_groups import DEFAULT_MAX_PARALLELISM
from checkdam.types.type_info import TypeInfo


class Partitioning(Enum):
    """How records are assigned to subtasks. All except REBALANCE keep the order of records between two subtasks."""

    KEYED = "keyed"  # by its key
    FORWARD = "forward"  # to the subtask with the number of the sending one
    ORIGIN = "origin"  # by the sending subtask or source partition: a fixed target for each, where the numbers differ
    REBALANCE = "rebalance"  # to any, in even shares, because the job asks for it
    BROADCAST = "broadcast"  # to all subtasks


@dataclass(frozen=True)
class Edge:
    """Records of `source` that cross an exchange to `target`, an operator of a later level.

    If the target is None, the records leave the slots: they return to Spark, for the sink of that id.
    """

    id: int
    source: int
    target: int | None
    level: int  # the level of the target
    partitioning: Partitioning
    parallelism: int
    type: TypeInfo
    key: KeySelector | None = None
    spark_sink: int | None = None
    side: int = 0  # 1: into the second input of a connected operator
    has_timestamps: bool = False  # downstream of an assigner: records carry their event time, if they have one
    unread_source: str | None = None  # the name of the source whose records Spark may move here without Python


@dataclass(frozen=True)
class Level:
    """The work of the slots between two exchanges. `carried` edges only pass through to a later level."""

    index: int
    parallelism: int
    operators: tuple[Operator, ...]
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    carried: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class JobPlan:
    """A job as the runtime sees it; sent to every slot."""

    name: str
    operators: tuple[Operator, ...]
    source_side: tuple[Operator, ...]  # level 0
    levels: tuple[Level, ...]  # 1, 2, …
    edges: tuple[Edge, ...]
    max_parallelism: int
    assigners: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For every operator downstream of a timestamp assignment: the nearest upstream TimestampsKind operators, or
    itself if it is one; a later assignment replaces an earlier one.
    """
    static_assigners: frozenset[int] = frozenset()  # those whose records all arrive in epoch 0
    ending_assigners: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The assigners that see no more records once these source functions have ended."""
    strategies: Mapping[int, WatermarkStrategy[Any]] = field(default_factory=dict)
    """The watermark strategy of every assigner, on any level."""
    parallelism: int = 1  # of operators that do not set their own

    @property
    def has_event_time(self) -> bool:
        return bool(self.assigners)

    @property
    def has_ticks(self) -> bool:
        """Whether work may be due without new records: timers, source functions, idle streams."""
        return any(op.has_timers or isinstance(op.kind, SourceFunctionKind) for op in self.operators) or any(
            strategy.idleness is not None for strategy in self.strategies.values()
        )

    @property
    def slots(self) -> int:
        return max((level.parallelism for level in self.levels), default=1)

    @property
    def spark_sinks(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target is None)

    def key_groups_of(self, operator: int) -> int:
        """Return the number of key groups of an operator's state: its own max parallelism, else the job's."""
        own = next(op.max_parallelism for op in self.operators if op.id == operator)
        return own or self.max_parallelism

    def side_outputs_of(self, operator: int) -> Mapping[str, Operator]:
        """Return, by tag, the operators that stand for an operator's side outputs; without tags that have no reader."""
        return {
            op.kind.tag: op for op in self.operators if isinstance(op.kind, SideOutputKind) and operator in op.inputs
        }

    def wire(self, level: int) -> tuple[Edge, ...]:
        """Return the edges on the exchange before a level: those into it, and those passing through to a later one."""
        at = {operator.id: each.index for each in self.levels for operator in each.operators}
        return tuple(edge for edge in self.edges if at.get(edge.source, 0) < level <= edge.level)

    def for_slots(self) -> JobPlan:
        """Return the plan without the source side, which stays in the driver: a DataFrame cannot be sent."""
        here = {operator.id for operator in self.source_side}
        return replace(
            self, source_side=(), operators=tuple(operator for operator in self.operators if operator.id not in here)
        )


def plan_job(name: str, operators: Sequence[Operator], *, parallelism: int, max_parallelism: int | None) -> JobPlan:
    """Assign operators to levels and exchanges, after all checks that are possible before anything runs."""
    operators = with_source_uids(without_dead_ends(operators))
    check_uids(operators)
    check_picklable(operators)
    groups = DEFAULT_MAX_PARALLELISM if max_parallelism is None else max_parallelism
    check_max_parallelism(operators, groups)
    level_of, widths = _placed(operators, parallelism)
    check_parallelism(operators, parallelism, groups, widths)
    assigners = _assigners(operators)
    check_event_time(operators, assigners)
    ending = _ending_assigners(operators)
    edges = _edges(operators, level_of, widths, assigners)
    return JobPlan(
        name=name,
        operators=tuple(operators),
        source_side=tuple(op for op in operators if level_of[op.id] == 0),
        levels=_slot_levels(operators, level_of, widths, edges),
        edges=edges,
        max_parallelism=groups,
        assigners=assigners,
        static_assigners=frozenset(assigner for assigner, functions in ending.items() if not functions),
        ending_assigners={assigner: functions for assigner, functions in ending.items() if functions},
        strategies={op.id: op.kind.strategy for op in operators if isinstance(op.kind, TimestampsKind)},
        parallelism=parallelism,
    )


def _placed(operators: Sequence[Operator], parallelism: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the level and the parallelism of each operator."""
    level: dict[int, int] = {}
    widths: dict[int, int] = {}
    width_at: dict[int, int] = {}  # the parallelism of a slot level, set by its first operator
    for op in operators:
        width = widths[op.id] = _width(op, parallelism, level, widths)
        at = _first_possible(op, level, widths)
        if at > 0:
            while width_at.setdefault(at, width) != width:
                at += 1
        level[op.id] = at
    return level, widths


def _width(op: Operator, parallelism: int, level: dict[int, int], widths: dict[int, int]) -> int:
    if isinstance(op.kind, SideOutputKind):
        return widths[op.inputs[0]]
    if op.parallelism is None and isinstance(op.kind, TimestampsKind) and not op.is_rebalanced:
        in_front = {widths[i] for i in op.inputs if level[i] > 0}
        if len(in_front) == 1:
            return in_front.pop()  # reading the clock alone is no reason to move records
    return parallelism if op.parallelism is None else op.parallelism


def _first_possible(op: Operator, level: dict[int, int], widths: dict[int, int]) -> int:
    """Return the first level at which all inputs of the operator can reach it; 0 for the source side."""
    if not op.all_inputs:
        return 0 if op.is_source else 1
    if not op.needs_slot and all(level[i] == 0 for i in op.all_inputs):
        return 0
    deepest = max(level[i] for i in op.inputs)
    same_width = all(widths[i] == widths[op.id] for i in op.inputs if level[i])
    chained = op.key is None and not op.is_rebalanced and deepest > 0 and same_width
    at = deepest if chained else deepest + 1
    # A second input is keyed or broadcast, so it always crosses an exchange.
    return max([at, *(level[i] + 1 for i in op.second_inputs)])


def _assigners(operators: Sequence[Operator]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for op in operators:
        in_front = {assigner for i in op.all_inputs for assigner in found.get(i, ())}
        behind = {op.id} if isinstance(op.kind, TimestampsKind) else in_front
        if behind:
            found[op.id] = tuple(sorted(behind))
    return found


def _ending_assigners(operators: Sequence[Operator]) -> dict[int, frozenset[int]]:
    """Return the assigners that can end, each with the source functions that have to end before it.

    Upstream of them are only static sources and source functions, and no timer that could add records later.
    """
    functions: dict[int, frozenset[int]] = {}  # of each operator whose records end
    for op in operators:
        is_endless = op.has_timers or (isinstance(op.kind, SourceKind) and not op.kind.spec.is_static)
        if is_endless or any(i not in functions for i in op.all_inputs):
            continue
        own = {op.id} if isinstance(op.kind, SourceFunctionKind) else set()
        functions[op.id] = frozenset(own.union(*(functions[i] for i in op.all_inputs)))
    return {op.id: functions[op.id] for op in operators if isinstance(op.kind, TimestampsKind) and op.id in functions}


def _edges(
    operators: Sequence[Operator],
    level_of: dict[int, int],
    widths: dict[int, int],
    assigners: Mapping[int, tuple[int, ...]],
) -> tuple[Edge, ...]:
    by_id = {op.id: op for op in operators}
    edges: list[Edge] = []
    last = max(level_of.values())
    for op in operators:
        for side, upstream in [*((0, i) for i in op.inputs), *((1, i) for i in op.second_inputs)]:
            if level_of[upstream] == level_of[op.id]:
                continue
            same_slots = level_of[upstream] > 0 and widths[upstream] == widths[op.id]
            edge = Edge(
                id=len(edges),
                source=upstream,
                target=op.id,
                level=level_of[op.id],
                partitioning=_partitioning(op, side, same_slots=same_slots),
                parallelism=widths[op.id],
                type=by_id[upstream].output_type,
                key=op.second_key if side else op.key,
                side=side,
                has_timestamps=upstream in assigners,
                unread_source=_unread_source(upstream, by_id),
            )
            edges.append(edge)
        if isinstance(op.kind, SinkKind) and op.kind.spec.returns_to_spark:
            edges.append(
                Edge(
                    id=len(edges),
                    source=op.id,
                    target=None,
                    level=last + 1,
                    partitioning=Partitioning.FORWARD,
                    parallelism=widths[op.id],
                    type=op.output_type,
                    spark_sink=op.id,
                )
            )
    return tuple(edges)


def _unread_source(upstream: int, by_id: Mapping[int, Operator]) -> str | None:
    """Return the source of an operator if only maps lie between: if they just pick fields, no Python runs."""
    operator = by_id[upstream]
    while isinstance(operator.kind, MapKind) and len(operator.inputs) == 1:
        operator = by_id[operator.inputs[0]]
    return operator.name if operator.is_source else None


def _partitioning(target: Operator, side: int, *, same_slots: bool) -> Partitioning:
    if (target.second_key if side else target.key) is not None:
        return Partitioning.KEYED
    if side:
        return Partitioning.BROADCAST
    if target.is_rebalanced:
        return Partitioning.REBALANCE
    return Partitioning.FORWARD if same_slots else Partitioning.ORIGIN


def _slot_levels(
    operators: Sequence[Operator], level_of: dict[int, int], widths: dict[int, int], edges: tuple[Edge, ...]
) -> tuple[Level, ...]:
    levels = []
    for index in range(1, max(level_of.values()) + 1):
        members = [replace(op, parallelism=widths[op.id]) for op in operators if level_of[op.id] == index]
        ids = {op.id for op in members}
        carried = tuple(e for e in edges if level_of[e.source] < index < e.level)
        width = max([widths[op.id] for op in members] + [e.parallelism for e in carried])
        levels.append(
            Level(
                index=index,
                parallelism=width,
                operators=tuple(members),
                inputs=tuple(e for e in edges if e.level == index),
                outputs=tuple(e for e in edges if e.source in ids),
                carried=carried,
            )
        )
    return tuple(levels)
