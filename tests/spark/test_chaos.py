"""Ten rounds of chaos, one of each kind at least; `make chaos` runs a hundred."""

from __future__ import annotations

import pytest
from chaos.__main__ import ROUNDS, run_rounds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20261115


def test_nothing_is_lost_repeated_or_left_behind_in_ten_rounds_of_chaos() -> None:
    told: list[str] = []

    outcomes = run_rounds(len(ROUNDS), SEED, told.append)

    assert [outcome for outcome in outcomes if outcome.faults] == [], "\n".join(told)
    assert {outcome.kind for outcome in outcomes} == {"slot", "driver", "executor", "storage", "step", "control"}
