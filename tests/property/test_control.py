"""Any program of requests to a running job: state and output are what they would be without it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import JobEnd
from checkdam.ids import JobId
from checkdam.runtime.job_control import JobControl, SavepointFormat
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.trouble import Deed, Moment, Step, Trouble, kill_slot

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Verb:
    """One thing asked of the job before an epoch begins; `hurried` ones are not waited for."""

    name: str
    number: int = 0
    hurried: bool = False

    def ask(self, control: JobControl, place: SavepointPlace) -> Future[Any]:
        format = SavepointFormat.NATIVE if self.number % 2 else SavepointFormat.CANONICAL
        match self.name:
            case "checkpoint":
                return control.trigger_checkpoint(full=self.number % 2 == 1)
            case "savepoint":
                return control.trigger_savepoint(place.uri, format)
            case "stop":
                return control.stop_with_savepoint(place.uri, format, drain=False)
            case _:
                return control.rescale(self.number % 5)


verbs = st.builds(
    Verb,
    st.sampled_from(["checkpoint", "savepoint", "rescale", "rescale", "stop", "kill", "suspend"]),
    st.integers(0, 9),
    st.booleans(),
)
words = st.lists(st.sampled_from("abcdefgh"), max_size=6)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[list[str]], dict[int, list[Verb]]]:
    epochs = draw(st.lists(words, min_size=3, max_size=6))
    program = {epoch: draw(st.lists(verbs, max_size=3)) for epoch in range(2, len(epochs) + 1)}
    return epochs, program


@settings(max_examples=examples(60), deadline=None)
@given(programs(), st.sampled_from([None, timedelta(0)]), st.integers(1, 2), st.booleans())
def test_no_program_of_requests_changes_what_the_job_computes(
    drawn: tuple[list[list[str]], dict[int, list[Verb]]],
    interval: timedelta | None,
    max_concurrent: int,
    lockstep: bool,
) -> None:
    epochs, program = drawn
    count, place = WordCount(epochs), SavepointPlace()
    asked: list[Future[Any]] = []
    jobs: list[LocalJob] = []
    stops: list[Future[Any]] = []

    def do_one(verb: Verb, engine: LocalEngine, moment: Moment) -> None:
        if verb.name == "kill":
            kill_slot(verb.number)(engine, moment)
            return
        if verb.name == "suspend":
            jobs[-1].suspend(timedelta(0) if verb.number == 0 else timedelta(seconds=60))
            if not verb.hurried:
                engine.wait_for(Future())
            return
        future = verb.ask(jobs[-1].control, place)
        asked.append(future)
        if verb.name == "stop":
            stops.append(future)
        if not verb.hurried:
            engine.wait_for(future)

    def do_all(some: list[Verb]) -> Deed:
        def do(engine: LocalEngine, moment: Moment) -> None:
            for verb in some:
                do_one(verb, engine, moment)

        return do

    troubles = [Trouble(Step.BEFORE_EPOCH, do_all(some), number=epoch) for epoch, some in program.items()]
    checkpoints = replace(EVERY_EPOCH, interval=interval, max_concurrent=max_concurrent, num_retained=2)
    job_id, restore = JobId("1" * 32), None
    for run in range(2, 20):
        jobs.append(
            count.job(
                job_id=job_id,
                troubles=troubles,
                checkpoints=checkpoints,
                lockstep=lockstep,
                restart=FixedDelayRestart(attempts=20, delay=timedelta(0)),
            )
        )
        done_before = len(stops)
        heard = jobs[-1].run(restore=restore)
        assert heard.end in (JobEnd.FINISHED, JobEnd.SUSPENDED)
        stopped = [each.result(0) for each in stops[done_before:] if each.exception(0) is None]
        if heard.end is JobEnd.SUSPENDED:
            restore = restore if heard.last_checkpoint is None else None
            assert not stopped
            continue
        if not stopped:
            break
        # As a user would: go on from the savepoint as a new job, or with the old one from its last checkpoint.
        if run % 2:
            job_id, restore = JobId(f"{run:032x}"), stopped[0]
        else:
            restore = None

    assert all(each.done() for each in asked)
    assert jobs[-1].state(UID) == count.expected_state()
    assert count.output() == count.expected_output()
    taken = {each.result(0) for each in asked if each.exception(0) is None and isinstance(each.result(0), str)}
    # A stop may fail behind its savepoint, when the last output cannot be published: then it names the savepoint.
    refusals = " ".join(str(each.exception(0)) for each in stops)
    assert taken <= set(place.complete())
    assert all(path in taken or path in refusals for path in place.complete())
    for path in taken:
        assert load_checkpoint(path)[0].is_savepoint
