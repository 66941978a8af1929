"""Counts of the operators upstream of the first exchange, which Spark runs and no slot can count."""

from __future__ import annotations

from collections.abc import Mapping

from checkdam.graph.levels import JobPlan, Partitioning
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.slot.messages import EdgeCounts, OperatorCounts


def source_side_counts(plan: JobPlan, stats: EpochStats) -> Mapping[int, OperatorCounts]:
    """Return the counts of each operator of level 0 in an epoch.

    Python work has been counted where it ran. Where Spark did everything, the path to an edge only picks fields, record
    for record: every operator on it has seen as many records as came out of the exchange.
    """
    received = _received(plan, stats)
    counts = dict(stats.source_side)
    behind: dict[int, int] = {}  # by operator, the records that it passed on
    for operator in reversed(plan.source_side):
        known = counts.get(operator.id)
        edges = [received[edge.id] for edge in plan.edges if edge.source == operator.id and edge.id in received]
        if known is None:
            records = max([behind.get(operator.id, 0), *(edge.records for edge in edges)])
            known = OperatorCounts(
                records_in=0 if operator.is_source else records,
                records_out=records,
                bytes_out=sum(edge.bytes for edge in edges),
            )
            counts[operator.id] = known
        for upstream in operator.inputs:
            behind[upstream] = max(behind.get(upstream, 0), known.records_in)
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
