"""Checks of a graph before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from checkdam.errors import JobGraphError
from checkdam.graph.operators import Operator, SinkFunctionKind, SinkKind, SourceFunctionKind
from checkdam.ids import OperatorUid
from checkdam.state.key_groups import MAX_PARALLELISM_LIMIT


def without_dead_ends(operators: Sequence[Operator]) -> list[Operator]:
    """Keep only operators that lead to a sink or keep state: an unread source would still cost a scan."""
    if not any(_is_an_end(op) for op in operators):
        raise JobGraphError(
            "the job has no sink and keeps no state, so it would do nothing",
            hint="End a stream with print(), sink_to_files(path), sink_to_spark(function) or add_sink(function).",
        )
    wanted: set[int] = set()
    for op in reversed(operators):
        if _is_an_end(op) or op.id in wanted:
            wanted.add(op.id)
            wanted.update(op.all_inputs)
    return [op for op in operators if op.id in wanted]


def _is_an_end(op: Operator) -> bool:
    if isinstance(op.kind, SourceFunctionKind):
        return op.checkpointed_function is not None  # any other operator without readers has no visible effect
    return isinstance(op.kind, SinkKind | SinkFunctionKind) or op.is_stateful


def check_uids(operators: Sequence[Operator]) -> None:
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


def check_event_time(operators: Sequence[Operator], stamped: Collection[int]) -> None:
    """Check that records have timestamps where windows need them; `stamped` are the operators behind an assignment."""
    for op in operators:
        if op.needs_timestamps and any(i not in stamped for i in op.all_inputs):
            raise JobGraphError(
                f'operator "{op.name}" works in event time, and its records have no timestamps',
                hint="Call assign_timestamps_and_watermarks(WatermarkStrategy…) in front of it, before key_by.",
            )


def check_max_parallelism(operators: Sequence[Operator], groups: int) -> None:
    """Check that the max parallelism of the job and of each operator is valid."""
    named = [
        (f' of operator "{op.name}"', op.max_parallelism, "Give set_max_parallelism()")
        for op in operators
        if op.max_parallelism is not None
    ]
    for who, number, remedy in [("", groups, "Set pipeline.max-parallelism to"), *named]:
        if not 1 <= number <= MAX_PARALLELISM_LIMIT:
            raise JobGraphError(
                f"max parallelism {number}{who} is not between 1 and {MAX_PARALLELISM_LIMIT}",
                hint=f"{remedy} a number in that range.",
            )


def check_parallelism(operators: Sequence[Operator], parallelism: int, groups: int, widths: Mapping[int, int]) -> None:
    """Check that no operator has more subtasks than key groups: the surplus could never have anything to do."""
    if not 1 <= parallelism <= groups:
        raise JobGraphError(
            f"parallelism {parallelism} of the job is not between 1 and the max parallelism {groups}",
            hint=f"Lower the parallelism, or raise pipeline.max-parallelism to at least {parallelism} in a new job.",
        )
    for op in operators:
        width, limit = widths[op.id], op.max_parallelism or groups
        if not 1 <= width <= limit:
            where = "pipeline.max-parallelism" if op.max_parallelism is None else "its set_max_parallelism()"
            raise JobGraphError(
                f'parallelism {width} of operator "{op.name}" is not between 1 and the max parallelism {limit}',
                hint=f"Lower it with set_parallelism(), or raise {where} to at least {width} in a new job.",
            )
