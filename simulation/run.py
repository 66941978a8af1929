"""One simulated job: a seed determines its faults and requests, and the promises are checked at the end."""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import CheckpointStore, load_checkpoint
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention, JobEnd
from checkdam.errors import CheckdamError
from checkdam.ids import Attempt, JobId
from checkdam.runtime.driver import job_master
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.trouble import DriverKilled
from simulation.scheduler import HangError, Plan, Scheduler, simulated
from simulation.slots import SimulatedEngine, SimulatedSlot

_MOST_DRIVERS = 12
_FAULTS = ("kill slot", "cut slot off", "kill driver", "slow")
_REQUESTS = ("checkpoint", "savepoint", "savepoint", "stop", "stop and drain", "rescale", "cancel", "suspend")


class BrokenPromiseError(Exception):
    """A promise that must hold in every run is broken."""


@dataclass
class Outcome:
    """The outcome of a seed."""

    seed: int
    failure: str | None
    story: list[str]  # the faults and requests of the seed
    trace: list[str]  # every step


class _FaultyMetadata(FaultyStorage):
    """Counts only the changes that create `_metadata`, the moment at which a checkpoint begins to exist."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _FaultyMetadata, (self.storage, self.at, self.fault)

    @contextmanager
    def _change(self, what: str) -> Iterator[None]:
        if what.endswith('_metadata"') and what.startswith(("create", "write")):
            with super()._change(what):
                yield
        else:
            yield


@dataclass
class _Run:
    """One job under one seed, over as many drivers as it takes."""

    seed: int
    rng: random.Random = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    story: list[str] = field(default_factory=list)
    asked: list[tuple[str, Future[Any]]] = field(default_factory=list)
    engines: list[SimulatedEngine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.scheduler = Scheduler(self.rng, self.clock)
        words = [[self.rng.choice("abcdef") for _ in range(self.rng.randint(0, 4))] for _ in range(5)]
        self.storages = [self._storage(name) for name in ("checkpoints", "output", "savepoints")]
        self.count = WordCount([each or ["a"] for each in words], storage=self.storages[0], sink=self.storages[1])
        self.place = SavepointPlace(self.storages[2])
        self.checkpoints = CheckpointConfig(
            interval=self.rng.choice([timedelta(0), timedelta(0), timedelta(seconds=1), None]),
            timeout=timedelta(seconds=5),
            min_pause=timedelta(seconds=self.rng.choice([0, 0, 1])),
            max_concurrent=self.rng.choice([1, 2, 3]),
            tolerable_failures=self.rng.choice([0, 2, 100]),
            num_retained=self.rng.choice([1, 2]),
            retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        )
        self.story.append(f"{self.checkpoints}")

    def _storage(self, name: str) -> Storage:
        """Return a storage in which one change may fail: the n-th, or the n-th that writes metadata."""
        fault, number = self.rng.choice(list(Fault)), self.rng.randrange(60)
        match self.rng.randrange(5):
            case 0:
                self.story.append(f"{name}: change {number}: {fault.value}")
                return FaultyStorage(MemoryStorage(), number, fault)
            case 1:
                self.story.append(f"{name}: metadata {number % 6}: {fault.value}")
                return _FaultyMetadata(MemoryStorage(), number % 6, fault)
            case _:
                return MemoryStorage()

    # -- faults and requests ------------------------------------------------------------------------------------

    def plan(self, job: LocalJob) -> None:
        """Schedule up to three faults or requests for this driver, at steps chosen by the seed."""
        deeds: dict[int, Callable[[], None]] = {}
        for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
            what = self.rng.choice([*_FAULTS, *_REQUESTS])
            step, number = self.scheduler.steps + self.rng.randint(1, 250), self.rng.randrange(4)
            self.story.append(f"step {step}: {what} {number}")
            deeds[step] = lambda what=what, number=number: self._do(job, what, number)  # type: ignore[misc]
        self.scheduler.plan = Plan(deeds)

    def _do(self, job: LocalJob, what: str, number: int) -> None:
        self.scheduler.note(f"-- {what}")
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
            case "slow":
                self.scheduler.freeze_next = 3.0 * (number + 1)
            case "cancel":
                job.cancel()
            case "suspend":
                job.suspend(timedelta(seconds=10 * number))
            case "checkpoint" if control is not None:
                self.asked.append((what, control.trigger_checkpoint(full=number % 2 == 1)))
            case "savepoint" if control is not None:
                self.asked.append((what, control.trigger_savepoint(self.place.uri, _format(number))))
            case "stop" | "stop and drain" if control is not None:
                drain = what != "stop"
                stop = control.stop_with_savepoint(self.place.uri, _format(number), drain=drain)
                self.asked.append(("stop", stop))
            case "rescale" if control is not None:
                self.asked.append((what, control.rescale(number + 1)))

    # -- one driver after another -------------------------------------------------------------------------------

    def run(self) -> None:
        job_id, restore = JOB_ID, None
        for driver in range(_MOST_DRIVERS):
            job = self._job(job_id)
            is_last = driver == _MOST_DRIVERS - 1
            stops = len(self.asked)
            if not is_last and driver < 4:
                self.plan(job)
            end = self._drive(job, restore)
            self._check_storage(job_id)
            stopped = [f.result(0) for what, f in self.asked[stops:] if what == "stop" and f.exception(0) is None]
            if stopped and self.rng.random() < 0.5:  # resume as a new job
                job_id, restore = JobId(f"{driver + 2:032x}"), stopped[0]
                continue
            if end is JobEnd.FINISHED and not stopped:
                self._check_end(job, job_id)
                return
            if CheckpointStore(self.count.storage, job_id).completed():
                restore = None
        raise BrokenPromiseError("the job never finished")

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
        )

    def _drive(self, job: LocalJob, restore: str | None) -> JobEnd | None:
        self.scheduler.outside.clear()
        self.scheduler.freeze_next = 0.0
        self.scheduler.note("== a driver starts")
        killed = len(self.asked)
        try:
            end = job.run(restore=restore).end
        except DriverKilled:
            self.scheduler.note("== the driver was killed")
            self.asked[killed:] = []  # the driver of these requests was killed
            return None
        except CheckdamError as failure:
            self.scheduler.note(f"== the job failed: {failure}")
            end = JobEnd.FAILED
        unanswered = [what for what, answer in self.asked if not answer.done()]
        if unanswered:
            raise BrokenPromiseError(f"never answered: {unanswered}")
        self.scheduler.note(f"== the job has ended: {end}")
        return end

    # -- promises -----------------------------------------------------------------------------------------------

    def _check_storage(self, job_id: JobId) -> None:
        """Raise if a file that a checkpoint or savepoint needs is missing, after any driver has ended."""
        store = CheckpointStore(self.count.storage, job_id)
        for checkpoint_id in store.completed():
            missing = store.missing(store.load(checkpoint_id).files())
            if missing is not None:
                raise BrokenPromiseError(f"checkpoint {checkpoint_id} is not whole: {missing}")
        for path in self.place.complete():
            savepoint, place = load_checkpoint(path)
            there = {each.path: each.size for each in open_storage(place).list("")}
            gone = [file.path for file in savepoint.files() if there.get(file.path) != file.size]
            if gone or not savepoint.is_savepoint:
                raise BrokenPromiseError(f"savepoint {path} is not whole: {gone}")

    def _check_end(self, job: LocalJob, job_id: JobId) -> None:
        count = self.count
        if count.output() != count.expected_output():
            lost, repeated = count.expected_output() - count.output(), count.output() - count.expected_output()
            raise BrokenPromiseError(f"output is not exact: lost {dict(lost)}, repeated {dict(repeated)}")
        if job.state(UID) != count.expected_state():
            raise BrokenPromiseError(f"state is {job.state(UID)}, not {count.expected_state()}")
        left = _orphans(count, job_id)
        if left:
            raise BrokenPromiseError(f"left behind: {left}")
        taken = {f.result(0) for _, f in self.asked if f.exception(0) is None and isinstance(f.result(0), str)}
        if not taken <= set(self.place.complete()):
            raise BrokenPromiseError(f"savepoints that were promised are gone: {taken - set(self.place.complete())}")


def _format(number: int) -> SavepointFormat:
    return SavepointFormat.NATIVE if number % 2 else SavepointFormat.CANONICAL


def _orphans(count: WordCount, job_id: JobId) -> list[str]:
    """Return the state files of the job that no checkpoint needs."""
    store = CheckpointStore(count.storage, job_id)
    needed = {f"{job_id}/{file.path}" for each in store.completed() for file in store.load(each).files()}
    kept = [each.path for each in count.storage.list(job_id) if "/shared/" in each.path]
    return [path for path in kept if path not in needed]


def simulate(seed: int) -> Outcome:
    """Run one seed. With PYTHONHASHSEED=0 the same seed takes the same steps."""
    run = _Run(seed)
    failure: str | None = None
    names = itertools.count(1)
    with ExitStack() as patched:  # random names would change the order of files
        patched.enter_context(patch.object(job_master, "new_attempt", lambda: Attempt(f"{next(names):06x}")))
        try:
            run.run()
        except (BrokenPromiseError, HangError) as broken:
            failure = str(broken)
        except Exception as error:  # noqa: BLE001  any other exception is a fault of the driver, too
            failure = f"{type(error).__name__}: {error}"
            run.scheduler.note(traceback.format_exc())
    return Outcome(seed, failure, run.story, run.scheduler.trace)
