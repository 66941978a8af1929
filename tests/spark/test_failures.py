"""What fails, and what the job makes of it."""

from __future__ import annotations

import base64
import os
import pickle
import random
import select
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checkdam import FixedDelayRestart, MapFunction, NoRestart, RuntimeContext
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import JobFailedError, SlotLostError, StorageError, UserFunctionError

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs, LineServer

    from checkdam.runtime.monitor.job_events import CheckpointStats

pytestmark = pytest.mark.spark

AT_ONCE = FixedDelayRestart(attempts=5, delay=timedelta(0))


def _parse(line: str) -> int:
    return int(line)


@pytest.mark.parametrize("where", ["source side", "slot"])
def test_a_rejected_record_is_shown_with_operator_and_the_users_traceback(jobs: Jobs, where: str) -> None:
    env = jobs.environment().set_restart_strategy(NoRestart())
    lines = env.from_collection(["1", "x2", "3"])
    keyed = lines.key_by(lambda line: line) if where == "slot" else lines
    keyed.map(_parse).name("parse").print()

    with pytest.raises(UserFunctionError) as caught:
        env.execute()

    error = caught.value
    assert (error.operator, error.record) == ("parse", "'x2'")
    assert error.cause == "ValueError: invalid literal for int() with base 10: 'x2'"
    assert "in _parse" in error.user_traceback
    assert "checkdam/runtime" not in error.user_traceback
    assert jobs.watcher.end is JobEnd.FAILED
    assert jobs.watcher.failures == []


def _refuse(line: str) -> int:
    raise ValueError(line)


class _Bomb:
    """Creates a directory when it is unpickled."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._directory),)


@pytest.mark.parametrize("where", ["source side", "slot"])
def test_a_record_that_claims_to_be_an_error_runs_nothing(jobs: Jobs, where: str) -> None:
    pickled = base64.b64encode(pickle.dumps(_Bomb(jobs.tmp_path / "ran"))).decode()
    poison = f"<checkdam-error:{pickled}> <checkdam-error:{'0' * 64}:{pickled}>"
    env = jobs.environment().set_restart_strategy(NoRestart())
    lines = env.from_collection([poison])
    keyed = lines.key_by(lambda line: line) if where == "slot" else lines
    keyed.map(_refuse).name("parse").print()

    with pytest.raises(UserFunctionError) as caught:
        env.execute()

    assert not (jobs.tmp_path / "ran").exists()
    assert caught.value.cause == f"ValueError: {poison}"


@pytest.mark.parametrize("where", ["source side", "slot"])
def test_a_record_that_is_rejected_again_ends_the_job_early_if_so_set(jobs: Jobs, where: str) -> None:
    env = jobs.environment().set_restart_strategy(AT_ONCE, fail_on_repeated_rejection=True)
    lines = env.from_collection(["1", "x2"])
    keyed = lines.key_by(lambda line: line) if where == "slot" else lines
    keyed.map(_parse).name("parse").print()

    with pytest.raises(UserFunctionError):
        env.execute()

    assert len(jobs.watcher.attempts) == 2
    assert len(jobs.watcher.failures) == 1


class _Asks(MapFunction):
    """Needs a service when it is opened and with each record; each failure of it has the same words."""

    def __init__(self, service: Path) -> None:
        self._service = service

    def open(self, ctx: RuntimeContext) -> None:
        self._ask("opening")

    def map(self, value: str) -> str:
        self._ask("record")
        return value

    def _ask(self, what: str) -> None:
        asked = self._service / what
        with open(asked, "a", encoding="utf-8") as file:
            file.write("x")
        if asked.stat().st_size <= 2:
            raise ConnectionError("the service is down")


def test_a_service_that_is_down_is_waited_for_as_the_strategy_says(jobs: Jobs) -> None:
    env = jobs.environment(parallelism=1).set_restart_strategy(AT_ONCE)
    env.from_collection(["a"]).key_by(lambda line: line).map(_Asks(jobs.tmp_path)).uid("asks").print()

    env.execute()

    assert jobs.watcher.shown == ["a"]
    assert [type(failure) for failure in jobs.watcher.failures] == [UserFunctionError] * 4
    assert len({str(failure) for failure in jobs.watcher.failures}) == 2


def test_a_passing_fault_is_overcome_with_exact_counts_and_output(jobs: Jobs) -> None:
    hindrance = jobs.tmp_path / "hindrance"
    hindrance.touch()

    def stumble(pair: tuple[str, int]) -> tuple[str, int]:
        if pair == ("b", 2) and os.path.exists(hindrance):
            os.remove(hindrance)
            raise ConnectionError("try again")
        return pair

    env = jobs.environment(checkpoints=jobs.checkpoints()).set_restart_strategy(AT_ONCE)
    words = env.read_text(jobs.texts("a b", "b c", "a"), max_files_per_epoch=1).flat_map(str.split, output_type=str)
    counts = words.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count")
    counts.map(stumble, output_type=tuple[str, int]).sink_to_files(str(jobs.tmp_path / "out"), format="text")

    result = env.execute()

    assert result.end is JobEnd.FINISHED
    assert [str(failure) for failure in jobs.watcher.failures] == [
        "operator \"map\" failed on record ('b', 2): ConnectionError: try again"
    ]
    assert [Path(path).name for path in jobs.watcher.restored_from] == ["chk-1"]
    lines = [line for file in (jobs.tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert Counter(lines) == Counter(map(str, [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("a", 2)]))


def test_the_strategy_ends_the_job_when_its_attempts_are_used_up(jobs: Jobs) -> None:
    attempts = jobs.tmp_path / "attempts"

    def always_differently(word: str) -> str:
        with open(attempts, "a", encoding="utf-8") as file:
            file.write("x")
        raise OSError(f"failure {os.path.getsize(attempts)}")

    env = jobs.environment().set_restart_strategy(FixedDelayRestart(attempts=2, delay=timedelta(0)))
    env.from_collection(["a"]).map(always_differently, output_type=str).print()

    with pytest.raises(UserFunctionError, match="failure 3"):
        env.execute()

    assert [failure.message.rpartition(" ")[2] for failure in jobs.watcher.failures] == ["1", "2"]


def test_a_slot_killed_while_nothing_happens_is_noticed_and_replaced(jobs: Jobs, line_server: LineServer) -> None:
    with line_server("one line") as port:
        checkpoints = jobs.checkpoints(interval=timedelta(milliseconds=100))
        env = jobs.environment(checkpoints=checkpoints).set_restart_strategy(AT_ONCE)
        env.socket_text_stream("localhost", port).key_by(lambda line: line).max().uid("max").print()

        def kill_then_cancel(stats: CheckpointStats) -> None:
            """The line is counted and kept, and no other will come: nothing but the watch can notice."""
            if len(jobs.watcher.attempts) == 1:
                os.kill(jobs.watcher.attempts[0][1], signal.SIGKILL)
            else:
                jobs.cancel()

        jobs.watcher.on_checkpoint = kill_then_cancel

        result = env.execute()

    assert result.end is JobEnd.CANCELLED
    (failure,) = jobs.watcher.failures
    assert isinstance(failure, SlotLostError)
    assert str(jobs.watcher.attempts[0][1]) in str(failure)
    assert len(jobs.watcher.attempts) == 2
    assert all(_ends(pid) for pids in jobs.watcher.attempts for pid in pids)


def _ends(pid: int) -> bool:
    """Whether the process is gone, or about to be: the end of one that was killed takes its time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 30)[0])
    finally:
        os.close(process)


def test_storage_that_cannot_be_written_is_refused_at_the_start(jobs: Jobs) -> None:
    (jobs.tmp_path / "file").write_text("not a directory")
    checkpoints = jobs.checkpoints(storage=str(jobs.tmp_path / "file" / "ck"))

    with pytest.raises(StorageError, match="file/ck"):
        jobs.word_count(jobs.environment(checkpoints=checkpoints), jobs.texts("a"))

    assert jobs.watcher.attempts == []


# -- a full disk --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB with a ballast file that leaves 64 KB of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"not allowed to mount: {mounted.stderr.decode().strip()}")
    try:
        (disk / "ballast").write_bytes(bytes(960 * 1024))
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _many_words(seed: int) -> str:
    """More state than the disk has room for, however well it is compressed."""
    source = random.Random(seed)
    return "\n".join(source.randbytes(32).hex() for _ in range(4000))


def test_a_full_disk_costs_checkpoints_but_not_the_job_within_what_is_tolerated(jobs: Jobs, small_disk: Path) -> None:
    checkpoints = jobs.checkpoints(storage=str(small_disk / "ck"), tolerable_failures=10)
    texts = jobs.texts(_many_words(1), _many_words(1))
    env = jobs.environment(checkpoints=checkpoints)
    jobs.watcher.on_failed_checkpoint = lambda reason: (small_disk / "ballast").unlink(missing_ok=True)

    result = jobs.word_count(env, texts)

    assert jobs.watcher.failed_checkpoints
    assert "No space left on device" in jobs.watcher.failed_checkpoints[0]
    assert jobs.watcher.failures == []
    assert result.last_checkpoint is not None
    assert Counter(count for _, count in jobs.watcher.values) == {1: 4000, 2: 4000}


def test_a_disk_that_stays_full_fails_the_job_clearly_and_leaves_nothing_half_written(
    jobs: Jobs, small_disk: Path
) -> None:
    checkpoints = jobs.checkpoints(storage=str(small_disk / "ck"), tolerable_failures=0, num_retained=5)
    texts = jobs.texts("a few words first", _many_words(1))
    env = jobs.environment(checkpoints=checkpoints).set_restart_strategy(NoRestart())

    with pytest.raises(JobFailedError, match="No space left on device"):
        jobs.word_count(env, texts)

    job = next((small_disk / "ck").iterdir())
    assert sorted(path.name for path in job.glob("chk-*")) == ["chk-1"]
    assert list(job.glob("chk-1/*")) == [job / "chk-1" / "_metadata"]
    size_left = sum(file.stat().st_size for file in job.rglob("*") if file.is_file())
    assert size_left < 16 * 1024  # only what the first checkpoint holds
    resumed = jobs.environment(checkpoints=checkpoints, resume=True)
    (small_disk / "ballast").unlink()
    jobs.word_count(resumed, texts)
    assert Counter(count for _, count in jobs.watcher.values) == {1: 4000}
