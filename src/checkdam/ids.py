"""The identifiers that rooms exchange, each with its own type."""

from __future__ import annotations

import secrets
from typing import NewType

JobId = NewType("JobId", str)
"""32 hex digits; stays the same when a job is resumed."""

OperatorUid = NewType("OperatorUid", str)
"""The name a user gives an operator; a restore finds its state by it."""

CheckpointId = NewType("CheckpointId", int)
"""Counts checkpoints and savepoints of a job from 1; never reused, not even after an abort."""

SubtaskIndex = NewType("SubtaskIndex", int)
"""0-based; subtask i of every level lives in slot i."""

Epoch = NewType("Epoch", int)
"""Counts the epochs of a job from 0; epoch 0 holds the collections, micro-batch b is epoch b + 1."""

Attempt = NewType("Attempt", str)
"""One execution of a job between two failovers; unique, so that files of an old attempt can be recognised."""


def new_job_id() -> JobId:
    return JobId(secrets.token_hex(16))


def new_attempt() -> Attempt:
    return Attempt(secrets.token_hex(4))
