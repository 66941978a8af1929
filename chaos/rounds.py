"""The kinds of round: the failures of each, and the order in which drivers are started."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.contract import ChaosJob
from chaos.damage import damage_newest
from chaos.fire import KILLED, TERMINATED, Driver, Fire, RoundFailed
from chaos.job import STOPPED
from chaos.jobs import JOBS
from chaos.judge import job_faults, orphans
from chaos.place import Place
from chaos.traps import Moment, When
from chaos.warm_start import archiving_settings, class_archive, make_quick_java
from checkdam.runtime.janitor import remove_abandoned

_IN_A_CHECKPOINT = (When.SEAL, When.SNAPSHOT)
_AROUND_METADATA = (When.BEFORE_METADATA, When.AFTER_METADATA)
_IN_BETWEEN = (When.EPOCH, When.EPOCH)
_AT_THE_START = (When.SLOTS,)

_HEARTBEATS = {"heartbeat.interval": "500ms", "heartbeat.timeout": "4s"}
_OWN_PROCESS_IDS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True)
class Outcome:
    """The failures and the faults of a round; with faults its files are kept."""

    kind: str
    job: str
    told: str
    faults: list[str]
    kept: Path | None = None


def slot_round(fire: Fire) -> None:
    """Kill a slot in an epoch, between two, or in either part of a snapshot; the same driver recovers."""
    fire.run_to_the_end([fire.moment("kill-slot", *_AT_THE_START, *_IN_BETWEEN, *_IN_A_CHECKPOINT)])


def frozen_slot_round(fire: Fire) -> None:
    """Freeze a slot; the driver detects that it does not answer, and recovers."""
    fire.settings = _HEARTBEATS
    fire.run_to_the_end([fire.moment("freeze-slot", *_AT_THE_START, *_IN_BETWEEN, *_IN_A_CHECKPOINT)])


def executor_round(fire: Fire) -> None:
    """Kill an executor with the slots on it."""
    fire.settings = {"spark.master": "local-cluster[2,1,1024]"}
    fire.run_to_the_end([fire.moment("kill-executor", *_AT_THE_START, *_IN_BETWEEN)])


def driver_round(fire: Fire) -> None:
    """Kill the driver twice, also around `_metadata`; another process resumes."""
    whens = (*_AT_THE_START, *_IN_BETWEEN, *_IN_A_CHECKPOINT, *_AROUND_METADATA)
    fire.run_to_the_end(*([fire.moment("kill-driver", *whens, last=3)] for _ in range(2)))


def frozen_driver_round(fire: Fire) -> None:
    """Freeze the driver or all its processes; a second driver takes over, and the first one must end when it wakes."""
    fire.settings = _HEARTBEATS
    act = fire.rng.choice(["freeze-driver", "freeze-all"])
    frozen = fire.start(fire.moment(act, *_IN_BETWEEN, *_IN_A_CHECKPOINT, *_AROUND_METADATA, first=2))
    if not frozen.has_frozen():
        frozen.must_end_with(0)
        return
    wakes = [fire.moment("wake", *_IN_BETWEEN, *_AROUND_METADATA, last=4)] if fire.rng.random() < 0.7 else []
    fire.start(*wakes, take_over=True).must_end_with(0)
    fire.wake()
    if frozen.wait() <= 0:
        raise RoundFailed(f"the driver that was replaced ended with {frozen.wait()}: {frozen.log}")
    if any(orphans(fire.place)):
        fire.told.append("resumed once more, to clear what the replaced driver's slots have written")
        fire.run_to_the_end()


def sigterm_round(fire: Fire) -> None:
    """Send SIGTERM to the driver or its process group; it suspends the job, and another process resumes."""
    act = fire.rng.choice(["terminate-driver", "terminate-driver", "terminate-group"])
    whens = (*_AT_THE_START, *_IN_BETWEEN, *_IN_A_CHECKPOINT, *_AROUND_METADATA)
    fire.run_to_the_end([fire.moment(act, *whens)], interrupted=(TERMINATED,))


def control_round(fire: Fire) -> None:
    """Request a savepoint, a rescale or a stop; the driver may die in the middle of it."""
    starts = []
    for _ in range(2):
        verb = fire.rng.choice(["checkpoint", "savepoint", "savepoint", "stop", "rescale-1", "rescale-3", "rescale-4"])
        at = fire.rng.randint(1, 3)
        moments = [Moment(f"ask-{verb}", When.EPOCH, at)]
        if fire.rng.random() < 0.7:
            moments.append(Moment("kill-driver", When.EPOCH, at, fire.rng.uniform(0.001, 1.5)))
        starts.append(moments)
    fire.run_to_the_end(*starts, interrupted=(KILLED, STOPPED))


def vanished_round(fire: Fire) -> None:
    """Remove the checkpoints, or the unpublished output, of the running job."""
    act = fire.rng.choice(["vanish-checkpoints", "vanish-staging"])
    whens = (*_IN_BETWEEN, *_IN_A_CHECKPOINT, *_AROUND_METADATA)
    fire.run_to_the_end([fire.moment(act, *whens, last=4)], interrupted=())


def damage_round(fire: Fire) -> None:
    """Kill the driver and damage the newest checkpoint; another process falls back to the previous one."""
    killed = fire.start(fire.moment("kill-driver", *_IN_BETWEEN, *_AROUND_METADATA, first=3))
    if killed.must_end_with(0, KILLED) == KILLED:
        fire.told.append(damage_newest(fire.place, fire.rng))
        fire.run_to_the_end()


def shared_temporary_round(fire: Fire) -> None:
    """Start another job with its own process ids, which ends or is killed; both share one temporary directory."""
    other = Place(fire.directory / "other", fire.place.temporary)
    other.make()
    fire.job.write_input(other, fire.rng)
    prefix = _OWN_PROCESS_IDS if _may_have_own_process_ids() else ()
    other_first, pause = fire.rng.random() < 0.5, fire.rng.uniform(0, 4)
    is_killed = fire.rng.random() < 0.5
    fire.told.append(f"the other job {'before' if other_first else 'after'} by {pause:.1f} s")
    starts: list[Callable[[], Driver]] = [fire.start, lambda: fire.start(place=other, prefix=prefix)]
    drivers = []
    for start in reversed(starts) if other_first else starts:
        drivers.append(start())
        time.sleep(0 if len(drivers) == 2 else pause)
    first, second = reversed(drivers) if other_first else drivers
    if is_killed:
        fire.told.append("and killed after a checkpoint")
        second.wait_for(lambda: any(other.checkpoints.glob("*/chk-*/_metadata")))
        second.kill()
        second.wait()
    first.must_end_with(0)
    if not is_killed:
        second.must_end_with(0)
        fire.faults += [f"the other job: {fault}" for fault in job_faults(fire.job, other)]
    else:
        fire.wait_for_processes()  # a killed process holds its locks until the kernel has freed its memory
        remove_abandoned(fire.place.temporary)  # as the next driver would do


def _may_have_own_process_ids() -> bool:
    return subprocess.run([*_OWN_PROCESS_IDS, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0


Kind = Callable[[Fire], None]

PROCESS_KINDS: dict[str, Kind] = {
    "slot": slot_round,
    "frozen-slot": frozen_slot_round,
    "executor": executor_round,
    "driver": driver_round,
    "frozen-driver": frozen_driver_round,
    "sigterm": sigterm_round,
    "control": control_round,
    "vanished": vanished_round,
    "damage": damage_round,
    "shared-tmp": shared_temporary_round,
}


def process_round(kind: str, job: ChaosJob, rng: random.Random) -> Outcome:
    """Play a round of one kind with one job, and judge it."""
    with Fire(job, rng) as fire:
        try:
            PROCESS_KINDS[kind](fire)
        except RoundFailed as failure:
            fire.faults.append(str(failure))
        else:
            fire.judge()
    return Outcome(kind, job.name, ", ".join(fire.told), fire.faults, fire.directory if fire.faults else None)


def prepare_quick_java() -> None:
    """Create the Java of `warm_start`; run a job without failures if there is no archive yet.

    Raises:
        RoundFailed: this run itself did not end as it should.
    """
    make_quick_java()
    archive = class_archive()
    if archive.exists():
        return
    with Fire(JOBS["all-states"], random.Random(0)) as fire:
        written = fire.directory / archive.name
        fire.start(settings=archiving_settings(written)).must_end_with(0)
        fire.judge(patience_seconds=120)  # the JVM writes the archive after its driver has ended
        if fire.faults:
            raise RoundFailed("; ".join(fire.faults))
        shutil.move(written, archive)
