"""Source functions that wait: whatever comes when, no record is lost and none comes twice over a restore."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.slot.one_operator import rows
from tests.unit.runtime.slot.waiting_functions import EXACT, SUPPLIES, Supply, resumed, source, take

from checkdam.runtime.slot import generator_thread

STEPS = st.lists(st.sampled_from(["hand", "pull", "wait", "restore"]), max_size=12)


@pytest.mark.slow
@settings(deadline=None)
@given(function=st.sampled_from(EXACT), steps=STEPS, epoch_seconds=st.sampled_from([0.0, 0.002]))
def test_what_goes_on_and_what_a_checkpoint_holds_belong_together(
    function: type, steps: list[str], epoch_seconds: float
) -> None:
    """The generator races with the steps; `wait` lets it come further."""
    SUPPLIES[:] = [Supply()]
    taken: list[int] = []
    with (
        patch.object(generator_thread, "MOST_SECONDS", epoch_seconds),
        patch.object(generator_thread, "_GRACE_SECONDS", 0.0),
    ):
        it = source(function())
        for step in steps:
            if step == "hand":
                SUPPLIES[-1].hand()
            elif step == "pull":
                taken += rows(it.process.pull())
            elif step == "restore":
                it = resumed(it, function())
            else:
                SUPPLIES[-1].waiting.acquire(timeout=0.01)  # until it waits inside, unless it is parked
        SUPPLIES[-1].hand(2)
        taken += take(it, 2)
        it.close()

    assert taken == list(range(len(taken)))
