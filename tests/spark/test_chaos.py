"""Ten rounds of chaos with most kinds of it; `make chaos` runs two hundred with all of them."""

from __future__ import annotations

import pytest
from chaos.__main__ import SEQUENCE, run_rounds
from chaos.rounds import archive_classes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20261115
ROUNDS = 10


def test_nothing_is_lost_repeated_or_left_behind_in_ten_rounds_of_chaos() -> None:
    told: list[str] = []
    archive_classes()

    outcomes = run_rounds(ROUNDS, SEED, told.append)

    assert [outcome for outcome in outcomes if outcome.faults] == [], "\n".join(told)
    assert {outcome.kind for outcome in outcomes} == set(SEQUENCE) - {"slot", "driver"}
    assert {outcome.job for outcome in outcomes} == {"words", "all-states"}
