"""Ten rounds of chaos with most kinds of it; `make chaos` runs two hundred with all of them."""

from __future__ import annotations

import pytest
from chaos.__main__ import SEQUENCE, planned_rounds, run_rounds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20261115
ROUNDS = 10


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_nothing_is_lost_repeated_or_left_behind_in_a_round_of_chaos(number: int) -> None:
    told: list[str] = []

    (outcome,) = run_rounds(number, SEED, told.append, first=number)

    assert outcome.faults == [], "\n".join(told)
    assert (outcome.kind, outcome.job) == planned_rounds(ROUNDS)[number - 1]


def test_ten_rounds_are_of_most_kinds_and_of_both_jobs() -> None:
    kinds, jobs = zip(*planned_rounds(ROUNDS), strict=True)

    assert set(kinds) == set(SEQUENCE) - {"slot", "driver"}
    assert set(jobs) == {"words", "all-states"}
