"""From a graph to levels: which operators run together, and which edges cross an exchange.

Level 0 is the source side: sources and the plain functions behind them, run by Spark wherever the records are.
Every other level lives in the slots; an edge into it is a shuffle. A level's operators are chained in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from checkdam.errors import JobGraphError
from checkdam.graph.operators import KeySelector, Operator, SinkKind
from checkdam.ids import OperatorUid
from checkdam.state.key_groups import DEFAULT_MAX_PARALLELISM
from checkdam.state.types import TypeInfo

MAX_PARALLELISM_LIMIT = 32768


class Partitioning(Enum):
    KEYED = "keyed"
    REBALANCE = "rebalance"
    FORWARD = "forward"


@dataclass(frozen=True)
class Edge:
    """Records of `source` that cross an exchange to `target`, an operator of a later level.

    A target of None leaves the slots altogether: the records go back to Spark, for the sink of that id.
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


@dataclass(frozen=True)
class Level:
    """What the slots do between two exchanges. `carried` edges only pass through to a later level."""

    index: int
    parallelism: int
    operators: tuple[Operator, ...]
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    carried: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class JobPlan:
    """A job as the runtime sees it; travels to every slot."""

    name: str
    operators: tuple[Operator, ...]
    source_side: tuple[Operator, ...]  # level 0
    levels: tuple[Level, ...]  # 1, 2, …
    edges: tuple[Edge, ...]
    max_parallelism: int

    @property
    def slots(self) -> int:
        return max((level.parallelism for level in self.levels), default=1)

    @property
    def spark_sinks(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target is None)

    def wire(self, level: int) -> tuple[Edge, ...]:
        """The edges on the exchange in front of a level: those into it, and those on their way to a later one."""
        at = {operator.id: each.index for each in self.levels for operator in each.operators}
        return tuple(edge for edge in self.edges if at.get(edge.source, 0) < level <= edge.level)

    def for_slots(self) -> JobPlan:
        """The plan without the source side, which stays with the driver: a DataFrame does not travel."""
        here = {operator.id for operator in self.source_side}
        return replace(
            self, source_side=(), operators=tuple(operator for operator in self.operators if operator.id not in here)
        )


def plan_job(name: str, operators: Sequence[Operator], *, parallelism: int, max_parallelism: int | None) -> JobPlan:
    """Decide levels and exchanges, after checking all that can be known before anything runs."""
    operators = _without_dead_ends(operators)
    _check_uids(operators)
    groups = max_parallelism or DEFAULT_MAX_PARALLELISM
    _check_parallelism(operators, parallelism, groups)
    widths = {op.id: op.parallelism or parallelism for op in operators}
    level_of = _levels(operators, widths)
    edges = _edges(operators, level_of, widths)
    return JobPlan(
        name=name,
        operators=tuple(operators),
        source_side=tuple(op for op in operators if level_of[op.id] == 0),
        levels=_slot_levels(operators, level_of, widths, edges),
        edges=edges,
        max_parallelism=groups,
    )


def _without_dead_ends(operators: Sequence[Operator]) -> list[Operator]:
    """Only what leads to a sink or keeps state; a source that nobody reads would still cost a scan."""
    if not any(isinstance(op.kind, SinkKind) or op.is_stateful for op in operators):
        raise JobGraphError(
            "the job has no sink and keeps no state, so it would do nothing",
            hint="End a stream with print(), sink_to_files(path) or sink_to_spark(function).",
        )
    wanted: set[int] = set()
    for op in reversed(operators):
        if isinstance(op.kind, SinkKind) or op.is_stateful or op.id in wanted:
            wanted.add(op.id)
            wanted.update(op.inputs)
    return [op for op in operators if op.id in wanted]


def _check_uids(operators: Sequence[Operator]) -> None:
    seen: dict[OperatorUid, Operator] = {}
    for op in operators:
        if op.uid is None:
            if op.is_stateful:
                raise JobGraphError(
                    f'stateful operator "{op.name}" has no uid',
                    hint=f'Add .uid("…") after it, so that its state is found again; for instance .uid("{op.name}").',
                )
            continue
        if op.uid in seen:
            raise JobGraphError(
                f'operators "{seen[op.uid].name}" and "{op.name}" have the same uid "{op.uid}"',
                hint="Give each operator a uid of its own.",
            )
        seen[op.uid] = op


def _check_parallelism(operators: Sequence[Operator], parallelism: int, groups: int) -> None:
    if not 1 <= groups <= MAX_PARALLELISM_LIMIT:
        raise JobGraphError(
            f"max parallelism {groups} is not between 1 and {MAX_PARALLELISM_LIMIT}",
            hint="Set pipeline.max-parallelism to a number in that range.",
        )
    named = [(f'operator "{op.name}"', op.parallelism) for op in operators if op.parallelism is not None]
    for who, width in [("the job", parallelism), *named]:
        if width < 1 or width > groups:
            raise JobGraphError(
                f"parallelism {width} of {who} is not between 1 and the max parallelism {groups}",
                hint=f"Lower the parallelism, or raise pipeline.max-parallelism to at least {width} in a new job.",
            )


def _levels(operators: Sequence[Operator], widths: dict[int, int]) -> dict[int, int]:
    level: dict[int, int] = {}
    width_at: dict[int, int] = {}  # the parallelism that a slot level was given by its first operator
    for op in operators:
        if not op.inputs:
            level[op.id] = 0
            continue
        deepest = max(level[i] for i in op.inputs)
        if deepest == 0 and not op.needs_slot:
            level[op.id] = 0
            continue
        chained = op.key is None and deepest > 0 and all(widths[i] == widths[op.id] for i in op.inputs if level[i])
        at = deepest if chained else deepest + 1
        while width_at.setdefault(at, widths[op.id]) != widths[op.id]:
            at += 1
        level[op.id] = at
    return level


def _edges(operators: Sequence[Operator], level_of: dict[int, int], widths: dict[int, int]) -> tuple[Edge, ...]:
    by_id = {op.id: op for op in operators}
    edges: list[Edge] = []
    last = max(level_of.values())
    for op in operators:
        for upstream in op.inputs:
            if level_of[upstream] == level_of[op.id]:
                continue
            edge = Edge(
                id=len(edges),
                source=upstream,
                target=op.id,
                level=level_of[op.id],
                partitioning=_partitioning(op, level_of[upstream], widths[upstream], widths[op.id]),
                parallelism=widths[op.id],
                type=by_id[upstream].output_type,
                key=op.key,
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


def _partitioning(target: Operator, source_level: int, source_width: int, target_width: int) -> Partitioning:
    if target.key is not None:
        return Partitioning.KEYED
    same_slots = source_level > 0 and source_width == target_width
    return Partitioning.FORWARD if same_slots else Partitioning.REBALANCE


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
