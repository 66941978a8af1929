"""Random streams, cut into random epochs, broken at random steps, restarted with another number of slots each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.word_count import UID, WordCount

from checkdam.errors import CheckdamError
from checkdam.testing.local_job import EVERY_EPOCH
from checkdam.testing.trouble import Deed, DriverKilled, Step, Trouble, kill_driver, kill_slot, refuse, repeat_level

epochs = st.lists(st.lists(st.text("abcü", max_size=2), max_size=6), min_size=1, max_size=4)

_STORAGE = [Step.WRITING, Step.WRITING_OUTPUT, Step.BEFORE_METADATA, Step.COMMITTING, Step.BEFORE_DISCARD]
deaths: st.SearchStrategy[tuple[Step, Deed]] = st.one_of(
    st.tuples(st.sampled_from(Step), st.sampled_from([kill_slot(0), kill_slot(1), kill_driver])),
    st.tuples(st.sampled_from(_STORAGE), st.just(refuse)),
    st.tuples(st.just(Step.AFTER_LEVEL), st.just(repeat_level)),
)
troubles = st.lists(
    st.builds(lambda what, number: Trouble(what[0], what[1], number=number), deaths, st.integers(1, 5)), max_size=3
)
checkpointing = st.builds(
    lambda retained, tolerated, every_epoch: replace(
        EVERY_EPOCH,
        num_retained=retained,
        tolerable_failures=tolerated,
        interval=EVERY_EPOCH.interval if every_epoch else None,
    ),
    st.integers(1, 3),
    st.integers(0, 1),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(epochs, troubles, checkpointing, st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_whatever_happens_counts_are_exact_output_is_there_once_and_nothing_is_left(
    epochs: list[list[str]], troubles: list[Trouble], checkpoints: object, parallelism: list[int]
) -> None:
    words = WordCount(epochs)

    for width in parallelism:
        job = words.job(troubles=troubles, checkpoints=checkpoints, parallelism=width)
        try:
            job.run()
            break
        except (DriverKilled, CheckdamError):
            continue

    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []
