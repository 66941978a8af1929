"""One driver at a time owns a job, by its term; jobs that died before their first checkpoint are cleared away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from checkdam import processes
from checkdam.checkpoint.checkpoint_store import CheckpointStore, find_latest
from checkdam.checkpoint.completed import TERM_SETTING, CompletedCheckpoint
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.checkpoint.ownership import PROMISED, clear_abandoned, take
from checkdam.checkpoint.terms import (
    MOST_TERMS,
    OWNER,
    TERMS,
    Term,
    TermFile,
    list_terms,
    owner_of,
    read_term,
)
from checkdam.errors import (
    CheckpointNotFoundError,
    FencedError,
    FormatTooNewError,
    JobFailedError,
    StorageError,
    StorageUncertainError,
)
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.processes import Owner, _stat, this_process
from checkdam.runtime.driver.restore import from_path
from checkdam.storage.contract import FileStatus, Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.mounts import mount

JOB = JobId("a" * 32)
OTHER = JobId("b" * 32)
NOW = datetime(2024, 5, 1, tzinfo=UTC)
ELSEWHERE = Owner("another-machine its-boot its-namespace", 1, "1")


def owned_by(storage: MemoryStorage, owner: Owner, job: JobId = JOB, number: int = 1, **more: object) -> str:
    path = f"{job}/{TERMS}/{number}-abcd"
    storage.write(path, msgspec.json.encode(msgspec.structs.replace(TermFile(owner), **more)))
    return path


def owned_before_terms(storage: MemoryStorage, owner: Owner, job: JobId = JOB) -> str:
    storage.write(f"{job}/{OWNER}", msgspec.json.encode(owner))
    return f"{job}/{OWNER}"


OWNED = {"by a term": owned_by, "by a version without terms": owned_before_terms}
Owned = Callable[[MemoryStorage, Owner], str]


@pytest.fixture(params=OWNED)
def owned(request: pytest.FixtureRequest) -> Owned:
    return OWNED[request.param]


@pytest.fixture
def living() -> Iterator[Owner]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with open(f"/proc/{process.pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    yield replace(this_process(), pid=process.pid, started=started)
    process.communicate(b"\n")


def dead_process() -> Owner:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(this_process(), pid=process.pid, started="1")


def checkpoint(number: int, term: int = 0) -> CompletedCheckpoint:
    settings = {TERM_SETTING: str(term)} if term else {}
    return CompletedCheckpoint(CheckpointId(number), JOB, "job", Epoch(number), NOW, NOW, 1, 128, settings=settings)


def begun(storage: Storage, *, take_over: bool = False) -> Term:
    term = take(storage, JOB, take_over=take_over)
    term.begin()
    return term


def files(storage: MemoryStorage) -> list[str]:
    return [status.path for status in storage.list("")]


def numbers(storage: MemoryStorage, job: JobId = JOB) -> list[int]:
    return [name.number for name in list_terms(storage, job)]


# ------------------------------------------------------------------------------------------ taking


def test_a_job_is_taken_and_let_go() -> None:
    storage = MemoryStorage()

    term = take(storage, JOB)
    assert owner_of(storage, JOB) == this_process()
    assert (term.number, term.replaced) == (1, None)

    term.let_go()
    assert files(storage) == []


def test_a_job_that_another_living_process_owns_is_refused(living: Owner, owned: Owned) -> None:
    storage = MemoryStorage()
    path = owned(storage, living)

    with pytest.raises(JobFailedError, match=f"process {living.pid} on this machine .* --take-over"):
        take(storage, JOB)

    assert files(storage) == [path]


def test_a_job_of_a_living_process_is_taken_over_if_asked_and_its_owner_stays_fenced(
    living: Owner, owned: Owned
) -> None:
    storage = MemoryStorage()
    owned(storage, living)

    term = take(storage, JOB, take_over=True)
    term.let_go()

    assert term.replaced == living
    [name] = list_terms(storage, JOB)  # left behind: else the other would find nobody, and go on
    left = read_term(storage, JOB, name)
    assert left is not None
    assert left.has_ended
    assert owner_of(storage, JOB) is None
    assert take(storage, JOB).number == term.number + 1


def test_a_job_of_a_dead_process_is_taken_over_and_leaves_nothing(owned: Owned) -> None:
    storage = MemoryStorage()
    owned(storage, dead_process())

    term = take(storage, JOB)

    assert term.replaced is None
    term.let_go()
    assert files(storage) == []


def test_a_job_of_another_machine_is_taken_over_and_its_owner_stays_fenced(owned: Owned) -> None:
    storage = MemoryStorage()
    owned(storage, ELSEWHERE)

    term = take(storage, JOB)
    assert str(term.replaced) == "process 1 on another-machine"
    term.let_go()
    later = take(storage, JOB)
    later.let_go()

    assert later.replaced is None  # it has ended in order: only the first one may still live
    assert numbers(storage) == [later.number]


def test_a_job_that_runs_in_this_very_process_is_refused_until_its_driver_is_gone() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)

    with pytest.raises(JobFailedError, match=f"process {os.getpid()} on this machine"):
        take(storage, JOB)

    term.release()
    assert take(storage, JOB).number == 2


def test_a_later_process_with_the_same_number_is_not_the_owner(owned: Owned) -> None:
    storage = MemoryStorage()
    owned(storage, replace(this_process(), pid=os.getppid(), started="not when it began"))

    assert take(storage, JOB).replaced is None

    assert owner_of(storage, JOB) == this_process()


@pytest.mark.parametrize("path", [f"{JOB}/{OWNER}", f"{JOB}/{TERMS}/7-abcd"])
def test_a_damaged_file_of_an_owner_keeps_nobody_out_and_may_be_of_one_that_lives(path: str) -> None:
    storage = MemoryStorage()
    storage.write(path, b"{half")

    assert clear_abandoned(storage) == []
    term = take(storage, JOB)
    term.let_go()

    assert numbers(storage) == [term.number]


def test_a_term_of_a_newer_version_is_refused() -> None:
    storage = MemoryStorage()
    path = owned_by(storage, dead_process(), version=2)

    with pytest.raises(FormatTooNewError, match="format 2"):
        take(storage, JOB)

    assert files(storage) == [path]


class Interrupted(MemoryStorage):
    """Another driver does something when this one has written its term."""

    def __init__(self, do: Callable[[MemoryStorage], object]) -> None:
        super().__init__()
        self._do: Callable[[MemoryStorage], object] | None = do

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        do, self._do = self._do, None
        if do is not None:
            do(self)


@pytest.mark.parametrize("number", [1, 2])
def test_of_two_that_take_a_job_at_once_at_most_one_gets_it(number: int) -> None:
    storage = Interrupted(lambda storage: owned_by(storage, ELSEWHERE, number=number))

    with pytest.raises(JobFailedError, match="being started by another process"):
        take(storage, JOB)

    assert numbers(storage) == [number]


@pytest.mark.parametrize("fault", Fault)
def test_a_job_whose_term_cannot_be_written_is_not_taken(fault: Fault) -> None:
    storage = FaultyStorage(MemoryStorage(), 0, fault)

    with pytest.raises(StorageError):
        take(storage, JOB)

    assert storage.list("") == []
    assert take(storage, JOB).number == 1


def test_a_driver_begins_above_every_temporary_file_and_removes_them() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), number=3)
    storage.write(f"{JOB}/{TERMS}/.tmp-2-ab-cd", b"{")
    storage.write(f"{JOB}/{TERMS}/.tmp-4-ab-cd", b"{")

    begun(storage)
    CheckpointStore(storage, JOB).sweep([])

    assert [name.number for name in list_terms(storage, JOB, temporary=True)] == [5]


class DeletingRename(MemoryStorage):
    """Replaces a file as Arrow does it on HDFS: the new one has a temporary name while the old one is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], None] = lambda: None

    def write(self, path: str, data: bytes) -> None:
        directory, _, name = path.rpartition("/")
        temporary = f"{directory}/.tmp-{name}-0a1b2c3d"
        super().write(temporary, data)
        if self.status(path) is not None:
            self.delete(path)
            self.between()
        self.rename(temporary, path)


def test_a_term_that_is_being_rewritten_is_not_overlooked() -> None:
    storage = DeletingRename()
    first = begun(storage)
    CheckpointStore(storage, JOB, first).write(checkpoint(1, first.number))
    second = take(storage, JOB, take_over=True)
    CheckpointStore(storage, JOB).write(checkpoint(2, first.number))  # late
    fenced: list[FencedError] = []

    def look() -> None:
        with pytest.raises(FencedError) as raised:
            first.check()
        fenced.append(raised.value)
        second.check()
        assert owner_of(storage, JOB) == this_process()
        assert CheckpointStore(storage, JOB).completed() == [1]

    storage.between = look
    second.begin()
    second.announce_deletion()

    assert len(fenced) == 2
    assert numbers(storage) == [second.number]


def test_a_job_whose_owner_may_be_deleting_its_checkpoints_is_taken_only_if_asked() -> None:
    storage = MemoryStorage()
    path = owned_by(storage, ELSEWHERE, is_deleting=True, seen=())

    with pytest.raises(JobFailedError, match=r"may be deleting its checkpoints.*--take-over"):
        take(storage, JOB)
    assert files(storage) == [path]

    assert take(storage, JOB, take_over=True).is_deletion_possible


def test_a_deletion_that_a_replaced_driver_announces_too_late_keeps_nobody_out() -> None:
    storage = MemoryStorage()
    first = begun(storage)
    second = begun(storage, take_over=True)
    first.announce_deletion()
    for name in list_terms(storage, JOB):
        found = read_term(storage, JOB, name)
        assert found is not None
        storage.write(
            f"{JOB}/{TERMS}/{name.file}", msgspec.json.encode(msgspec.structs.replace(found, owner=ELSEWHERE))
        )

    third = take(storage, JOB)

    assert third.number > second.number
    assert not third.is_deletion_possible


# ------------------------------------------------------------------------------------------ checking


def test_a_driver_whose_job_was_taken_is_fenced_for_ever() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)
    term.check()
    path = owned_by(storage, ELSEWHERE, number=2)

    with pytest.raises(FencedError, match="process 1 on another-machine has taken over job"):
        term.check()

    storage.delete(path)
    with pytest.raises(FencedError, match="process 1 on another-machine has taken over job"):
        term.check()


def test_a_driver_is_not_fenced_by_one_that_came_at_the_same_moment_and_gives_up() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)
    path = owned_by(storage, ELSEWHERE, number=term.number)  # it listed the terms before this one was written

    term.check()

    storage.delete(path)
    term.check()


def test_a_driver_whose_directory_vanished_writes_its_term_again() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)
    before = files(storage)
    storage.delete_directory(JOB)

    term.check()

    assert files(storage) == before


def test_a_driver_whose_directory_vanished_and_has_another_owner_now_is_fenced() -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)
    storage.delete_directory(JOB)
    path = owned_by(storage, ELSEWHERE)

    with pytest.raises(FencedError):
        term.check()

    assert files(storage) == [path]


def test_a_driver_whose_term_vanished_goes_on_beside_the_checkpoints_that_it_found_or_wrote() -> None:
    storage = MemoryStorage()
    CheckpointStore(storage, JOB).write(checkpoint(1))
    storage.write(f"{JOB}/chk-2/_metadata", b"damaged")
    term = begun(storage)
    CheckpointStore(storage, JOB, term).write(checkpoint(3, term.number))
    before = files(storage)
    storage.delete_directory(f"{JOB}/{TERMS}")

    term.check()

    assert files(storage) == before


@pytest.mark.parametrize("number", [1, 2])
def test_a_driver_whose_directory_vanished_is_fenced_by_a_checkpoint_of_another(number: int) -> None:
    storage = MemoryStorage()
    term = begun(storage)
    CheckpointStore(storage, JOB, term).write(checkpoint(1, term.number))
    storage.delete_directory(JOB)
    theirs = replace(checkpoint(number, term.number), epoch=Epoch(9))  # its terms began with 1 again, and it has ended
    CheckpointStore(storage, JOB).write(theirs)
    before = files(storage)

    with pytest.raises(FencedError, match="another process has taken over"):
        term.check()

    assert files(storage) == before


def test_when_the_terms_cannot_be_listed_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    term = take(storage, JOB)

    def refuse(directory: str) -> list[FileStatus]:
        raise StorageError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "list", refuse)
        with pytest.raises(StorageError, match="refused"):
            term.check()

    term.check()


# ------------------------------------------------------------------------------------------ late checkpoints


def test_a_checkpoint_that_a_replaced_driver_completes_too_late_does_not_count() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    CheckpointStore(storage, JOB, first).write(checkpoint(1, first.number))
    second = begun(storage, take_over=True)

    CheckpointStore(storage, JOB).write(checkpoint(2, first.number))  # it had checked its term before
    CheckpointStore(storage, JOB, second).write(checkpoint(3, second.number))
    store = CheckpointStore(storage, JOB, second)

    assert store.completed() == [1, 3]
    assert store.next_checkpoint_id() == 4
    assert [found.checkpoint_id for found in find_latest(storage, "job")] == [3, 1]
    with pytest.raises(CheckpointNotFoundError, match="had been replaced"):
        from_path(f"{mount(storage)}/{JOB}/chk-2")
    assert from_path(f"{mount(storage)}/{JOB}/chk-1").checkpoint.checkpoint_id == 1
    assert store.sweep([]) == ["chk-2"]
    assert store.completed() == [1, 3]


def test_a_late_checkpoint_stays_out_for_every_later_term_and_after_the_end() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    second = begun(storage, take_over=True)
    CheckpointStore(storage, JOB).write(checkpoint(1, first.number))

    third = begun(storage, take_over=True)
    assert CheckpointStore(storage, JOB).completed() == []
    third.let_go()
    assert CheckpointStore(storage, JOB).completed() == []
    assert second.number < third.number


def test_the_id_of_a_later_drivers_checkpoint_does_not_make_an_earlier_ones_count() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    second = begun(storage, take_over=True)
    store = CheckpointStore(storage, JOB, second)
    store.write(checkpoint(1, second.number))
    third = begun(storage, take_over=True)
    CheckpointStore(storage, JOB, third).discard(CheckpointId(1))

    CheckpointStore(storage, JOB).write(checkpoint(1, first.number))

    assert CheckpointStore(storage, JOB).completed() == []


def test_checkpoints_of_versions_without_terms_count() -> None:
    storage = MemoryStorage()
    CheckpointStore(storage, JOB).write(checkpoint(1))

    take(storage, JOB)

    assert CheckpointStore(storage, JOB).completed() == [1]


def test_a_checkpoint_never_replaces_one_but_a_late_one_of_an_earlier_term() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    second = take(storage, JOB, take_over=True)
    store = CheckpointStore(storage, JOB, second)
    CheckpointStore(storage, JOB).write(checkpoint(1, first.number))

    store.write(checkpoint(1, second.number))
    assert store.load(CheckpointId(1)).term == second.number

    for late in (checkpoint(1, first.number), replace(checkpoint(1, second.number), epoch=Epoch(9))):
        with pytest.raises(StorageError, match="exists already"):
            CheckpointStore(storage, JOB).write(late)
    assert store.load(CheckpointId(1)) == checkpoint(1, second.number)


class Forgetful(MemoryStorage):
    """Creates a file, loses the reply, and answers the client's second try that the file exists."""

    def __init__(self, refused_reads: int) -> None:
        super().__init__()
        self._refused_reads = refused_reads

    def write_new(self, path: str, data: bytes) -> None:
        super().write_new(path, data)
        raise FileExistsError(path)

    def read(self, path: str) -> bytes:
        if path.endswith("/_metadata") and self._refused_reads:
            self._refused_reads -= 1
            raise StorageError("refused")
        return super().read(path)


def test_a_checkpoint_whose_creation_was_repeated_by_the_client_is_complete_or_may_be() -> None:
    read_back, not_read_back = Forgetful(0), Forgetful(1)

    CheckpointStore(read_back, JOB, take(read_back, JOB)).write(checkpoint(1, 1))
    with pytest.raises(StorageUncertainError):
        CheckpointStore(not_read_back, JOB, take(not_read_back, JOB)).write(checkpoint(1, 1))

    for storage in (read_back, not_read_back):
        assert CheckpointStore(storage, JOB).completed() == [1]


def test_another_checkpoint_of_the_same_term_and_id_may_be_the_own_one() -> None:
    storage = MemoryStorage()
    store = CheckpointStore(storage, JOB, take(storage, JOB))
    store.write(checkpoint(1, 1))

    with pytest.raises(StorageUncertainError, match="exists already"):
        store.write(replace(checkpoint(1, 1), epoch=Epoch(9)))


def test_a_fenced_driver_neither_completes_nor_sweeps() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    take(storage, JOB, take_over=True)
    storage.write(f"{JOB}/shared/of-the-second", b"state")
    before = files(storage)
    store = CheckpointStore(storage, JOB, first)

    with pytest.raises(FencedError):
        store.write(checkpoint(1, first.number))
    with pytest.raises(FencedError):
        store.sweep([])

    assert files(storage) == before


def test_a_damaged_checkpoint_is_listed_so_that_reading_it_tells_why() -> None:
    storage = MemoryStorage()
    storage.write(f"{JOB}/chk-1/_metadata", to_metadata(checkpoint(1))[:-3])

    take(storage, JOB)

    assert CheckpointStore(storage, JOB).completed() == [1]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_checkpoint_that_is_brought_back_counts_if_the_driver_that_missed_it_did_not_go_on(is_gone: bool) -> None:
    storage = MemoryStorage()
    CheckpointStore(storage, JOB).write(checkpoint(1))
    first = begun(storage)
    CheckpointStore(storage, JOB, first).write(checkpoint(2, first.number))
    whole = storage.read(path := f"{JOB}/chk-2/_metadata")
    storage.delete(path) if is_gone else storage.write(path, whole[:-3])

    for _ in range(2):  # by two drivers, each of which may follow one that lives
        refusing = take(storage, JOB, take_over=True)
        assert CheckpointStore(storage, JOB, refusing).completed() == ([1] if is_gone else [1, 2])
        refusing.let_go()

    storage.write(path, whole)
    assert CheckpointStore(storage, JOB).completed() == [1, 2]
    assert len(list_terms(storage, JOB)) <= 2  # the one whose fence holds, and one that keeps earlier drivers out
    assert CheckpointStore(storage, JOB, begun(storage, take_over=True)).completed() == [1, 2]


def test_a_damaged_checkpoint_that_is_repaired_counts_also_if_it_was_damaged_when_the_job_was_taken() -> None:
    storage = MemoryStorage()
    first = begun(storage)
    CheckpointStore(storage, JOB, first).write(checkpoint(1, first.number))
    whole = storage.read(path := f"{JOB}/chk-1/_metadata")
    storage.write(path, whole[:-3])
    second = begun(storage, take_over=True)

    storage.write(path, whole)

    assert CheckpointStore(storage, JOB, second).completed() == [1]
    assert CheckpointStore(storage, JOB).completed() == [1]


def test_a_fenced_driver_does_not_begin() -> None:
    storage = MemoryStorage()
    first = take(storage, JOB)
    begun(storage, take_over=True)
    before = files(storage)

    with pytest.raises(FencedError):
        first.begin()

    assert files(storage) == before


def test_a_late_checkpoint_that_is_removed_is_told() -> None:
    storage = MemoryStorage()
    first, second = begun(storage), begun(storage, take_over=True)
    told: list[str] = []
    store = CheckpointStore(storage, JOB, second, dropped=told.append)
    for number in (1, 2):
        CheckpointStore(storage, JOB).write(checkpoint(number, first.number))

    store.write(checkpoint(1, second.number))
    store.sweep([])

    assert told == [store.checkpoint_uri(CheckpointId(number)) for number in (1, 2)]


# ------------------------------------------------------------------------------------------ clearing


def test_the_directory_of_a_job_that_died_before_its_first_checkpoint_is_cleared(owned: Owned) -> None:
    storage = MemoryStorage()
    OWNED["by a term"](storage, dead_process(), OTHER)
    owned(storage, dead_process())
    storage.write(f"{OTHER}/shared/some-file", b"state")
    term = begun(storage)

    assert clear_abandoned(storage) == [OTHER]

    assert numbers(storage) == [term.number]
    assert len(files(storage)) == 1


@pytest.mark.parametrize("owner", [this_process(), ELSEWHERE], ids=["alive", "on another machine"])
def test_a_job_that_may_still_run_is_left_alone(owner: Owner) -> None:
    storage = MemoryStorage()
    if owner == this_process():
        take(storage, OTHER)
    else:
        owned_by(storage, owner, OTHER)

    assert clear_abandoned(storage) == []


def test_a_dead_job_that_fences_off_one_that_may_live_is_left_alone() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER, has_rivals=True)

    assert clear_abandoned(storage) == []


def test_a_job_whose_first_term_is_being_written_is_left_alone() -> None:
    storage = MemoryStorage()
    storage.write(f"{OTHER}/{TERMS}/.tmp-1-ab-cd", b"{")

    assert clear_abandoned(storage) == []


def test_a_dead_job_with_a_complete_checkpoint_is_left_alone() -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER)
    storage.write(f"{OTHER}/chk-1/_metadata", b"whole or not, somebody may want it")

    assert clear_abandoned(storage) == []


def test_a_process_that_was_killed_and_not_waited_for_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(this_process(), pid=process.pid, started=_stat(process.pid)[1])
    assert owner.is_alive()

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert not owner.is_alive()
    process.communicate()


def test_a_process_that_the_system_hides_is_alive_while_its_number_is_taken(
    living: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_stat", lambda pid: ("", ""))

    assert living.is_alive()
    assert not dead_process().is_alive()


def test_where_the_system_does_not_tell_when_a_process_began_its_number_decides() -> None:
    assert replace(this_process(), started="").is_alive()
    assert not replace(dead_process(), started="").is_alive()


@pytest.mark.parametrize("name", [PROMISED, f"{PROMISED}-3"])
def test_a_dead_job_whose_output_a_savepoint_refers_to_is_left_alone(name: str) -> None:
    storage = MemoryStorage()
    owned_by(storage, dead_process(), OTHER)
    storage.write(f"{OTHER}/{name}", b"{}")

    assert clear_abandoned(storage) == []


def test_a_job_of_a_newer_version_is_left_alone_and_hinders_no_other() -> None:
    storage = MemoryStorage()
    path = owned_by(storage, dead_process(), version=2)
    owned_by(storage, dead_process(), OTHER)

    assert clear_abandoned(storage) == [OTHER]
    assert files(storage) == [path]


def test_a_directory_that_no_job_has_made_is_left_alone() -> None:
    storage = MemoryStorage()
    path = owned_by(storage, dead_process(), JobId("savepoint-aaaaaa-0123456789ab"))

    assert clear_abandoned(storage) == []
    assert files(storage) == [path]


@pytest.mark.parametrize("pid", [-1, 0, 2**70])
def test_an_owner_with_a_number_that_no_process_has_is_dead(pid: int) -> None:
    assert not replace(this_process(), pid=pid, started="").is_alive()


def test_a_forged_term_above_all_others_is_refused_and_told() -> None:
    storage = MemoryStorage()
    path = owned_by(storage, dead_process(), number=MOST_TERMS)

    with pytest.raises(StorageError, match=r"number 999999999.*Delete the files"):
        take(storage, JOB)

    assert files(storage) == [path]
