"""Predicts what a restore does to each state and source position of a checkpoint. Restores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from checkdam.backends.restoring import other_keys, reading_of, verdict_of
from checkdam.backends.snapshot_contents import describe_handle, describe_keys, verify_handle
from checkdam.backends.state_file import StateInfo
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.checkpoint.operator_state_file import redistribute, unpack
from checkdam.errors import StateNotRestorableError
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator, WindowKind
from checkdam.graph.windowing.assigners import MergingWindowAssigner
from checkdam.graph.windowing.window_contents import MERGING_WINDOWS, WINDOW_CONTENTS
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.ids import OperatorUid, SubtaskIndex
from checkdam.runtime.driver.dry_open import Declared, states_of
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.slot.windows.restored_windows import check_merging
from checkdam.runtime.source_position import (
    Outcome,
    SourceChoices,
    SourceOutcome,
    decode_position,
    job_sources,
    match_sources,
)
from checkdam.runtime.spark.offsets import check_files
from checkdam.state.snapshot_handles import OperatorStatePart, Redistribution
from checkdam.state.spec import StateKind, StateSpec
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree
from checkdam.types.evolution import Compatibility, compare

_WORDS = {
    Redistribution.SPLIT: "list (operator)",
    Redistribution.UNION: "union list",
    Redistribution.BROADCAST: "broadcast",
}


class Fate(StrEnum):
    AS_IS = Compatibility.AS_IS.value
    MIGRATES = Compatibility.MIGRATES.value
    NEW = "new"
    CARRIED = "carried along"
    DROPPED = "dropped"
    INCOMPATIBLE = Compatibility.INCOMPATIBLE.value


@dataclass(frozen=True)
class StateReport:
    """The outcome for one state; `is_refused` if the job would not start because of it."""

    uid: str
    operator: str
    state: str
    kind: str
    fate: Fate
    reason: str = ""
    is_refused: bool = False


def check_restore(plan: JobPlan, restored: Restored, choices: SourceChoices) -> list[StateReport]:
    """Report on every state and source of the job and of the checkpoint, operator by operator.

    Reads and checks every byte that a restore reads, so that a damaged file is found here first.

    Raises:
        CheckpointDamagedError, FormatTooNewError: a file of the checkpoint cannot be read or is altered.
        UserFunctionError, JobGraphError: a function cannot be opened.
    """
    checkpoint = restored.checkpoint
    position = decode_position(checkpoint.source_position)
    outcomes, taken = match_sources(position, checkpoint.epoch, job_sources(plan), choices)
    check_files(msgspec.structs.replace(position, held=taken))
    storage = subtree(open_storage(restored.storage), restored.directory)
    entries = {entry.uid: entry for entry in restored.checkpoint.operators}
    reports = list(map(_of_source, outcomes))
    for operator in plan.operators:
        if operator.uid is not None and (operator.is_stateful or operator.uid in entries):
            held = _Held(storage, entries.pop(operator.uid, None))
            held.verify()
            reports += _of_operator(operator, held, plan.key_groups_of(operator.id))
    for entry in entries.values():
        reports += _of_dropped(_Held(storage, entry), is_refused=not choices.allow_non_restored_state)
    return reports


_FATES = {
    Outcome.RESTORED: Fate.AS_IS,
    Outcome.NEW: Fate.NEW,
    Outcome.NOT_IN_JOB: Fate.DROPPED,
    Outcome.REFUSED: Fate.INCOMPATIBLE,
}


def _of_source(outcome: SourceOutcome) -> StateReport:
    reason = outcome.reason
    if outcome.is_refused:
        reason = f"{reason}. {outcome.hint}"
    fate = _FATES[outcome.outcome]
    return StateReport(outcome.uid, outcome.name, "position", "source", fate, reason, outcome.is_refused)


class _Held:
    """The state of one operator in a checkpoint; empty for a new operator."""

    def __init__(self, storage: Storage, entry: OperatorEntry | None) -> None:
        self.entry = entry
        self._storage = storage
        self.keyed: dict[str, StateInfo] = {}
        self.keys: tuple[str, int] | None = None
        self.operator: dict[str, OperatorStatePart] = {}
        if entry is not None:
            for keyed in entry.subtasks.values():
                self.keyed.update((info.name, info) for info in describe_handle(keyed, storage))
                self.keys = self.keys or describe_keys(keyed, storage)
            for handle in entry.operator_states.values():
                for part in unpack(handle, storage.read):
                    if part.elements or part.name not in self.operator:  # an empty list fits any type
                        self.operator[part.name] = part

    def verify(self) -> None:
        """Check the bytes of keyed state; those of operator state were checked when it was unpacked."""
        if self.entry is not None:
            for keyed in self.entry.subtasks.values():
                verify_handle(keyed, self._storage)

    def dealt_out(self) -> Mapping[tuple[str, Redistribution], OperatorStatePart]:
        """Return all operator state, as a single subtask would get it."""
        if self.entry is None or not self.entry.operator_states:
            return {}
        subtasks = map(SubtaskIndex, range(self.entry.parallelism))
        handles = [self.entry.operator_states.get(subtask) for subtask in subtasks]
        return redistribute(handles, self.entry.parallelism, 1, 0, self._storage.read)


def _of_operator(operator: Operator, held: _Held, key_groups: int) -> Iterator[StateReport]:
    assert operator.uid is not None
    declared = states_of(operator, held.dealt_out(), max_parallelism=key_groups, is_restored=held.entry is not None)
    wrong_keys = _wrong_keys(operator, held, key_groups)
    other_windows = _other_windows(operator, held)
    for name, info in held.keyed.items():
        fate, reason = _unused() if name not in declared.keyed else _keyed(operator.uid, info, declared.keyed[name])
        if name == WINDOW_CONTENTS and fate is not Fate.INCOMPATIBLE:
            reason = "; ".join(filter(None, (reason, _of_open_windows(operator))))
        if name in (WINDOW_CONTENTS, MERGING_WINDOWS) and other_windows:
            fate, reason = Fate.INCOMPATIBLE, other_windows
        if wrong_keys:
            fate, reason = Fate.INCOMPATIBLE, wrong_keys
        yield _report(operator, name, info.kind, fate, reason)
    for name, part in held.operator.items():
        fate, reason = _operator_state(part, declared)
        yield _report(operator, name, _WORDS[part.redistribution], fate, reason)
    for name, spec in declared.keyed.items():
        if name not in held.keyed and spec.kind is not StateKind.TIMER:  # an operator without timers has nothing new
            yield _report(operator, name, spec.kind.value, Fate.NEW, "starts empty")
    for name, (redistribution, _) in declared.operator.items():
        if name not in held.operator:
            yield _report(operator, name, _WORDS[redistribution], Fate.NEW, "starts empty")
    if held.entry is not None and held.entry.committables:
        yield _report(operator, "", "output", Fate.AS_IS, f"{_outputs(held.entry)} published on restore")


def _of_dropped(held: _Held, *, is_refused: bool) -> Iterator[StateReport]:
    entry = held.entry
    assert entry is not None
    reason = "the job has no operator of this uid"
    if is_refused:
        reason += "; refused without --allow-non-restored-state"
    states = [(info.name, info.kind) for info in held.keyed.values()]
    states += [(part.name, _WORDS[part.redistribution]) for part in held.operator.values()]
    states += [("", "output")] if entry.committables else []
    for name, kind in states:
        yield StateReport(entry.uid, entry.name, name, kind, Fate.DROPPED, reason, is_refused)


def _report(operator: Operator, state: str, kind: str, fate: Fate, reason: str) -> StateReport:
    assert operator.uid is not None
    return StateReport(operator.uid, operator.name, state, kind, fate, reason, fate is Fate.INCOMPATIBLE)


def _wrong_keys(operator: Operator, held: _Held, key_groups: int) -> str:
    """Return why no keyed state of the operator can be restored; "" if its key type is unchanged."""
    if held.keys is None:
        return ""
    was, groups = held.keys
    if operator.key is None:
        return "the operator had keys and has none in the job"
    other = other_keys(was, operator.key.type)
    if other is not None:
        return f"its keys were {other[0]} and are {other[1]} in the job"
    if groups != key_groups:
        return f"its max parallelism was {groups} and is {key_groups} in the job"
    return ""


def _other_windows(operator: Operator, held: _Held) -> str:
    """Return why the windows of the operator cannot be restored as its windows in the job; "" if they can."""
    if isinstance(operator.kind, WindowKind) and operator.uid is not None:
        try:
            check_merging(operator.uid, operator.kind, held.keyed)
        except StateNotRestorableError as refusal:
            return str(refusal)
    return ""


def _of_open_windows(operator: Operator) -> str:
    """Return what becomes of open windows if their size has changed: the checkpoint does not tell the old one."""
    kind = operator.kind
    if not isinstance(kind, WindowKind) or kind.assigner.window_type is not TimeWindow:
        return ""
    measure = "gap" if isinstance(kind.assigner, MergingWindowAssigner) else "size"
    return f"windows keep their own bounds; records from now on go to windows of the program's {measure}"


def _unused() -> tuple[Fate, str]:
    return Fate.CARRIED, "not asked for when the function opens; kept, and restored if it asks for it later"


def _keyed(uid: OperatorUid, stored: StateInfo, spec: StateSpec) -> tuple[Fate, str]:
    try:
        reading_of(uid, stored, spec)
    except StateNotRestorableError as refusal:
        return Fate.INCOMPATIBLE, str(refusal)
    verdict = verdict_of(stored, spec)
    return Fate(verdict.kind.value), verdict.reason


def _operator_state(part: OperatorStatePart, declared: Declared) -> tuple[Fate, str]:
    if part.name not in declared.operator:
        return _unused()
    redistribution, of = declared.operator[part.name]
    if redistribution is not part.redistribution:
        return Fate.INCOMPATIBLE, f"was {_WORDS[part.redistribution]} and is {_WORDS[redistribution]} in the job"
    if not part.elements:
        return Fate.AS_IS, "empty"
    verdict = compare(part.type, of)
    return Fate(verdict.kind.value), " ".join(filter(None, (verdict.reason, verdict.hint)))


def _outputs(entry: OperatorEntry) -> str:
    count = len(entry.committables)
    return "1 output is" if count == 1 else f"{count} outputs are"


def is_refused(reports: Sequence[StateReport]) -> bool:
    """Return whether the job would not start."""
    return any(report.is_refused for report in reports)
