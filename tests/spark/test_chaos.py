"""The rounds of chaos that break what no other test breaks; `make chaos` runs two hundred of all kinds.

Other tests on Spark play the rest: a frozen slot (`test_hangs`), SIGTERM (`test_suspend`), a damaged checkpoint
(`test_cli`), killed slots (`test_failures`) and killed drivers (`test_examples`, `test_idle`, `test_operate`), requests
(`test_control`). `tests/fault/test_control.py` kills the driver at every step of a request, and the simulation plays
all of these in many more orders.
"""

from __future__ import annotations

import pytest
from chaos.__main__ import SEQUENCE, planned_rounds, run_rounds
from chaos.jobs import JOBS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20261115
KINDS = {"storage", "frozen-driver", "step", "vanished", "shared-tmp", "executor"}
ELSEWHERE = {"frozen-slot", "sigterm", "damage", "control", "slot", "driver"}
PLANNED = planned_rounds(10)
ROUNDS = [number for number, (kind, _) in enumerate(PLANNED, start=1) if kind in KINDS]


@pytest.mark.parametrize("number", ROUNDS)
def test_nothing_is_lost_repeated_or_left_behind_in_a_round_of_chaos(number: int) -> None:
    told: list[str] = []

    (outcome,) = run_rounds(number, SEED, told.append, first=number)

    assert outcome.faults == [], "\n".join(told)
    assert (outcome.kind, outcome.job) == PLANNED[number - 1]


def test_every_kind_of_chaos_is_played_here_or_by_another_test_and_every_job_is() -> None:
    kinds, jobs = zip(*(PLANNED[number - 1] for number in ROUNDS), strict=True)

    assert set(kinds) == KINDS == set(SEQUENCE) - ELSEWHERE
    assert set(jobs) == set(JOBS)
