"""Local recovery: a restarted slot reads its own intact copies, and the checkpoint's files for all the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.config import Configuration
from checkdam.graph.operators import OP_STATE
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.mounts import Watch, WatchedStorage
from checkdam.testing.trouble import Moment, Step, Trouble, kill_slot, refuse

WORDS = [f"word{n}" for n in range(40)]
EPOCHS = [WORDS, ["a", *WORDS[:3]], ["a", *WORDS[5:9]], ["b", *WORDS], ["a", "b"]]


class Reads(Watch):
    """Records which state files are read from the storage."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def before(self, operation: str, path: str) -> None:
        if operation in ("read", "read_range") and "/shared/" in path:
            self.paths.append(path)


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def words(reads: Reads) -> WordCount:
    return WordCount(EPOCHS, storage=WatchedStorage(MemoryStorage(), "watched://state", reads))


def settings(backend: str, copies: Path, *, local: bool = True) -> Configuration:
    chosen = Configuration().with_value("state.backend.type", backend)
    chosen = chosen.with_value("state.backend.rocksdb.memory.fixed-per-slot", "16mb")
    chosen = chosen.with_value("execution.checkpointing.local-backup.dirs", str(copies))
    return chosen.with_value("execution.state-recovery.from-local", local)


def failed_over(words: WordCount, backend: str, copies: Path, do: Any, **options: Any) -> LocalJob:
    """Run to the end, with a failover before epoch 4."""
    local = options.pop("local", True)
    trouble = Trouble(Step.BEFORE_EPOCH, do, number=4)
    job = words.job(troubles=[trouble], settings=settings(backend, copies, local=local), **options)
    job.run()
    assert trouble.happened.is_set()
    assert len(job.heard.restarts) == 1
    return job


def exact(words: WordCount, job: LocalJob, backend: str) -> bool:
    state = job.state(UID, OP_STATE) if backend == "rocksdb" else job.state(UID)
    return state == words.expected_state() and words.output() == words.expected_output()


def test_no_state_file_is_read_from_the_storage_when_the_copies_are_intact(
    words: WordCount, backend: str, reads: Reads, tmp_path: Path
) -> None:
    at_failover: list[int] = []

    def note_and_kill(engine: LocalEngine, moment: Moment) -> None:
        at_failover.append(len(reads.paths))
        kill_slot(0)(engine, moment)

    job = failed_over(words, backend, tmp_path, note_and_kill)

    after = reads.paths[at_failover[0] :]
    assert after == []
    assert exact(words, job, backend)


def test_without_the_setting_the_storage_is_read(words: WordCount, backend: str, reads: Reads, tmp_path: Path) -> None:
    job = failed_over(words, backend, tmp_path, kill_slot(0), local=False)

    assert reads.paths
    assert list(tmp_path.iterdir()) == []
    assert exact(words, job, backend)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_copy_that_is_damaged_or_gone_gives_way_to_the_checkpoint(
    words: WordCount,
    backend: str,
    reads: Reads,
    tmp_path: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged: list[str] = []

    def spoil_and_kill(engine: LocalEngine, moment: Moment) -> None:
        kill_slot(0)(engine, moment)
        for copy in copies_below(tmp_path):
            damaged.append(copy.name.partition("-")[2])
            damage(copy)
        reads.paths.clear()

    job = failed_over(words, backend, tmp_path, spoil_and_kill)

    assert damaged
    assert {path.rpartition("/")[2] for path in reads.paths} == set(damaged)
    if damage is not Path.unlink:
        assert sum("is not used" in record.message for record in caplog.records) == len(damaged)
    assert exact(words, job, backend)


def copies_below(directory: Path) -> list[Path]:
    return [file for file in directory.glob("*/*/*/*") if not file.name.startswith(".")]


def test_copies_of_an_aborted_checkpoint_are_not_used_and_do_not_stay(
    words: WordCount, backend: str, tmp_path: Path
) -> None:
    seen: list[set[str]] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        seen.append({copy.name for copy in copies_below(tmp_path)})

    troubles = [
        Trouble(Step.BEFORE_METADATA, refuse, number=3),  # its copies are written by then
        Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=4),
        Trouble(Step.BEFORE_EPOCH, look, number=5),
    ]
    job = words.job(
        troubles=troubles,
        settings=settings(backend, tmp_path),
        checkpoints=replace(EVERY_EPOCH, tolerable_failures=3),
    )

    job.run()

    (names,) = seen
    assert names
    assert not any(f"-{subtask}-3-" in name for name in names for subtask in range(2))
    assert exact(words, job, backend)


def test_copies_of_a_slot_that_died_with_its_snapshot_do_not_stay(
    words: WordCount, backend: str, tmp_path: Path
) -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        referred = {file.path.rpartition("/")[2] for file in job.checkpoint().files()}
        seen.append(({copy.name.partition("-")[2] for copy in copies_below(tmp_path)}, referred))

    troubles = [
        Trouble(Step.SNAPSHOT_TAKEN, kill_slot(0), number=3, subtask=0),  # its copies are written by then
        Trouble(Step.BEFORE_EPOCH, look, number=4),  # after the failover
    ]
    job = words.job(troubles=troubles, settings=settings(backend, tmp_path))

    job.run()

    assert len(job.heard.restarts) == 1
    ((kept, referred),) = seen
    assert kept
    assert kept <= referred
    assert exact(words, job, backend)


def test_only_copies_of_the_last_completed_checkpoint_stay(words: WordCount, backend: str, tmp_path: Path) -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def look(engine: LocalEngine, moment: Moment) -> None:
        referred = {file.path.rpartition("/")[2] for file in job.checkpoint().files()}
        seen.append(({copy.name.partition("-")[2] for copy in copies_below(tmp_path)}, referred))

    job = words.job(
        troubles=[Trouble(Step.BEFORE_EPOCH, look, number=number) for number in (3, 4, 5)],
        settings=settings(backend, tmp_path),
    )
    job.run()

    assert len(seen) == 3
    assert all(kept == referred and kept for kept, referred in seen)


def test_the_copies_go_with_the_job(words: WordCount, backend: str, tmp_path: Path) -> None:
    words.job(settings=settings(backend, tmp_path)).run()

    assert copies_below(tmp_path) == []
    assert list(tmp_path.glob("*/tmp*")) == []


def test_a_job_at_another_parallelism_reads_what_its_slots_have_no_copy_of(
    words: WordCount, backend: str, reads: Reads, tmp_path: Path
) -> None:
    def rescale(engine: LocalEngine, moment: Moment) -> None:
        job.control.rescale(3)

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, rescale, number=3)], settings=settings(backend, tmp_path))

    job.run()

    assert len(job.heard.rescales) == 1
    assert reads.paths
    assert exact(words, job, backend)


def test_a_slot_without_a_place_for_copies_reads_the_checkpoint(
    words: WordCount, backend: str, reads: Reads, tmp_path: Path
) -> None:
    def lose_disk_and_kill(engine: LocalEngine, moment: Moment) -> None:
        kill_slot(0)(engine, moment)
        for made in list(tmp_path.glob("*/*/*")):  # as on another machine: nothing is there, and nothing can be
            for copy in made.iterdir():
                copy.unlink()
            made.rmdir()
            made.write_bytes(b"")
        reads.paths.clear()

    job = failed_over(words, backend, tmp_path, lose_disk_and_kill)

    assert reads.paths
    assert exact(words, job, backend)
