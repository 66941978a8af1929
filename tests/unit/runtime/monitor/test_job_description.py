"""The description of a job: every kind of operator has a word."""

from __future__ import annotations

from typing import get_args

from checkdam.graph.operators import AggregateKind, Kind
from checkdam.runtime.monitor.job_description import _WORDS


def test_every_kind_of_operator_has_a_word() -> None:
    without = set(get_args(Kind)) - set(_WORDS)

    assert without == {AggregateKind}  # it is called by its own function: sum, min or max
