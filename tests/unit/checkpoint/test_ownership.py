"""One driver at a time owns a job; jobs that died before their first checkpoint are cleared away."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from msgspec.structs import replace

from checkdam.checkpoint.ownership import OWNER, PROMISED, Owner, clear_abandoned, let_go, take, this_process
from checkdam.errors import JobFailedError
from checkdam.ids import JobId
from checkdam.testing import MemoryStorage

JOB = JobId("a" * 32)
OTHER = JobId("b" * 32)


def owned_by(storage: MemoryStorage, owner: Owner, job: JobId = JOB) -> None:
    storage.write(f"{job}/{OWNER}", msgspec.json.encode(owner))


def dead_process() -> Owner:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(this_process(), pid=process.pid, started="1")


def test_a_job_is_taken_and_let_go() -> None:
    storage = MemoryStorage()

    take(storage, JOB)
    assert msgspec.json.decode(storage.read(f"{JOB}/{OWNER}"), type=Owner) == this_process()

    let_go(storage, JOB)
    assert storage.list("") == []


def test_a_job_that_another_living_process_owns_is_refused() -> None:
    storage = MemoryStorage()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with open(f"/proc/{process.pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    owned_by(storage, replace(this_process(), pid=process.pid, started=started))

    with pytest.raises(JobFailedError, match=f"process {process.pid} .* Stop that process first"):
        take(storage, JOB)

    process.communicate(b"\n")
    take(storage, JOB)  # it is dead now


def test_a_later_process_with_the_same_number_is_not_the_owner() -> None:
    storage = MemoryStorage()
    owned_by(storage, replace(this_process(), pid=os.getppid(), started="not when it began"))

    take(storage, JOB)

    assert msgspec.json.decode(storage.read(f"{JOB}/{OWNER}"), type=Owner) == this_process()


def test_a_damaged_owner_file_belongs_to_nobody() -> None:
    storage = MemoryStorage()
    storage.write(f"{JOB}/{OWNER}", b"{half")

    take(storage, JOB)

    assert clear_abandoned(storage) == []


def test_the_directory_of_a_job_that_died_before_its_first_checkpoint_is_cleared() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER)
    storage.write(f"{OTHER}/shared/some-file", b"state")
    take(storage, JOB)

    assert clear_abandoned(storage) == [OTHER]

    assert [each.path for each in storage.list("")] == [f"{JOB}/{OWNER}"]


@pytest.mark.parametrize(
    "owner", [this_process(), Owner("another-machine", 1, "1")], ids=["alive", "on another machine"]
)
def test_a_job_that_may_still_run_is_left_alone(owner: Owner) -> None:
    storage = MemoryStorage()
    owned_by(storage, owner, OTHER)

    assert clear_abandoned(storage) == []


def test_a_dead_job_with_a_complete_checkpoint_is_left_alone() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER)
    storage.write(f"{OTHER}/chk-1/_metadata", b"whole or not, somebody may want it")

    assert clear_abandoned(storage) == []


def test_where_the_system_does_not_tell_when_a_process_began_its_number_decides() -> None:
    assert replace(this_process(), started="").is_alive()
    assert not replace(dead_process(), started="").is_alive()


def test_a_dead_job_whose_output_a_savepoint_refers_to_is_left_alone() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER)
    storage.write(f"{OTHER}/{PROMISED}", b"{}")

    assert clear_abandoned(storage) == []
