"""map_async in real slots: clients that live as long as the slot, killed slots, and calls that never return."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checkdam import AsyncFunction, AsyncRetry, FixedDelayRestart, NoRestart, RuntimeContext, UserFunctionError
from checkdam.checkpoint.settings import JobEnd

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.runtime.monitor.job_events import EpochStats

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Enrich(AsyncFunction[str, tuple[str, int]]):
    """Asks a task that it has started in open, as a client does."""

    async def open(self, ctx: RuntimeContext) -> None:
        self.requests: asyncio.Queue[tuple[str, asyncio.Future[int]]] = asyncio.Queue()
        self.server = asyncio.create_task(self.serve())
        self.has_failed = False

    async def serve(self) -> None:
        while True:
            word, answer = await self.requests.get()
            if not self.has_failed:
                self.has_failed = True
                answer.set_exception(ConnectionError("the first of each client"))
            else:
                answer.set_result(len(word))

    async def async_invoke(self, value: str) -> tuple[str, int]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((value, answer))
        return value, await answer

    async def close(self) -> None:
        self.server.cancel()


@pytest.mark.parametrize("is_keyed", [True, False])
def test_each_result_is_in_the_output_once_though_a_slot_is_killed(jobs: Jobs, is_keyed: bool) -> None:
    at_once = FixedDelayRestart(attempts=5, delay=timedelta(0))
    env = jobs.environment(checkpoints=jobs.checkpoints()).set_restart_strategy(at_once)
    words = env.read_text(jobs.texts("a bb", "ccc", "a dddd", "bb"), max_files_per_epoch=1).flat_map(
        str.split, output_type=str
    )
    retry = AsyncRetry(delay=timedelta(milliseconds=1))
    out = jobs.tmp_path / "out"
    if is_keyed:
        lengths = words.key_by(lambda word: word, key_type=str).map_async(Enrich(), retry=retry)
    else:
        lengths = words.map_async(Enrich(), retry=retry, capacity=2)
    lengths.sink_to_files(str(out)).uid("out")

    def kill_once(stats: EpochStats) -> None:
        if stats.epoch == 2 and len(jobs.watcher.attempts) == 1:
            os.kill(jobs.watcher.attempts[0][0], signal.SIGKILL)

    jobs.watcher.on_epoch = kill_once
    result = env.execute()

    assert result.end is JobEnd.FINISHED
    assert len(jobs.watcher.attempts) == 2
    assert _pairs_in(out) == Counter({("a", 1): 2, ("bb", 2): 2, ("ccc", 3): 1, ("dddd", 4): 1})


async def stuck(word: str) -> str:
    if word == "b":
        await asyncio.Event().wait()
    return word


def test_a_call_that_never_returns_fails_with_the_timeout_and_its_record(jobs: Jobs) -> None:
    env = jobs.environment().set_restart_strategy(NoRestart())
    env.from_collection(["a", "b"]).map_async(stuck, timeout=timedelta(milliseconds=200)).name("ask").print()

    with pytest.raises(UserFunctionError, match="on record 'b': TimeoutError: no result within") as caught:
        env.execute()

    assert "await asyncio.Event().wait()" in caught.value.user_traceback


def test_a_job_is_cancelled_though_a_call_never_returns(jobs: Jobs) -> None:
    env = jobs.environment(checkpoints=jobs.checkpoints())
    texts = env.read_text(jobs.texts("a", "b"), max_files_per_epoch=1)
    texts.map_async(stuck).print()

    def cancel(stats: EpochStats) -> None:
        jobs.cancel()

    jobs.watcher.on_epoch = cancel

    assert env.execute().end is JobEnd.CANCELLED


def _pairs_in(directory: Path) -> Counter[tuple[str, int]]:
    lines = [line for part in directory.glob("*.json") for line in part.read_text().splitlines()]
    return Counter((row["f0"], row["f1"]) for row in map(json.loads, lines))
