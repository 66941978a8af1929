"""Work directories: alive as long as their owner is, wherever it runs."""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import poll

from checkdam.runtime import abandoned
from checkdam.runtime.janitor import remove_abandoned

pytestmark = pytest.mark.slow

_SECONDS = 30.0

_OWNER = """
import os, shutil, sys
from pathlib import Path
from checkdam.runtime import janitor
directory = janitor.work_directory(Path(sys.argv[1]))
(directory / "file").touch()
if "fork" in sys.argv:
    heard, told = os.pipe()
    if os.fork() == 0:
        os.write(told, b"!")
        sys.stdin.read()
        os._exit(0)
    os.read(heard, 1)  # the child runs, so it has let go
if "removed" in sys.argv:
    shutil.rmtree(janitor.work_directory(Path(sys.argv[1]) / "other").parent)
if "writer" in sys.argv:
    janitor.outlived_by(int(sys.argv[3]))
owned = janitor._owned[Path(sys.argv[1])]
print(directory, owned.janitor.pid, flush=True)
sys.stdin.read()
"""


class Owner:
    """A process that has a work directory, and ends when it is told to."""

    def __init__(self, parent: Path, *words: str, before: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", _OWNER, str(parent), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        directory, janitor = self.process.stdout.readline().split()
        self.directory = Path(directory).parent
        self.janitor = int(janitor)

    def kill(self, *, with_janitor: bool = False) -> None:
        if with_janitor:
            os.kill(self.janitor, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def kill_namespace(self) -> None:
        """Kill the first process of its namespace, and with it all the others."""
        pid = self.process.pid
        os.kill(int(Path(f"/proc/{pid}/task/{pid}/children").read_text()), signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def owners() -> Iterator[Callable[..., Owner]]:
    started: list[Owner] = []

    def start(*arguments: object, **options: object) -> Owner:
        started.append(Owner(*arguments, **options))  # type: ignore[arg-type]  # handed on
        return started[-1]

    yield start
    for owner in started:
        owner.process.kill()
        owner.process.communicate()


def _wait_for_end_of(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.poll()  # unlike select() it takes any number of descriptors
    ended.register(process, select.POLLIN)
    assert ended.poll(_SECONDS * 1000), f"process {pid} does not end"
    os.close(process)


def test_only_its_owner_can_enter_the_directory_whatever_the_umask_and_it_goes_with_the_owner(
    owners: Callable[..., Owner], tmp_path: Path
) -> None:
    owner = owners(tmp_path, before=("sh", "-c", 'umask 0; exec "$@"', "sh"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (owner.directory, *owner.directory.glob("tmp*"))}
    assert modes == {0o700}
    assert stat.S_IMODE((owner.directory / abandoned.LOCK).stat().st_mode) == 0o600

    owner.kill()
    _wait_for_end_of(owner.janitor)

    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_ends_by_itself_needs_no_janitor(owners: Callable[..., Owner], tmp_path: Path) -> None:
    """As in a container: when its first process ends, all others are killed."""
    owner = owners(tmp_path)
    os.kill(owner.janitor, signal.SIGKILL)

    owner.process.communicate()

    assert list(tmp_path.iterdir()) == []


def test_a_living_owner_keeps_its_directory_though_its_process_id_says_nothing(
    owners: Callable[..., Owner], tmp_path: Path
) -> None:
    """As seen from another container: there is no process of that id."""
    owner = owners(tmp_path)
    elsewhere = owner.directory.rename(tmp_path / f"checkdam-{2**22 + 1}-other")

    remove_abandoned(tmp_path)

    assert next(elsewhere.rglob("file")).exists()


def test_an_owner_that_is_gone_leaves_nothing_though_its_process_id_is_in_use(
    owners: Callable[..., Owner], tmp_path: Path
) -> None:
    """As a container leaves it whose processes were all killed: another one has a process of that id."""
    owner = owners(tmp_path)
    owner.directory.rename(tmp_path / f"checkdam-{os.getpid()}-other")
    owner.kill(with_janitor=True)

    remove_abandoned(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_that_lives_on_does_not_keep_the_directory(owners: Callable[..., Owner], tmp_path: Path) -> None:
    owner = owners(tmp_path, "fork")
    owner.kill(with_janitor=True)

    remove_abandoned(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkdam-1-abc").mkdir()
    (tmp_path / "checkdam-1-abc" / f"{abandoned.LOCK}.new").touch()

    remove_abandoned(tmp_path)

    assert (tmp_path / "checkdam-1-abc").exists()


def test_a_link_and_a_directory_of_another_user_are_left_alone(tmp_path: Path) -> None:
    real, parent = tmp_path / "real", tmp_path / "parent"
    parent.mkdir()
    real.mkdir()
    (real / abandoned.LOCK).touch()
    (parent / "checkdam-1-link").symlink_to(real)
    if os.geteuid() == 0:
        shutil.copytree(real, parent / "checkdam-1-other")
        os.chown(parent / "checkdam-1-other", 12345, -1)

    remove_abandoned(parent)

    assert (real / abandoned.LOCK).exists()
    assert len(list(parent.iterdir())) == (2 if os.geteuid() == 0 else 1)


def test_what_a_broken_off_removal_leaves_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "checkdam-1-abc"
    (directory / "spark").mkdir(parents=True)
    (directory / abandoned.LOCK).touch()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a kill before anything is removed
    remove_abandoned(tmp_path)
    assert (directory / abandoned.LOCK).exists()
    monkeypatch.undo()

    remove_abandoned(tmp_path)

    assert not directory.exists()


def test_what_a_process_makes_again_after_the_owner_was_killed_is_removed_when_it_ends(
    owners: Callable[..., Owner], tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as writer:
        owner = owners(tmp_path, "writer", str(writer.pid), "removed")
        owner.kill()
        poll(lambda: not owner.directory.exists())
        (owner.directory / "0").mkdir(parents=True)  # as the JVM does, which has not noticed yet
        (owner.directory / "0" / "file").touch()
        writer.kill()
    _wait_for_end_of(owner.janitor)

    assert not owner.directory.exists()


@pytest.mark.slow
def test_two_containers_that_share_the_temporary_directory(owners: Callable[..., Owner], tmp_path: Path) -> None:
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no process id namespaces may be made here")
    first = owners(tmp_path)

    second = owners(tmp_path, before=unshare)
    assert first.directory.exists()
    second.kill_namespace()  # with its janitor
    remove_abandoned(tmp_path)

    assert first.directory.exists()
    assert not second.directory.exists()


_TWO_DIRECTORIES = """
import shutil, sys
from pathlib import Path
from checkdam.runtime import janitor
shutil.rmtree(janitor.work_directory(Path(sys.argv[1])).parent)
janitor.work_directory(Path(sys.argv[1]))
"""


def test_python_does_not_warn_of_a_janitor_that_outlives_its_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", _TWO_DIRECTORIES, str(tmp_path)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)

    assert (ended.returncode, ended.stderr) == (0, "")
