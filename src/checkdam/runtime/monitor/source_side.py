"""Counts of the operators upstream of the first exchange, which Spark runs and no slot can count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from checkdam.graph.levels import JobPlan, Partitioning
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.slot.messages import EdgeCounts, OperatorCounts


def source_side_counts(plan: JobPlan, stats: EpochStats) -> Mapping[tuple[int, int], OperatorCounts]:
    """Return the counts of each operator of level 0 in an epoch, by operator and subtask.

    Python work has been counted where it ran. Where Spark did everything, the path to an edge only picks fields, record
    for record: every operator on it has seen as many records as came out of the exchange. By which task is not known:
    all of them count for subtask 0. Nor is known how long Spark's own work took, such as reading.
    """
    received = _received(plan, stats)
    sources = {operator.id for operator in plan.source_side if operator.is_source}
    counts = {of: replace(each, is_timed=False) if of[0] in sources else each for of, each in stats.source_side.items()}
    behind: dict[int, int] = {}  # by operator, the records that it passed on
    for operator in reversed(plan.source_side):
        known = [each for of, each in counts.items() if of[0] == operator.id]
        if not known:
            edges = [received[edge.id] for edge in plan.edges if edge.source == operator.id and edge.id in received]
            records = max([behind.get(operator.id, 0), *(edge.records for edge in edges)])
            derived = OperatorCounts(
                records_in=0 if operator.is_source else records,
                records_out=records,
                bytes_out=sum(edge.bytes for edge in edges),
                is_timed=False,
            )
            counts[operator.id, 0] = derived
            known = [derived]
        for upstream in operator.inputs:
            behind[upstream] = max(behind.get(upstream, 0), sum(each.records_in for each in known))
    return counts


def _received(plan: JobPlan, stats: EpochStats) -> dict[int, EdgeCounts]:
    """Return what all downstream subtasks received, by edge; a broadcast record counts once."""
    together: dict[int, EdgeCounts] = {}
    copied = {edge.id for edge in plan.edges if edge.partitioning is Partitioning.BROADCAST}
    for report in stats.reports:
        for edge, counts in report.received.items():
            before = together.get(edge, EdgeCounts())
            if edge not in copied:
                counts = EdgeCounts(before.records + counts.records, before.bytes + counts.bytes)
            elif before.records:
                counts = EdgeCounts(max(before.records, counts.records), before.bytes + counts.bytes)
            together[edge] = counts
    return together
