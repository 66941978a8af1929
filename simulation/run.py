"""One simulated job: a seed determines its faults and requests, and the promises are checked at the end."""

from __future__ import annotations

import random
import secrets
import traceback
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
from tests.support.event_time_counts import EVENT_TIME_COUNTS, EventTimeCount, random_events
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WindowedWordCount, WordCount

from checkdam import config
from checkdam.checkpoint import checkpoint_store, terms
from checkdam.checkpoint.checkpoint_store import CheckpointStore, load_checkpoint
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention, JobEnd
from checkdam.config import Configuration
from checkdam.connectors.file_sink import STAGING, PartFile
from checkdam.errors import CheckdamError
from checkdam.graph.operators import OP_STATE
from checkdam.graph.windowing.window_contents import WINDOW_CONTENTS
from checkdam.ids import JobId
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.runtime.slot import task
from checkdam.runtime.source_position import decode_position
from checkdam.storage.filesystem import open_storage
from checkdam.testing.faulty_storage import Fault
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.trouble import DriverKilled
from simulation.machinery import simulated
from simulation.scheduler import CooperativeLock, HangError, Scheduler
from simulation.slots import SimulatedEngine, SimulatedSlot
from simulation.storages import GuardedStorage, TroubledStorage, decoded

_KEYS = "abcdefghijkl"
_MOST_DRIVERS = 12
_WINDOWED_EACH = 4  # one seed of so many counts in windows, half of these in event time
_LOCAL_EACH = 4  # one seed in so many restores from local copies
_USUAL_STEPS = 350  # of a driver
_MEMORY = Path("/dev/shm")  # files in memory, where there is such a directory
_STORAGES = ("checkpoints", "output", "savepoints")
_DEATHS = ("kill slot", "kill slot", "cut slot off", "kill driver")
_FAULTS = (*_DEATHS, *2 * ("slow", "metadata fails", "change fails"))
_REQUESTS = (*3 * ("checkpoint", "savepoint"), "stop", "stop and drain", "rescale", "cancel", "suspend")
_REFERS_TO_DELETED, _GONE = "which has been deleted", "is gone"


class BrokenPromiseError(Exception):
    """A promise that must hold in every run is broken."""


@dataclass
class Outcome:
    """The outcome of a seed."""

    seed: int
    failure: str | None
    story: list[str]  # the faults and requests of the seed
    trace: list[str]  # every step


@dataclass
class _Run:
    """One job under one seed, over as many drivers as it takes."""

    seed: int
    directory: Path  # of this run's databases
    rocksdb: float  # how likely it is that the state is in RocksDB
    rng: random.Random = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    story: list[str] = field(default_factory=list)
    job: LocalJob = field(init=False)
    asked: list[tuple[str, Future[Any]]] = field(default_factory=list)
    engines: list[SimulatedEngine] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)  # complete ones, which must stay and can be restored
    repeats: Counter[tuple[str, int]] = field(default_factory=Counter)  # output that a restored savepoint repeats
    visible: dict[str, set[str]] = field(default_factory=dict)  # the files of the output, when a savepoint completed
    plans: bool = False  # whether faults may still be planned
    has_stopped: bool = False  # the last driver has ended with a savepoint

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.scheduler = Scheduler(self.rng, self.clock)
        self.memories = [GuardedStorage() for _ in _STORAGES]
        self.memories[0].on_complete = lambda directory: self._perhaps_soon(0.1)
        self.memories[2].on_complete = self._savepoint_completed
        self.storages = [self._storage(name, memory) for name, memory in zip(_STORAGES, self.memories, strict=True)]
        self.count = self._counting()
        self.place = SavepointPlace(self.storages[2])
        self.checkpoints = CheckpointConfig(
            interval=self.rng.choice([timedelta(0), timedelta(0), timedelta(seconds=1), None]),
            timeout=timedelta(seconds=5),
            min_pause=timedelta(seconds=self.rng.choice([0, 0, 1])),
            max_concurrent=self.rng.choice([1, 2, 3, 4]),
            tolerable_failures=self.rng.choice([0, 2, 100]),
            num_retained=self.rng.choice([1, 2]),
            incremental=self.rng.random() < 0.9,
            retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        )
        self.settings = Configuration()
        if self.rng.random() < self.rocksdb:
            local = self.settings.with_value(config.ROCKSDB_LOCAL_DIR, str(self.directory))
            self.settings = local.with_value(config.STATE_BACKEND, "rocksdb")
        if self.seed % _LOCAL_EACH == 1:
            local = self.settings.with_value(config.LOCAL_COPIES_DIR, str(self.directory))
            self.settings = local.with_value(config.RESTORE_FROM_LOCAL, True)  # noqa: FBT003  a value of any type
        self.story.append(f"{self.checkpoints}, {self.settings.get(config.STATE_BACKEND)}")
        if self.is_windowed:
            self.story.append(f"counts in windows: {type(self.count).__name__}")

    @property
    def is_windowed(self) -> bool:
        return self.seed % _WINDOWED_EACH == 0

    def _counting(self) -> WordCount:
        storages: Any = {"storage": self.storages[0], "sink": self.storages[1]}
        if self.seed % (2 * _WINDOWED_EACH) == 0:
            kind = EVENT_TIME_COUNTS[self.seed // (2 * _WINDOWED_EACH) % len(EVENT_TIME_COUNTS)]
            return kind(random_events(self.rng, "abcd"), **storages)
        return (WindowedWordCount if self.is_windowed else WordCount)(self._words(), **storages)

    def _words(self) -> list[list[str]]:
        """Return epochs that change most keys, or few of many: then snapshots build on earlier ones."""
        if self.rng.random() < 0.4:
            return [[self.rng.choice("abcdef") for _ in range(self.rng.randint(1, 4))] for _ in range(5)]
        few = [[self.rng.choice(_KEYS) for _ in range(self.rng.choice([1, 1, 2]))] for _ in range(8)]
        return [list(_KEYS), *few]

    def _storage(self, name: str, memory: GuardedStorage) -> TroubledStorage:
        fault = self.rng.choice(list(Fault))
        number = self.rng.randrange(60) if self.rng.random() < 0.3 else -1
        if number >= 0:
            self.story.append(f"{name}: change {number}: {fault.value}")
        return TroubledStorage(memory, number, fault, self.rng)

    def _savepoint_completed(self, directory: str) -> None:
        files = [each.path for each in self.memories[1].list("")]
        self.visible[directory] = {path for path in files if not path.startswith(STAGING)}
        self._perhaps_soon(0.5)

    def _perhaps_soon(self, chance: float) -> None:
        """Perhaps let a fault come soon: the moments after a checkpoint or savepoint are those at which it hurts."""
        if self.plans and self.rng.random() < chance:
            self._plan(self.rng.choice(_DEATHS), within=60)

    # -- faults and requests ------------------------------------------------------------------------------------

    def plan(self, job: LocalJob) -> None:
        """Plan faults and requests for this driver, at steps chosen by the seed."""
        self.scheduler.plan.clear()
        self.job, self.plans = job, True
        for _ in range(self.rng.choice([0, 2, 3, 5, 8])):
            self._plan(self.rng.choice([*_FAULTS, *self._requests()]), within=_USUAL_STEPS)

    def _requests(self) -> Sequence[str]:
        """Return what may be asked of the job. Draining ends event time, so that windows count anew after it."""
        is_event_time = isinstance(self.count, EventTimeCount)
        return [each for each in _REQUESTS if not (is_event_time and each == "stop and drain")]

    def _plan(self, what: str, *, within: int) -> None:
        job, number = self.job, self.rng.randrange(4)
        step = self.scheduler.steps + self.rng.randint(1, within)
        self.story.append(f"step {step}: {what} {number}")
        self.scheduler.plan[step] = lambda: self._do(job, what, number)

    def _do(self, job: LocalJob, what: str, number: int) -> None:
        self.scheduler.note(f"-- {what}")
        if not self.engines or job._master is None:
            return  # the driver is only beginning
        engine, control = self.engines[-1], job._master
        slots = [slot for slot in engine.slots if isinstance(slot, SimulatedSlot)]
        match what:
            case "kill slot" if slots:
                slots[number % len(slots)].kill()
            case "cut slot off" if slots:
                slots[number % len(slots)].is_cut_off = True
            case "kill driver":
                engine.kill_driver()
                raise DriverKilled
            case "change fails":
                self.storages[number % 3].next_fault = "", self.rng.choice(list(Fault))
            case "metadata fails":
                self.storages[number // 3 * 2].next_fault = "_metadata", self.rng.choice(list(Fault))
            case "slow":
                self.scheduler.freeze_next = 3.0 * (number + 1)
            case "cancel":
                job.cancel()
            case "suspend":
                job.suspend(timedelta(seconds=10 * number))
            case "checkpoint":
                self.asked.append((what, control.trigger_checkpoint(full=number % 2 == 1)))
            case "savepoint":
                self.asked.append((what, control.trigger_savepoint(self.place.uri, _format(number))))
            case "stop" | "stop and drain":
                drain = what != "stop"
                stop = control.stop_with_savepoint(self.place.uri, _format(number), drain=drain)
                self.asked.append(("stop", stop))
            case "rescale":
                self.asked.append((what, control.rescale(number + 1)))

    # -- one driver after another -------------------------------------------------------------------------------

    def run(self) -> None:
        job_id, restore = JOB_ID, None
        for driver in range(_MOST_DRIVERS):
            job = self._job(job_id)
            self.plans = False
            if driver < 5:
                self.plan(job)
            end = self._drive(job, restore)
            self._check_driver(job, job_id)
            if end is JobEnd.FINISHED and not self.has_stopped:
                self._check_end(job, job_id)
                return
            if self.savepoints and self.rng.random() < 0.5:
                job_id, restore = JobId(f"{driver + 2:032x}"), self.rng.choice(self.savepoints[-2:])
                self._go_back_to(restore)
            elif CheckpointStore(self.count.storage, job_id).completed():
                restore = None
        raise BrokenPromiseError("the job never finished")

    def _go_back_to(self, savepoint: str) -> None:
        """Resume from a savepoint as a new job. What was published after the savepoint will be published again."""
        checkpoint, _ = load_checkpoint(savepoint)
        position = decode_position(checkpoint.source_position)
        covered = self.count.expected_output(position.held[0].lines[0] if position.held else 0)
        named = {_final(each) for entry in checkpoint.operators for each in entry.committables}
        earlier = self.count.output(self.visible[savepoint.rpartition("/")[2]] | named)
        self.repeats += self.count.output() - earlier  # also what the first job published after it had gone back
        self.repeats += earlier - covered
        self.scheduler.note(f"== a new job resumes from {savepoint}")

    def _job(self, job_id: JobId) -> LocalJob:
        run = self

        class Engine(SimulatedEngine):
            scheduler = run.scheduler

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                run.engines.append(self)

        return self.count.job(
            job_id=job_id,
            checkpoints=self.checkpoints,
            parallelism=self.rng.randint(1, 3),
            restart=FixedDelayRestart(attempts=5, delay=timedelta(0)),
            lockstep=False,
            clock=self.clock,
            engines=Engine,
            machinery=simulated(self.scheduler),
            cancellation_timeout=timedelta(0),
            settings=self.settings,
        )

    def _drive(self, job: LocalJob, restore: str | None) -> JobEnd | None:
        self.scheduler.outside.clear()
        self.scheduler.calls.clear()
        terms._held.clear()  # what the process of a killed driver held
        self.scheduler.freeze_next = 0.0
        self.scheduler.note("== a driver starts")
        self.has_stopped = False
        asked, self.asked = self.asked, []
        before = self.place.complete()
        end: JobEnd | None = None
        try:
            end = job.run(restore=restore).end
        except DriverKilled:
            self.scheduler.note("== the driver was killed")
        except CheckdamError as failure:
            self.scheduler.note(f"== the job failed: {failure}")
            end = JobEnd.FAILED
        for storage in self.storages:
            storage.next_fault, storage.outage = None, 0
        self._take_answers(before, is_killed=end is None)
        self.asked = asked + self.asked
        self.scheduler.note(f"== the job has ended: {end}")
        return end

    def _take_answers(self, before: Collection[str], *, is_killed: bool) -> None:
        unanswered = [what for what, answer in self.asked if not answer.done()]
        if unanswered and not is_killed:
            raise BrokenPromiseError(f"never answered: {unanswered}")
        answers = [(what, answer) for what, answer in self.asked if answer.done()]
        taken = [(what, answer.result(0)) for what, answer in answers if answer.exception(0) is None]
        self.savepoints += [path for _, path in taken if isinstance(path, str)]
        self.has_stopped = any(what == "stop" for what, _ in taken)
        if is_killed and not any(answer.exception(0) for _, answer in answers):  # those it could not tell of any more
            self.savepoints += [path for path in self.place.complete() if path not in {*before, *self.savepoints}]

    # -- promises -----------------------------------------------------------------------------------------------

    def _check_driver(self, job: LocalJob, job_id: JobId) -> None:
        """Check what must hold after any driver has ended."""
        broken = [each for memory in self.memories for each in memory.broken]
        gone = [reason for _, reason in job.heard.failed_checkpoints if _REFERS_TO_DELETED in reason or _GONE in reason]
        if broken or gone:
            raise BrokenPromiseError(f"files were deleted that are needed: {[*broken, *gone]}")
        if job.heard.missing:
            raise BrokenPromiseError(f"output that the job was to publish is gone: {job.heard.missing}")
        store = CheckpointStore(self.count.storage, job_id)
        for checkpoint_id in store.completed():
            missing = store.missing(store.load(checkpoint_id).files())
            if missing is not None:
                raise BrokenPromiseError(f"checkpoint {checkpoint_id} is not whole: {missing}")
        complete = self.place.complete()
        for path in complete:
            savepoint, place = load_checkpoint(path)
            there = {each.path: each.size for each in open_storage(place).list("")}
            lost = [file.path for file in savepoint.files() if there.get(file.path) != file.size]
            if lost or not savepoint.is_savepoint:
                raise BrokenPromiseError(f"savepoint {path} is not whole: {lost}")
        if not set(self.savepoints) <= set(complete):
            raise BrokenPromiseError(f"savepoints that were promised are gone: {set(self.savepoints) - set(complete)}")

    def _check_end(self, job: LocalJob, job_id: JobId) -> None:
        count = self.count
        lost, repeated = count.expected_output() - count.output(), count.output() - count.expected_output()
        if lost or repeated - self.repeats:
            raise BrokenPromiseError(f"output is not exact: lost {dict(lost)}, repeated {dict(repeated)}")
        is_rocksdb = self.settings.get(config.STATE_BACKEND) == "rocksdb"
        if self.is_windowed:
            kept = {each.name for each in job.savepoint().states(UID)}  # windows that are over leave nothing
            contents = job.state(UID, WINDOW_CONTENTS) if WINDOW_CONTENTS in kept else {}
            state = {key: count for key, by_window in contents.items() for count in by_window.values()}
        else:
            state = job.state(UID, OP_STATE) if is_rocksdb else job.state(UID)
        if state != count.expected_state():
            raise BrokenPromiseError(f"state is {state}, not {count.expected_state()}")
        left = _orphans(count, job_id)
        if left and not job.heard.left:  # otherwise the user was told
            raise BrokenPromiseError(f"left behind: {left}")


def _final(committable: bytes) -> str:
    return msgspec.msgpack.decode(committable, type=PartFile).final


def _format(number: int) -> SavepointFormat:
    return SavepointFormat.NATIVE if number % 2 else SavepointFormat.CANONICAL


def _orphans(count: WordCount, job_id: JobId) -> list[str]:
    """Return the state files of the job that no checkpoint needs."""
    store = CheckpointStore(count.storage, job_id)
    needed = {f"{job_id}/{file.path}" for each in store.completed() for file in store.load(each).files()}
    kept = [each.path for each in count.storage.list(job_id) if "/shared/" in each.path]
    return [path for path in kept if path not in needed]


def simulate(seed: int, *, rocksdb: float = 0.0) -> Outcome:
    """Run one seed. With PYTHONHASHSEED=0 the same seed takes the same steps.

    This share of the seeds keeps its state in RocksDB, whose own threads decide how many files there are: such a seed
    does not always take the same steps.
    """
    failure: str | None = None
    names = random.Random(seed)
    with ExitStack() as opened:
        directory = opened.enter_context(TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None))
        run = _Run(seed, Path(directory), rocksdb)
        locks = SimpleNamespace(Lock=lambda: CooperativeLock(run.scheduler))
        for place, name, replacement in (
            (secrets, "token_hex", lambda size: names.randbytes(size).hex()),
            (terms, "threading", locks),
            (checkpoint_store, "from_metadata", decoded),
            (task, "resident_bytes", lambda: -1),
        ):
            opened.enter_context(patch.object(place, name, replacement))
        try:
            run.run()
        except (BrokenPromiseError, HangError) as broken:
            failure = str(broken)
        except Exception as error:  # noqa: BLE001  any other exception is a fault of the driver, too
            failure = f"{type(error).__name__}: {error}"
            run.scheduler.note(traceback.format_exc())
    return Outcome(seed, failure, run.story, run.scheduler.trace)
