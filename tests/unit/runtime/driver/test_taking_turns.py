"""Epochs of the ticker and the end of the input, or of an attempt, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import CheckpointConfig, JobEnd
from checkdam.errors import UserFunctionError
from checkdam.graph.functions import KeyedProcessFunction, ProcessFunction, SourceFunction
from checkdam.runtime.engine import RunEpoch, Slot
from checkdam.runtime.restart import FixedDelayRestart, NoRestart
from checkdam.testing import ManualClock, MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob


class Endless(SourceFunction):
    def run(self, ctx: Any) -> Iterator[str]:
        while True:
            yield "n"


class Picky(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        if value == "bad":
            raise ValueError("no such word")
        yield value


def test_a_rejected_record_is_told_as_such_also_when_the_ticker_has_its_turn_before_the_query_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(environment: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        environment.add_source(Endless(), output_type=str).uid("endless").filter(lambda value: False).print()
        words.process(Picky(), output_type=str).print()

    run = LocalEngine.run

    def run_and_end_late(self: LocalEngine, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        try:
            run(self, slots, run_epoch)
        except UserFunctionError:
            for thread in threading.enumerate():
                if thread.name == "ticker":
                    thread.join()  # it ends because of the failure, or because of what the failure led to
            raise

    monkeypatch.setattr(LocalEngine, "run", run_and_end_late)
    job = LocalJob(
        build,
        [["ok"], ["bad"]],
        MemoryStorage(),
        parallelism=1,
        restart=FixedDelayRestart(attempts=4, delay=timedelta(0)),
    )

    with pytest.raises(UserFunctionError, match="no such word"):
        job.run()

    assert [type(failure) for failure in job.heard.restarts] == [UserFunctionError] * 4


class Reminder(KeyedProcessFunction):
    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def process_element(self, value: str, ctx: Any) -> None:
        timers = ctx.timer_service
        timers.register_processing_time_timer(timers.current_processing_time + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        if self.fails:
            raise ValueError("in the timer")
        yield f"remember {ctx.current_key}"


@pytest.mark.parametrize("has_checkpoints", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_an_epoch_under_way_when_the_input_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool, has_checkpoints: bool
) -> None:
    def build(environment: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        words.key_by(lambda word: word, key_type=str).process(Reminder(fails=fails), output_type=str).uid("r").print()

    clock, under_way, is_waited_for = ManualClock(), threading.Event(), threading.Event()
    run, run_extra = LocalEngine.run, LocalEngine.run_extra

    def run_until_the_timer_fires(self: LocalEngine, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        run(self, slots, run_epoch)
        clock.advance(timedelta(seconds=2))
        assert under_way.wait(10)

    def run_extra_slowly(self: LocalEngine, slots: Sequence[Slot], run_epoch: RunEpoch) -> None:
        under_way.set()
        attempt = job._master._running if job._master is not None else None
        assert attempt is not None
        while not attempt.epochs.is_input_over and not attempt.state.has_ended:
            is_waited_for.wait(0.001)  # never set: a short breath
        run_extra(self, slots, run_epoch)

    monkeypatch.setattr(LocalEngine, "run", run_until_the_timer_fires)
    monkeypatch.setattr(LocalEngine, "run_extra", run_extra_slowly)
    job = LocalJob(
        build,
        [["a"]],
        MemoryStorage() if has_checkpoints else None,
        parallelism=1,
        lockstep=False,
        clock=clock,
        restart=NoRestart(),
        checkpoints=EVERY_EPOCH if has_checkpoints else CheckpointConfig(),
    )

    if fails:
        with pytest.raises(UserFunctionError, match="in the timer"):
            job.run()
    else:
        assert job.run().end is JobEnd.FINISHED
        assert job.heard.printed_lines == ["remember a"]
