"""The job under fire: a word count with an exactly-once file sink, which can be told when to kill what.

Run as `python -m chaos.job DIRECTORY --moment KIND:N …`; DIRECTORY holds `input`, `output` and `checkpoints`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from chaos.asking import STOPPED, Asker
from checkdam import CheckpointConfig, CheckpointRetention, FixedDelayRestart, StreamExecutionEnvironment
from checkdam.api.launch import Launch, set_launch
from checkdam.checkpoint.store import CheckpointStore
from checkdam.config import Configuration
from checkdam.ids import CheckpointId
from checkdam.runtime.events import EpochStats, JobListener
from checkdam.runtime.processes import parent_of
from checkdam.runtime.records import SlotRecord
from checkdam.runtime.restore import Resume
from checkdam.runtime.slot.client import RemoteSlot

JOB_NAME = "chaos"
UID = "count"


class Killer(JobListener):
    """Kills once, at a moment named KIND:N, or KIND:N:SECONDS for a while after it."""

    def __init__(self, moment: str | None, victim: int, asker: Asker) -> None:
        kind, number, delay = [*(moment or "never:0").split(":"), "0"][:3]
        self._kind, self._number, self._delay = kind, int(number), float(delay)
        self._victim = victim
        self._pids: Sequence[int] = ()
        self._executors: list[int] = []
        self._armed = True
        self._asker = asker

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        self._pids = [slot.pid for slot in slots]
        self._executors = [parent_of(pid) for pid in self._pids]

    def epoch_ended(self, stats: EpochStats) -> None:
        self._asker.epoch_ended()
        if stats.epoch == self._number:
            if self._kind == "slot":
                self._later(lambda: self._kill(self._pids))
            elif self._kind == "executor":
                self._later(lambda: self._kill(executors_of(os.getpid())))
            elif self._kind == "driver":
                self._later(lambda: os.kill(os.getpid(), signal.SIGKILL))

    def _later(self, act: Any) -> None:
        if self._armed:
            self._armed = False
            threading.Timer(self._delay, act).start()

    def _kill(self, pids: Sequence[int]) -> None:
        if pids:
            os.kill(pids[self._victim % len(pids)], signal.SIGKILL)

    def install(self) -> None:
        """Set the traps inside the checkpoint's own steps."""
        write, snapshot = CheckpointStore.write, RemoteSlot.snapshot

        def trapped_write(store: CheckpointStore, checkpoint: Any) -> str:
            here = checkpoint.checkpoint_id == self._number
            if here and self._kind == "before-metadata":
                os.kill(os.getpid(), signal.SIGKILL)
            path = write(store, checkpoint)
            if here and self._kind == "after-metadata":
                os.kill(os.getpid(), signal.SIGKILL)
            return path

        def trapped_snapshot(slot: RemoteSlot, checkpoint_id: CheckpointId) -> Any:
            if self._armed and checkpoint_id == self._number and self._kind == "slot-in-snapshot":
                self._armed = False
                slot.kill()
            return snapshot(slot, checkpoint_id)

        CheckpointStore.write = trapped_write  # type: ignore[method-assign,assignment]  # a trap in this process only
        RemoteSlot.snapshot = trapped_snapshot  # type: ignore[method-assign,assignment]  # a trap in this process only


def executors_of(driver: int) -> list[int]:
    """The executor processes below a driver, in a local cluster."""
    return [pid for pid in descendants(driver) if b"CoarseGrainedExecutorBackend" in command_of(pid)]


def descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = parent_of(int(entry.name))
            except (OSError, ValueError):
                continue  # it ended while we looked
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--moment")
    parser.add_argument("--victim", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    asker = Asker(arguments.moment, arguments.directory / "savepoints")
    killer = Killer(arguments.moment, arguments.victim, asker)
    killer.install()
    configuration = Configuration.load(None, {"spark.master": arguments.master, "parallelism.default": "2"})
    set_launch(Launch(configuration, resume=Resume.LATEST if arguments.resume else None, listener=killer, host=asker))
    run(arguments.directory)
    sys.exit(STOPPED if asker.has_stopped else 0)


def run(directory: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(
        CheckpointConfig(
            interval=timedelta(0),
            storage=str(directory / "checkpoints"),
            retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
            num_retained=2,
        )
    )
    env.set_restart_strategy(FixedDelayRestart(attempts=3, delay=timedelta(milliseconds=100)))
    (
        env.read_text(str(directory / "input"), max_files_per_epoch=2)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid(UID)
        .sink_to_files(str(directory / "output"))
    )
    env.execute(JOB_NAME)


if __name__ == "__main__":
    main()
