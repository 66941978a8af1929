"""Window jobs have the results that real Flink had for them. `make test-flink` asks Flink itself, about many more."""

from __future__ import annotations

import pytest
from tests.flink.comparison import KEPT_SEEDS, checkdam_answer, difference, kept_answers, multiset
from tests.flink.epoch_cuts import EPOCH_CUTS, TIMER_OF_THE_PAST, EpochCut
from tests.flink.job_specs import SESSION_THAT_FLINK_FORGETS, random_spec


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_a_random_job_has_flinks_results(seed: int) -> None:
    spec = random_spec(seed)

    answer = checkdam_answer(spec)

    assert difference(kept_answers()[seed], answer) == "", spec


@pytest.mark.parametrize("cut", EPOCH_CUTS, ids=lambda cut: cut.name)
def test_results_depend_on_epochs_only_in_this(cut: EpochCut) -> None:
    whole, single = cut.in_one_epoch(), cut.each_an_epoch()

    in_one_epoch, record_by_record = checkdam_answer(whole), checkdam_answer(single)

    assert multiset(in_one_epoch["results"]) == multiset(cut.epoch), cut.why
    assert in_one_epoch["late"] == []
    assert multiset(record_by_record["results"]) == multiset(cut.record_by_record), cut.why
    assert multiset(record_by_record["late"]) == multiset(cut.late_record_by_record)
    assert difference(kept_answers()[whole["seed"]], in_one_epoch) == ""
    assert difference(kept_answers()[single["seed"]], record_by_record) == ""


def test_a_session_that_flink_forgets_is_kept() -> None:
    spec = SESSION_THAT_FLINK_FORGETS

    answer = checkdam_answer(spec)

    assert answer["results"] == [[["applied", "a", 0, 10, [1, 3, 4]], 9]]
    assert kept_answers()[spec["seed"]]["results"] == [[["applied", "a", 0, 10, [3]], 9]]


def test_a_timer_of_the_past_fires_at_the_end_of_the_epoch() -> None:
    spec = TIMER_OF_THE_PAST

    answer = checkdam_answer(spec)

    assert answer["results"] == [[["applied", "a", 0, 10, [1, 2, 3]], 9]]
    assert multiset(kept_answers()[spec["seed"]]["results"]) == multiset(
        [["applied", "a", 0, 10, values], 9] for values in ([1], [1, 2], [1, 2, 3])
    )


def test_the_kept_answers_include_enough_jobs_of_either_time() -> None:
    specs = list(map(random_spec, KEPT_SEEDS))

    assert len([spec for spec in specs if "clock" not in spec]) >= 40
    assert len([spec for spec in specs if "clock" in spec]) >= 20
