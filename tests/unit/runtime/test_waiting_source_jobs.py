"""Whole jobs whose source functions wait: records, checkpoints, savepoints and the end of the job do not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.waiting import poll

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import JobEnd
from checkdam.graph.functions import CheckpointedFunction, KeyedProcessFunction, SourceFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.ids import JobId
from checkdam.runtime.driver import attempt
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.job_control import SavepointFormat
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob

pytestmark = pytest.mark.slow

ON_REQUEST = replace(EVERY_EPOCH, interval=None)
RARELY = Heartbeat(timedelta(minutes=10), timedelta(minutes=20))
CANONICAL = SavepointFormat.CANONICAL


class Feed(SourceFunction, CheckpointedFunction):
    """Yields what a test puts into the queue of its subtask, each with a number; what is None ends it."""

    queues: tuple[queue.Queue[str | None], ...] = ()

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.following = sum(self.kept.get())

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])

    def run(self, ctx: Any) -> Iterator[tuple[str, int]]:
        queued = Feed.queues[ctx.subtask_index]
        while True:
            self.following += 1
            word = queued.get()  # does not react to anything but a word
            if word is None:
                return
            yield word, self.following - 1


@pytest.fixture(autouse=True)
def fresh_queues() -> Iterator[None]:
    Feed.queues = tuple(queue.Queue() for _ in range(4))
    yield
    for each in Feed.queues:
        each.put(None)  # lets threads that were left behind end


def say(*words: str | None, subtask: int = 0) -> None:
    for word in words:
        Feed.queues[subtask].put(word)


def show(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    environment.add_source(Feed(), output_type=tuple[str, int]).uid("feed").print()


def feeding(build: Any = show, *epochs: list[str], **options: Any) -> LocalJob:
    storage = options.pop("storage", None) or MemoryStorage()
    options = {"parallelism": 1, "checkpoints": ON_REQUEST, **options}
    return LocalJob(build, epochs, storage, record_type=str, **options)


def shown(job: LocalJob) -> list[str]:
    return [line.rpartition("> ")[2] for line in job.heard.printed_lines]


def is_quiet(job: LocalJob) -> bool:
    return not job._master._running.epochs.pending.has_ready_sources  # type: ignore[union-attr]


def test_records_go_on_while_the_source_waits_and_no_epoch_runs_without_cause() -> None:
    job = feeding(heartbeat=RARELY)
    say("a", "b", "c")
    job.start()
    job.heard.wait_until(lambda: len(shown(job)) == 3)
    poll(lambda: is_quiet(job))
    epochs = len(job.heard.epochs)

    threading.Event().wait(0.5)
    assert len(job.heard.epochs) == epochs

    say("d")
    job.heard.wait_until(lambda: len(shown(job)) == 4)
    poll(lambda: is_quiet(job), "the signal for d brings epochs without end")
    say(None)
    assert job.join().end is JobEnd.FINISHED
    assert shown(job) == ["('a', 0)", "('b', 1)", "('c', 2)", "('d', 3)"]


def test_checkpoints_and_savepoints_are_taken_while_the_source_waits_and_restore_exactly() -> None:
    place, storage = SavepointPlace(), MemoryStorage()
    job = feeding(storage=storage)
    say("a", "b", "c")
    control = job.start()
    job.heard.wait_until(lambda: len(shown(job)) == 3)

    assert control.trigger_checkpoint().result(60) == 1
    path = control.trigger_savepoint(place.uri, CANONICAL).result(60)
    job.cancel()
    assert job.join().end is JobEnd.CANCELLED

    say(None)  # for the thread that was left behind
    for restored in (feeding(storage=storage), feeding(job_id=JobId("2" * 32))):
        Feed.queues = tuple(queue.Queue() for _ in range(4))
        restored.start(restore=None if restored._storage is storage else path)
        say("d", None)
        assert restored.join().end is JobEnd.FINISHED
        assert shown(restored) == ["('d', 3)"]


@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_interrupts_the_source(*, drain: bool) -> None:
    place, job = SavepointPlace(), feeding()
    say("a")
    control = job.start()
    job.heard.wait_until(lambda: shown(job))

    path = control.stop_with_savepoint(place.uri, CANONICAL, drain=drain).result(30)

    assert place.complete() == [path]
    assert job.join().end is JobEnd.FINISHED
    assert shown(job) == ["('a', 0)"]


class AwaitedGate(Gate):
    """Tells when the engine has no more records and waits for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()

    def when_open(self, call: Callable[[], None]) -> None:
        super().when_open(call)
        self.is_awaited.set()


@pytest.mark.parametrize("is_beside_a_stream", [False, True])
def test_a_cancel_interrupts_the_source(monkeypatch: pytest.MonkeyPatch, *, is_beside_a_stream: bool) -> None:
    monkeypatch.setattr(attempt, "_BREAK_OFF_SECONDS", 3600.0)  # no slot is killed because its source does not end

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        show(environment, stream)
        if is_beside_a_stream:
            stream.print()

    job = feeding(build, ["x"], until=(until := AwaitedGate()))
    say("a")
    job.start()
    job.heard.wait_until(lambda: "('a', 0)" in shown(job))
    assert until.is_awaited.wait(60)  # an engine that is within an epoch ends with the epoch

    job.cancel()

    assert job.join().end is JobEnd.CANCELLED


def test_one_subtask_waits_and_the_others_go_on() -> None:
    job = feeding(parallelism=3)
    say("a", None, subtask=0)
    say("b", subtask=1)
    control = job.start()
    job.heard.wait_until(lambda: len(shown(job)) == 2)

    say(*(["c"] * 10), subtask=2)
    job.heard.wait_until(lambda: len(shown(job)) == 12)
    assert control.trigger_checkpoint().result(60) == 1
    say(None, subtask=1)
    say("c", None, subtask=2)

    assert job.join().end is JobEnd.FINISHED
    assert sorted(shown(job)) == sorted(["('a', 0)", "('b', 0)", *(f"('c', {n})" for n in range(11))])


def test_a_job_whose_source_waits_can_be_rescaled() -> None:
    job = feeding(parallelism=2)
    say("a", "b", subtask=0)
    control = job.start()
    job.heard.wait_until(lambda: len(shown(job)) == 2)

    control.rescale(1).result(60)

    say(None)  # may be taken by the source that was left behind, which nobody hears any more
    say(None)
    assert job.join().rescales == [(1, None)]
    assert shown(job) == ["('a', 0)", "('b', 1)"]


class Remind(KeyedProcessFunction):
    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time + 20)
        ctx.timer_service.register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f"{ctx.time_domain.value} of {ctx.current_key}"


def test_timers_and_idleness_go_on_while_the_source_waits() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda pair: pair[1])
        feed = environment.add_source(Feed(), output_type=tuple[str, int]).uid("feed")
        feed = feed.assign_timestamps_and_watermarks(replace(strategy, idleness=timedelta(milliseconds=50)))
        words = stream.map(lambda word: (word, 9), output_type=tuple[str, int])
        both = feed.union(words.assign_timestamps_and_watermarks(strategy))
        both.key_by(0, key_type=str).process(Remind(), output_type=str).uid("remind").print()

    job = feeding(build, ["x"], until=Gate())
    say("a")
    job.start()

    expected = {f"{domain} time of {key}" for domain in ("event", "processing") for key in "ax"}
    job.heard.wait_until(lambda: set(shown(job)) == expected)  # event time goes on only since the feed counts as idle
    job.cancel()
    assert job.join().end is JobEnd.CANCELLED
