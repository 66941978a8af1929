"""Savepoints of a job with every kind of state: moved, rescaled, in the other backend; and each write of one failed."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.support.every_state import EveryState

from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.checkpoint_store import load_checkpoint, verify_files
from checkdam.checkpoint.savepoints import dispose, list_savepoints
from checkdam.checkpoint.settings import RestoreMode
from checkdam.errors import CheckdamError, CheckpointDamagedError, CheckpointNotFoundError
from checkdam.ids import JobId
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.storage.filesystem import open_storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import LocalJob
from checkdam.testing.mounts import mount

pytestmark = pytest.mark.slow

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("16 MB")}
WIDTHS = {"hashmap": 2, "rocksdb": 1}  # each store of RocksDB takes its time to open
KEYS = [f"key{n}" for n in range(6)]
EPOCHS = [[(key, 10 * epoch + n) for n, key in enumerate([*KEYS, "rule"])] for epoch in range(4)]
HALF = EPOCHS[:2]
ANOTHER = JobId("d" * 32)


@cache
def undisturbed() -> Counter[str]:
    every = EveryState(EPOCHS, HashMapStateBackend())
    every.job(parallelism=1).run()
    return every.output()


def stopped(
    target: str, backend: str, format: SavepointFormat, parallelism: int = 2, *, has_storage: bool = True
) -> tuple[Counter[str], str]:
    """What half the script put out before the job was stopped, and its savepoint."""
    every, gate = EveryState(HALF, BACKENDS[backend]), Gate()
    if has_storage:
        job = every.job(parallelism=parallelism, until=gate)
    else:
        job = LocalJob(
            every.build, every.epochs, None, record_type=tuple[str, int], parallelism=parallelism, until=gate
        )
    control = job.start()
    job.heard.wait_for_epoch(len(HALF))
    path = control.stop_with_savepoint(target, format, drain=False).result(60)
    job.join()
    return every.output(), path


def gone_on(path: str, backend: str, parallelism: int, mode: RestoreMode = RestoreMode.NO_CLAIM) -> EveryState:
    """The whole script, begun from a savepoint after its half."""
    every = EveryState(EPOCHS, BACKENDS[backend])
    every.job(parallelism=parallelism, job_id=ANOTHER).run(restore=path, mode=mode)
    return every


@pytest.mark.parametrize("into", BACKENDS)
@pytest.mark.parametrize("format", SavepointFormat)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_state_comes_back_from_a_moved_savepoint_at_any_parallelism_in_any_backend(
    tmp_path: Path, backend: str, format: SavepointFormat, into: str
) -> None:
    before, path = stopped(str(tmp_path / "savepoints"), backend, format)
    moved = tmp_path / "moved" / "elsewhere"
    shutil.move(path, moved)

    after = [gone_on(str(moved), into, parallelism) for parallelism in (1, 2, 3)]

    assert [before + each.output() for each in after] == [undisturbed()] * 3
    assert list_savepoints(str(tmp_path))[0].path == str(moved)  # restoring leaves it as it is


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_without_checkpoints_has_its_whole_state_in_the_savepoint(tmp_path: Path, backend: str) -> None:
    before, path = stopped(str(tmp_path), backend, SavepointFormat.CANONICAL, has_storage=False)

    after = gone_on(path, backend, 3)

    assert before + after.output() == undisturbed()


def test_a_claimed_savepoint_is_gone_once_the_job_has_a_checkpoint_and_not_what_lies_beside(tmp_path: Path) -> None:
    before, path = stopped(str(tmp_path), "hashmap", SavepointFormat.CANONICAL)
    (tmp_path / "letter").write_text("dear")

    after = gone_on(path, "hashmap", 2, RestoreMode.CLAIM)

    assert before + after.output() == undisturbed()
    assert [each.name for each in tmp_path.iterdir()] == ["letter"]


def test_damage_anywhere_in_a_savepoint_is_refused_before_anything_runs(tmp_path: Path) -> None:
    _, path = stopped(str(tmp_path), "hashmap", SavepointFormat.CANONICAL)
    files = sorted(os.listdir(path))
    assert len(files) > 3
    for name, damage in itertools.product(files, ("gone", "truncated", "altered")):
        broken = tmp_path / "broken"
        shutil.copytree(path, broken)
        size = (broken / name).stat().st_size
        if damage == "gone":
            (broken / name).unlink()
        elif damage == "truncated":
            os.truncate(broken / name, size - 1)
        else:
            data = bytearray((broken / name).read_bytes())
            data[size // 2] ^= 1
            (broken / name).write_bytes(bytes(data))
        every = EveryState(EPOCHS, BACKENDS["hashmap"])

        with pytest.raises((CheckpointDamagedError, CheckpointNotFoundError)):
            every.job(job_id=ANOTHER).run(restore=str(broken))

        assert every.output() == Counter()
        shutil.rmtree(broken)


def operations(backend: str, format: SavepointFormat) -> int:
    """How many changes a savepoint makes to its place."""
    counting = FaultyStorage(MemoryStorage(), at=-1, fault=Fault.REFUSED)
    every, gate = EveryState(HALF, BACKENDS[backend]), Gate()
    job = every.job(until=gate, parallelism=WIDTHS[backend])
    control = job.start()
    job.heard.wait_for_epoch(len(HALF))
    control.trigger_savepoint(mount(counting), format).result(60)
    gate.open()
    job.join()
    return counting.operations


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("format", SavepointFormat)
@pytest.mark.parametrize("backend", BACKENDS)
def test_whichever_write_of_a_savepoint_fails_the_job_is_unharmed_and_it_is_whole_or_gone(
    backend: str, format: SavepointFormat, fault: Fault
) -> None:
    for at in range(operations(backend, format)):
        files = MemoryStorage()
        faulty = FaultyStorage(files, at=at, fault=fault)
        target = mount(faulty)
        every, gate = EveryState(HALF, BACKENDS[backend]), Gate()
        job = every.job(until=gate, parallelism=WIDTHS[backend])
        control = job.start()
        job.heard.wait_for_epoch(len(HALF))

        try:
            path = control.trigger_savepoint(target, format).result(60)
        except CheckdamError:
            assert files.list("") == []
        else:
            checkpoint, where = load_checkpoint(path)
            verify_files(open_storage(where), "", checkpoint)
            dispose(path)
            assert files.list("") == []

        assert faulty.has_failed
        again = control.trigger_savepoint(target, format).result(60)
        assert load_checkpoint(again)[0].is_savepoint
        gate.open()
        heard = job.join()
        assert heard.restarts == []
        assert every.leftovers() == []
