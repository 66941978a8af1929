"""Live state of a job on Spark: asked for over HTTP in the middle of an epoch, and again after a slot was lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import FixedDelayRestart
from checkdam.api.launch import current_launch
from checkdam.client import StateClient
from checkdam.config import Configuration
from checkdam.graph.functions import KeyedBroadcastProcessFunction, KeyedProcessFunction
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats
from checkdam.server.app.rest_server import RestServer
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark


class Count(KeyedProcessFunction):
    """Counts each word and keeps its places; the word "gate" tells that it was reached, and waits to be let through."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.places = ctx.get_list_state(ListStateDescriptor("places", int))

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        self.count.update(self.count.value() + 1)
        self.places.add(self.count.value())
        if value == "gate":
            with open(f"{self.directory}/reached", "w") as reached:  # a pipe: returns when the test reads it
                reached.write("here")
            with open(f"{self.directory}/through") as through:
                through.read()
        yield value


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_whole_epochs_are_told_in_the_middle_of_one_and_after_a_failover(jobs: Jobs, backend: str) -> None:
    for name in ("reached", "through"):
        os.mkfifo(jobs.tmp_path / name)
    words = "\n".join(f"w{number}" for number in range(50))
    texts = jobs.texts(words, f"{words}\ngate\n{words}", words)
    environment = jobs.environment(2, jobs.checkpoints(), settings={"state.backend.type": backend})
    environment.set_restart_strategy(FixedDelayRestart(attempts=2, delay=timedelta(0)))
    lines = environment.read_text(texts, max_files_per_epoch=1)
    lines.key_by(lambda word: word, key_type=str).process(Count(str(jobs.tmp_path)), output_type=str).uid(
        "count"
    ).print()
    seen: dict[Any, Any] = {}
    were_slots_asked: dict[Any, bool] = {}
    with RestServer(Configuration.load(None, {"rest.port": "0"})) as server, StateClient(server.url) as client:
        current_launch().host = server

        def look(when: Any) -> None:
            [job] = [each for each in server.jobs.records() if each.name == "queried"]
            asked = [f"w{number}" for number in range(50)]
            counts = client.get_many(job.id, "count", "count", asked)
            one = client.get(job.id, "count", "places", "w7")
            were_slots_asked[when] = client._direct is not None and bool(client._direct._known)
            seen[when] = {answer.epoch for answer in counts}, {answer.value for answer in counts}, one.value

        def look_inside() -> None:
            with open(jobs.tmp_path / "reached") as reached:
                reached.read()
            try:
                look("inside 2")
            finally:
                with open(jobs.tmp_path / "through", "w") as through:
                    through.write("go")

        def kill_behind_the_second(stats: CheckpointStats) -> None:
            if stats.epoch == jobs.watcher.epochs[0].epoch + 1 and len(jobs.watcher.attempts) == 1:
                os.kill(jobs.watcher.attempts[0][0], signal.SIGKILL)

        def epoch_ended(stats: EpochStats) -> None:
            look(len(jobs.watcher.epochs))

        jobs.watcher.on_epoch = epoch_ended
        jobs.watcher.on_checkpoint = kill_behind_the_second
        inside = threading.Thread(target=look_inside)
        inside.start()
        environment.execute("queried")
        inside.join(60)

    first = jobs.watcher.epochs[0].epoch
    assert seen[1] == ({first}, {1}, [1])
    assert seen["inside 2"] == ({first}, {1}, [1])
    assert seen[2] == ({first + 1}, {3}, [1, 2, 3])
    assert seen[3] == ({first + 2}, {4}, [1, 2, 3, 4])
    assert were_slots_asked[1]
    assert were_slots_asked["inside 2"]
    assert len(jobs.watcher.attempts) == 2


RULES = MapStateDescriptor("rules", str, int)
FAR = 4_000_000_000_000  # in the year 2096


class Match(KeyedBroadcastProcessFunction[str, str, str, str]):
    """Keeps rules by their names, and a timer for each word."""

    def process_broadcast_element(self, value: str, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES)[value] = len(value)

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        ctx.timer_service.register_processing_time_timer(FAR + len(value))
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        pass


def test_rules_and_timers_are_told_as_of_whole_epochs(jobs: Jobs) -> None:
    environment = jobs.environment(2, jobs.checkpoints())
    lines = environment.read_text(jobs.texts("rule one\nada\nbob", "rule three\nbartholomew"), max_files_per_epoch=1)
    rules = lines.filter(lambda line: line.startswith("rule")).broadcast(RULES)
    words = lines.filter(lambda line: not line.startswith("rule")).key_by(lambda word: word, key_type=str)
    words.connect(rules).process(Match(), output_type=str).uid("match").print()
    seen: list[Any] = []
    with RestServer(Configuration.load(None, {"rest.port": "0"})) as server, StateClient(server.url) as client:
        current_launch().host = server

        def look(stats: EpochStats) -> None:
            [job] = [each.id for each in server.jobs.records() if each.name == "matched"]
            timers = [(each["key"], each["timestamp"] - FAR) for each in client.timers(job, "match", containing="b")]
            seen.append((dict(client.operator_state(job, "match", "rules")), timers))

        jobs.watcher.on_epoch = look
        environment.execute("matched")

    assert seen[0] == ({"rule one": 8}, [("bob", 3)])
    assert seen[1] == ({"rule one": 8, "rule three": 10}, [("bob", 3), ("bartholomew", 11)])
