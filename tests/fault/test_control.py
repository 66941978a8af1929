"""Deaths and refusals at every step of a savepoint, a stop and a rescale: nothing is lost, repeated or half done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.errors import CheckdamError
from checkdam.ids import JobId
from checkdam.runtime.job_control import JobControl, SavepointFormat
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.trouble import Deed, DriverKilled, Step, Trouble, ask, kill_driver, kill_slot

pytestmark = pytest.mark.slow

EPOCHS = [["a", "b", "a", "c"], ["d", "a", "e"], ["b", "f", "a"], ["a", "g"]]
ON_REQUEST = replace(EVERY_EPOCH, interval=None)
DEATHS: dict[str, Deed] = {"slot 0": kill_slot(0), "slot 1": kill_slot(1), "driver": kill_driver}
ANOTHER = JobId("d" * 32)

Verb = Callable[[JobControl, SavepointPlace], Future[Any]]
VERBS: dict[str, Verb] = {
    "savepoint": lambda control, place: control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL),
    "native savepoint": lambda control, place: control.trigger_savepoint(place.uri, SavepointFormat.NATIVE),
    "stop": lambda control, place: control.stop_with_savepoint(place.uri, SavepointFormat.CANONICAL, drain=False),
    "rescale": lambda control, place: control.rescale(3),
}
CUT = [Step.BEFORE_SNAPSHOT, Step.BEFORE_WRITING, Step.SNAPSHOT_TAKEN]
SAVEPOINT = [*CUT, Step.WRITING_SAVEPOINT, Step.BEFORE_SAVEPOINT_METADATA, Step.SAVEPOINT_WRITTEN]
CHECKPOINT = [
    *CUT,
    Step.WRITING,
    Step.BEFORE_METADATA,
    Step.METADATA_WRITTEN,
    Step.COMMITTING,
    Step.COMMITTED,
    Step.BEFORE_COMPLETED,
    Step.AFTER_COMPLETED,
]
FIRST_CUT = {
    "savepoint": SAVEPOINT,
    "native savepoint": SAVEPOINT,
    "stop": SAVEPOINT,
    "rescale": CHECKPOINT,
}
CASES = [(verb, step, 1) for verb, steps in FIRST_CUT.items() for step in steps]
CASES += [("stop", step, 2) for step in CHECKPOINT]  # behind the savepoint comes the final checkpoint


def run_to_the_end(
    words: WordCount, place: SavepointPlace, verb: str, troubles: list[Trouble], **options: Any
) -> tuple[LocalJob, list[Future[Any]]]:
    """Ask once before epoch 3; then, as a user would, go on until all of the input is used up."""
    asked: list[Future[Any]] = []
    jobs: list[LocalJob] = []
    do = ask(lambda: VERBS[verb](jobs[-1].control, place), asked)
    troubles = [*troubles, Trouble(Step.BEFORE_EPOCH, do, number=3)]
    for _ in range(4):
        jobs.append(words.job(troubles=troubles, **options))
        try:
            heard = jobs[-1].run()
        except (DriverKilled, CheckdamError):
            continue
        if heard.epochs and heard.epochs[-1].epoch >= len(EPOCHS):
            return jobs[-1], asked
    raise AssertionError("the job never ended")


def expected_after(epochs: int) -> dict[str, tuple[str, int]]:
    counted = Counter(word for epoch in EPOCHS[:epochs] for word in epoch)
    return {word: (word, count) for word, count in counted.items()}


def check_savepoints(place: SavepointPlace) -> None:
    """Every one that looks complete is: a job goes on from it exactly."""
    for path in place.complete():
        checkpoint, _ = load_checkpoint(path)
        resumed = WordCount(EPOCHS)
        job = resumed.job(job_id=ANOTHER)
        job.run(restore=path)
        assert [stats.epoch for stats in job.heard.epochs] == list(range(checkpoint.epoch + 1, len(EPOCHS) + 1))
        assert job.state(UID) == resumed.expected_state()


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize(("verb", "step", "barrier"), CASES)
def test_a_death_at_any_step_neither_loses_nor_repeats_anything(
    verb: str, step: Step, barrier: int, death: str
) -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    of_savepoint = "SAVEPOINT" in step.name and step is not Step.WRITING_SAVEPOINT
    trouble = Trouble(step, DEATHS[death], number=None if of_savepoint else barrier)

    job, asked = run_to_the_end(words, place, verb, [trouble], checkpoints=ON_REQUEST)

    assert trouble.happened.is_set()
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []
    assert len(asked) == 1
    if death != "driver":
        assert asked[0].done()
        assert len(place.complete()) == len({path.partition("/")[0] for path in place.files()})  # nothing half done
    if asked[0].done() and asked[0].exception() is None and verb != "rescale":
        assert asked[0].result() in place.complete()
    check_savepoints(place)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.REPLY_LOST])
@pytest.mark.parametrize("verb", ["savepoint", "native savepoint", "stop"])
@pytest.mark.parametrize("nth", range(12))
def test_trouble_with_the_place_of_a_savepoint_costs_that_savepoint_at_most(nth: int, verb: str, fault: Fault) -> None:
    words = WordCount(EPOCHS)
    storage = FaultyStorage(MemoryStorage(), nth, fault)
    place = SavepointPlace(storage)

    job, asked = run_to_the_end(words, place, verb, [], checkpoints=ON_REQUEST)

    assert job.heard.restarts == []
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    if asked[0].exception(0) is None:
        assert [asked[0].result()] == place.complete()
        check_savepoints(place)
    else:
        assert storage.has_failed
        assert isinstance(asked[0].exception(), CheckdamError)
        assert place.files() == []


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.REPLY_LOST])
@pytest.mark.parametrize("verb", ["stop", "rescale"])
@pytest.mark.parametrize("nth", range(0, 30, 2))
def test_trouble_with_the_checkpoint_storage_neither_loses_nor_repeats_anything(
    nth: int, verb: str, fault: Fault
) -> None:
    storage = FaultyStorage(MemoryStorage(), nth, fault)
    words, place = WordCount(EPOCHS, storage=storage), SavepointPlace()

    job, asked = run_to_the_end(words, place, verb, [], checkpoints=replace(EVERY_EPOCH, tolerable_failures=nth % 3))

    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert all(each.done() for each in asked)
    check_savepoints(place)
