"""A completed checkpoint as Checkdam sees it; `metadata_file` defines its durable form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle, SavepointFormat, StateFile

SOURCES_UID: Final = OperatorUid("checkdam-sources")
RETENTION_SETTING: Final = "retention"
"""The setting that also goes into Flink's checkpoint properties."""
TERM_SETTING: Final = "term"
"""The term of the driver that completed a checkpoint; absent if an older version wrote it."""


@dataclass(frozen=True)
class OperatorEntry:
    """The part of a checkpoint that belongs to one operator.

    `subtasks` has the keyed state and `operator_states` the operator state of the subtasks that have any; `finished`
    subtasks had read all their input and have no other state than these two list.
    """

    uid: OperatorUid
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[SubtaskIndex, KeyedStateHandle] = field(default_factory=dict)
    committables: tuple[bytes, ...] = ()
    coordinator: bytes = b""
    operator_states: Mapping[SubtaskIndex, OperatorStateHandle] = field(default_factory=dict)
    finished: frozenset[SubtaskIndex] = frozenset()

    def files(self) -> frozenset[StateFile]:
        """Return every state file of the operator."""
        return frozenset(self._files())

    @property
    def inline_bytes(self) -> int:
        """The size of the operator state stored inline in the metadata."""
        return sum(handle.inline_bytes for handle in self.operator_states.values())

    @property
    def is_empty(self) -> bool:
        """Whether the entry holds no state, so that dropping it loses nothing."""
        return not (self.subtasks or self.operator_states or self.committables)

    def _files(self) -> Iterator[StateFile]:
        for keyed in self.subtasks.values():
            yield from keyed.files
        for handle in self.operator_states.values():
            if isinstance(handle.content, StateFile):
                yield handle.content


@dataclass(frozen=True)
class CompletedCheckpoint:
    """Everything needed to resume a job after `epoch`, the last one this checkpoint covers."""

    checkpoint_id: CheckpointId
    job_id: JobId
    job_name: str
    epoch: Epoch
    triggered_at: datetime
    completed_at: datetime
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorEntry, ...] = ()
    source_position: bytes = b""
    settings: Mapping[str, str] = field(default_factory=dict)
    event_time: Mapping[str, int] = field(default_factory=dict)
    """The largest timestamp that each timestamp assigner has seen, by the assigner's name for restores."""
    watermarks: Mapping[OperatorUid, int] = field(default_factory=dict)
    """The watermark of each operator downstream of an assigner."""
    savepoint_format: SavepointFormat | None = None
    """For a savepoint, which has its files beside its `_metadata` and shares none; None: a checkpoint."""

    def __post_init__(self) -> None:
        if self.triggered_at.tzinfo is None or self.completed_at.tzinfo is None:
            raise ValueError("the instants of a checkpoint need a time zone")
        uids = [operator.uid for operator in self.operators]
        if SOURCES_UID in uids or len(set(uids)) != len(uids):
            raise ValueError(f'uids must differ from each other and from "{SOURCES_UID}": {uids}')

    def files(self) -> frozenset[StateFile]:
        """Return every state file the checkpoint refers to."""
        return frozenset(file for operator in self.operators for file in operator.files())

    @property
    def is_savepoint(self) -> bool:
        return self.savepoint_format is not None

    @property
    def term(self) -> int:
        """The term of the driver that completed it; 0 if it had none."""
        text = self.settings.get(TERM_SETTING, "0")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0

    @property
    def state_bytes(self) -> int:
        """The size of all state: files, each counted once, and operator state stored inline in the metadata."""
        return sum(file.size for file in self.files()) + self.inline_bytes

    @property
    def inline_bytes(self) -> int:
        """The size of operator state stored inline in the metadata, which every checkpoint writes again."""
        return sum(operator.inline_bytes for operator in self.operators)
