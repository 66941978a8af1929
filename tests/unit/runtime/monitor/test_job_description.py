"""The description of a job: every kind of operator has a word, and which ones a rescale leaves alone."""

from __future__ import annotations

from typing import get_args

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.config import Configuration
from checkdam.graph.levels import plan_job
from checkdam.graph.operators import AggregateKind, Kind
from checkdam.runtime.monitor.job_description import _WORDS, operator_records


def test_every_kind_of_operator_has_a_word() -> None:
    without = set(get_args(Kind)) - set(_WORDS)

    assert without == {AggregateKind}  # it is called by its own function: sum, min or max


@pytest.mark.parametrize("own", [1, 4])  # 4: by chance that of the job
def test_operators_whose_parallelism_the_program_sets_are_fixed(own: int) -> None:
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    counts = environment.from_collection([("a", 1)]).key_by(0).sum(1).uid("counts").name("counts")
    counts.key_by(0).sum(1).uid("all").name("all").set_parallelism(own).print().name("out").set_parallelism(own)

    records = operator_records(plan_job("job", environment._operators, parallelism=4, max_parallelism=None))

    assert {record.name for record in records if record.is_fixed} == {"all", "out"}
    assert {record.parallelism for record in records if not record.is_fixed} == {4}
