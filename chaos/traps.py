"""Traps inside the driver: they act on one of the job's processes or files at a named moment."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.place import Place
from chaos.processes import MARK, descendants, executors_of, marked, send
from checkdam.connectors.file_sink import STAGING
from checkdam.errors import CheckdamError
from checkdam.ids import CheckpointId, JobId
from checkdam.runtime.job_control import JobControl, RunningJob, SavepointFormat
from checkdam.runtime.monitor.job_events import EpochStats, PrintingListener
from checkdam.runtime.monitor.job_records import SlotRecord


class When(StrEnum):
    """A repeated step of a driver; a moment gives its number within this process."""

    SLOTS = "slots"  # the slots of an attempt have started
    EPOCH = "epoch"  # an epoch has ended
    SEAL = "seal"  # before the synchronous part of a checkpoint
    SNAPSHOT = "snapshot"  # before the driver waits for the asynchronous part
    BEFORE_METADATA = "before-metadata"  # every slot has reported
    AFTER_METADATA = "after-metadata"  # the checkpoint is complete, its output is not published


@dataclass(frozen=True)
class Moment:
    """An act, the step at which it happens, and a delay in seconds: "kill-slot@epoch:3+0.25"."""

    act: str
    when: When
    number: int
    delay: float = 0.0

    def __str__(self) -> str:
        later = f"+{self.delay:.3f}" if self.delay else ""
        return f"{self.act}@{self.when}:{self.number}{later}"

    @staticmethod
    def parse(text: str) -> Moment:
        act, _, at = text.partition("@")
        when, _, counted = at.partition(":")
        number, _, delay = counted.partition("+")
        return Moment(act, When(when), int(number), float(delay or 0))


class Host:
    """The job's host: holds the control of the job while it runs."""

    def __init__(self) -> None:
        self.control: JobControl | None = None

    def job_started(self, job: RunningJob) -> None:
        self.control = job.control

    def job_ended(self, job_id: JobId) -> None:
        self.control = None


class Traps(PrintingListener):
    """Listens to the job and intercepts the steps of its checkpoints.

    Acts: {kill,freeze}-slot, {kill,freeze,terminate}-driver, freeze-all, terminate-group, kill-executor, wake,
    vanish-checkpoints, vanish-staging, and ask-VERB with checkpoint, savepoint, stop or rescale-N.
    """

    def __init__(self, moments: Sequence[Moment], victim: int, place: Place, host: Host) -> None:
        self._waiting = list(moments)
        self._victim = victim
        self._place = place
        self._slots: Sequence[int] = ()
        self._host = host
        self._reached: Counter[When] = Counter()
        self._seen: set[tuple[When, CheckpointId]] = set()
        self._lock = threading.Lock()
        self.has_stopped = False  # with a savepoint, before the input ended

    # -- where they are set -------------------------------------------------------------------------------------

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        self._slots = [slot.pid for slot in slots]
        self._reach(When.SLOTS)

    def epoch_ended(self, stats: EpochStats) -> None:
        self._reach(When.EPOCH)

    def install(self) -> None:
        """Set traps inside the steps of a checkpoint, in this process only."""
        from checkdam.checkpoint.checkpoint_store import CheckpointStore
        from checkdam.runtime.slot.slot_client import RemoteSlot

        write, seal, snapshot = CheckpointStore.write, RemoteSlot.begin_snapshot, RemoteSlot.snapshot

        def trapped_write(store: CheckpointStore, *arguments: Any, **options: Any) -> Any:
            self._reach(When.BEFORE_METADATA)
            path = write(store, *arguments, **options)
            self._reach(When.AFTER_METADATA)
            return path

        def trapped_seal(slot: RemoteSlot, checkpoint_id: CheckpointId, *arguments: Any, **options: Any) -> Any:
            self._reach(When.SEAL, checkpoint_id)
            return seal(slot, checkpoint_id, *arguments, **options)

        def trapped_snapshot(slot: RemoteSlot, checkpoint_id: CheckpointId, *arguments: Any, **options: Any) -> Any:
            self._reach(When.SNAPSHOT, checkpoint_id)
            return snapshot(slot, checkpoint_id, *arguments, **options)

        for owner, name, trapped in (
            (CheckpointStore, "write", trapped_write),
            (RemoteSlot, "begin_snapshot", trapped_seal),
            (RemoteSlot, "snapshot", trapped_snapshot),
        ):
            setattr(owner, name, trapped)

    def _reach(self, when: When, checkpoint_id: CheckpointId | None = None) -> None:
        """Count a step, once for all slots that take it for one checkpoint, and perform the acts that are due."""
        with self._lock:
            if checkpoint_id is not None and (when, checkpoint_id) in self._seen:
                return
            if checkpoint_id is not None:
                self._seen.add((when, checkpoint_id))
            self._reached[when] += 1
            due = [each for each in self._waiting if (each.when, each.number) == (when, self._reached[when])]
            self._waiting = [each for each in self._waiting if each not in due]
        for moment in due:
            if moment.delay:
                threading.Timer(moment.delay, self._do, [moment.act]).start()
            else:
                self._do(moment.act)

    # -- what they do -------------------------------------------------------------------------------------------

    def _do(self, act: str) -> None:
        sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S.%f} chaos: {act}\n")
        sys.stderr.flush()
        verb, _, what = act.partition("-")
        me = os.getpid()
        acts: dict[str, Callable[[], object]] = {
            "kill-slot": lambda: send(signal.SIGKILL, self._one_of(self._slots)),
            "freeze-slot": lambda: send(signal.SIGSTOP, self._one_of(self._slots)),
            "kill-executor": lambda: send(signal.SIGKILL, self._one_of(executors_of(me))),
            "kill-driver": lambda: send(signal.SIGKILL, [me]),
            "freeze-driver": lambda: send(signal.SIGSTOP, [me]),
            "freeze-all": lambda: send(signal.SIGSTOP, [*descendants(me), me]),
            "terminate-driver": lambda: send(signal.SIGTERM, [me]),
            "terminate-group": lambda: os.killpg(os.getpgrp(), signal.SIGTERM),
            "wake": lambda: send(signal.SIGCONT, marked(os.environ[MARK])),
            "vanish-checkpoints": lambda: _remove(self._place.job_directories()),
            "vanish-staging": lambda: _remove(self._place.output.glob(f"*/{STAGING}")),
        }
        if verb == "ask":
            self._ask(what)
        else:
            acts[act]()

    def _one_of(self, pids: Sequence[int]) -> list[int]:
        return [pids[self._victim % len(pids)]] if pids else []

    def _ask(self, verb: str) -> None:
        control = self._host.control
        if control is None:
            return  # the job has ended
        answer = _asked(control, verb, str(self._place.savepoints))
        if verb == "stop":
            answer.add_done_callback(self._note_stop)

    def _note_stop(self, answer: Future[str]) -> None:
        failure = answer.exception()
        if failure is not None and not isinstance(failure, CheckdamError):
            raise failure
        self.has_stopped = failure is None


def _asked(control: JobControl, verb: str, savepoints: str) -> Future[Any]:
    if verb == "checkpoint":
        return control.trigger_checkpoint()
    if verb == "savepoint":
        return control.trigger_savepoint(savepoints, SavepointFormat.CANONICAL)
    if verb == "stop":
        return control.stop_with_savepoint(savepoints, SavepointFormat.CANONICAL, drain=False)
    return control.rescale(int(verb.removeprefix("rescale-")))


def _remove(paths: Iterable[Path]) -> None:
    """Remove files as `rm -rf` does; files created meanwhile may stay."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
