"""The epochs of one attempt: the last one, what its slots reported, and when one without records is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkdam.clock import Clock, to_milliseconds
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SourceFunctionKind
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts
from checkdam.state.state_count import count_of_parts


class PendingEpoch:
    """The work that is due although no records come, as reported by the slots at the end of the last epoch."""

    def __init__(self, plan: JobPlan, clock: Clock, *, restored: bool) -> None:
        self._clock = clock
        self.has_unfinished_sources = any(isinstance(op.kind, SourceFunctionKind) for op in plan.operators)
        self._are_sources_ready = self.has_unfinished_sources
        self._signals: dict[SubtaskIndex, int] = {}  # of each slot, at the end of its last epoch
        self._newest_signals: dict[SubtaskIndex, int] = {}  # according to its heartbeats
        # Timers in a restored checkpoint may be due already: only an epoch can find out.
        self._next_due: int | None = 0 if restored and plan.has_ticks else None

    def epoch_ended(self, reports: Sequence[EpochReport]) -> None:
        self.has_unfinished_sources = any(report.unfinished_sources for report in reports)
        self._are_sources_ready = any(report.ready_sources for report in reports)
        self._signals = {report.subtask: report.signals for report in reports}
        self._next_due = min((r.next_due for r in reports if r.next_due is not None), default=None)

    def signalled(self, subtask: SubtaskIndex, signals: int) -> None:
        """Record how often source functions of a slot have asked for an epoch."""
        self._newest_signals[subtask] = max(signals, self._newest_signals.get(subtask, 0))

    @property
    def has_ready_sources(self) -> bool:
        """Whether a source function has records for an epoch, rather than waiting for some."""
        return self._are_sources_ready or any(
            signals > self._signals.get(subtask, 0) for subtask, signals in self._newest_signals.items()
        )

    def seconds_until_due(self) -> float | None:
        """Return the seconds until an epoch without records should run; None if nothing waits for time to pass."""
        if self.has_ready_sources:
            return 0.0
        if self._next_due is None:
            return None
        return max(0, self._next_due - to_milliseconds(self._clock.now())) / 1000


def furthest(*known: Mapping[int, int]) -> dict[int, int]:
    """Return the largest timestamp of each operator."""
    result: dict[int, int] = {}
    for each in known:
        for of, timestamp in each.items():
            result[of] = max(timestamp, result.get(of, timestamp))
    return result


def epoch_stats(
    plan: JobPlan,
    epoch: Epoch,
    reports: Sequence[EpochReport],
    source_counts: Mapping[tuple[int, int], OperatorCounts],
    seconds: float,
) -> EpochStats:
    """Sum up the slots' reports of an epoch."""
    heads = {edge.target for edge in plan.edges if edge.level == 1}
    made = {op.id for op in plan.operators if isinstance(op.kind, SourceFunctionKind)}
    counts = [(op, each) for report in reports for op, each in report.operators.items()]
    records = sum(each.records_in for op, each in counts if op in heads)
    records += sum(each.records_out for op, each in counts if op in made)
    held = count_of_parts(each.held for _, each in counts)
    return EpochStats(epoch, records, seconds, held, reports, source_counts)
