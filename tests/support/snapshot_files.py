"""Snapshots written straight from values, for whoever reads them: no job needs to run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import key_group_range, key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.storage.contract import Storage
from checkdam.storage.subtree import subtree
from checkdam.testing.local_job import JOB_ID
from checkdam.types.type_info import type_info

_COMPLETED_AT = datetime(2026, 1, 1, tzinfo=UTC)

Named = tuple[str, Any, Any]
"""A value state: its name, the type of its keys and that of its values. All states of an operator share keys."""


def written(
    storage: Storage,
    operators: Mapping[str, Mapping[Named, Mapping[Any, Any]]],
    *,
    checkpoint_id: int = 1,
    parallelism: int = 2,
    max_parallelism: int = 128,
    backend: KeyedStateBackend | None = None,
) -> str:
    """Write a checkpoint that holds value states by operator, with their values by key; tells its URI."""
    store = CheckpointStore(storage, JOB_ID)
    entries = []
    for uid, states in operators.items():
        handles = {
            SubtaskIndex(subtask): _write(
                storage,
                states,
                StoreOwner(
                    OperatorUid(uid),
                    SubtaskIndex(subtask),
                    Attempt("written"),
                    key_group_range(subtask, parallelism, max_parallelism),
                    max_parallelism,
                    type_info(next(iter(states))[1]),
                    lambda: Path(tempfile.mkdtemp(prefix="checkdam-")),
                ),
                backend or HashMapStateBackend(),
                CheckpointId(checkpoint_id),
            )
            for subtask in range(parallelism)
        }
        entries.append(OperatorEntry(OperatorUid(uid), uid, parallelism, max_parallelism, handles))
    return store.write(completed(entries, checkpoint_id, parallelism, max_parallelism))


def completed(
    entries: list[OperatorEntry], checkpoint_id: int = 1, parallelism: int = 2, max_parallelism: int = 128
) -> CompletedCheckpoint:
    """A checkpoint of these operators, whose files are there already."""
    return CompletedCheckpoint(
        checkpoint_id=CheckpointId(checkpoint_id),
        job_id=JOB_ID,
        job_name="written",
        epoch=Epoch(checkpoint_id),
        triggered_at=_COMPLETED_AT,
        completed_at=_COMPLETED_AT,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        operators=tuple(entries),
    )


def _write(
    storage: Storage,
    states: Mapping[Named, Mapping[Any, Any]],
    owner: StoreOwner,
    backend: KeyedStateBackend,
    checkpoint_id: CheckpointId,
) -> KeyedStateHandle:
    store = backend.open(owner, (), None, claim=True)
    try:
        for (name, _, of), values in states.items():
            table = store.table(StateSpec(name, StateKind.VALUE, type_info(of)))
            keys = list(values)
            groups = key_groups(keys, owner.key_type, owner.max_parallelism).tolist() if keys else []
            own = [key for key, group in zip(keys, groups, strict=True) if group in owner.key_groups]
            table.put_all({key: values[key] for key in own})
        store.end_epoch()
        return store.snapshot(checkpoint_id).write(subtree(storage, JOB_ID), "shared")
    finally:
        store.close()
