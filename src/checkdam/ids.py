"""The identifiers that travel between rooms, each a type of its own."""

from __future__ import annotations

import secrets
from typing import NewType

JobId = NewType("JobId", str)
"""32 hex digits; the same when a job is resumed."""

OperatorUid = NewType("OperatorUid", str)
"""The name a user gives an operator, under which its state is found again."""

CheckpointId = NewType("CheckpointId", int)
"""Counts checkpoints and savepoints of a job from 1; never used twice, also by aborted ones."""

SubtaskIndex = NewType("SubtaskIndex", int)
"""0-based; subtask i of every level lives in slot i."""

Epoch = NewType("Epoch", int)
"""Counts the epochs of a job from 0; epoch 0 holds the collections, micro-batch b is epoch b + 1."""

Attempt = NewType("Attempt", str)
"""One execution of a job between two failovers; unique, so that what an old one left can be told apart."""


def new_job_id() -> JobId:
    return JobId(secrets.token_hex(16))


def new_attempt() -> Attempt:
    return Attempt(secrets.token_hex(4))
