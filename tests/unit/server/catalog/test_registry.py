"""Servers of this machine are found by files, which must not outlive them or be put there by anybody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from checkdam.ids import JobId
from checkdam.processes import Owner, this_process
from checkdam.server.catalog import registry
from checkdam.server.catalog.registry import Server, register, servers

JOB = JobId("a" * 32)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "checkdam-me" / "servers"


def _entries(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_a_registered_server_is_found_with_its_token_and_jobs_until_it_closes(directory: Path) -> None:
    registration = register("http://localhost:8081", "secret", directory)
    registration.runs(JOB)
    registration.runs(JOB)

    assert servers(directory) == [Server("http://localhost:8081", this_process(), "secret", (JOB,))]

    registration.close()
    registration.close()
    assert servers(directory) == []
    assert _entries(directory) == []


def test_only_the_user_can_read_what_may_hold_a_token_whatever_the_umask(directory: Path) -> None:
    before = os.umask(0)
    try:
        register("http://localhost:8081", "secret", directory)
    finally:
        os.umask(before)

    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert directory.stat().st_mode & 0o077 == 0
    assert directory.parent.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_entry_of_a_killed_process_is_dropped_by_the_next_reader(directory: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from checkdam.server.catalog.registry import register\n"
        "register('http://localhost:1', None, Path(sys.argv[1])); print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert [server.url for server in servers(directory)] == ["http://localhost:1"]
        process.kill()

    assert servers(directory) == []
    assert _entries(directory) == []


def test_where_jobs_keep_their_checkpoints_is_told_with_them(directory: Path) -> None:
    registration = register("http://localhost:8081", None, directory)
    registration.runs(JOB, "file:///checkpoints")
    registration.runs(JobId("b" * 32))

    (found,) = servers(directory)
    assert (found.jobs, found.directories) == ((JOB, "b" * 32), ("file:///checkpoints",))
    for number in range(200):
        registration.runs(JobId(f"{number:032x}"), f"file:///{number}")
    (found,) = servers(directory)
    assert len(found.jobs) == len(found.directories) == 100
    assert found.jobs[-1] == f"{199:032x}"


def test_the_server_that_changed_last_comes_last(directory: Path) -> None:
    first = register("http://localhost:1", None, directory)
    register("http://localhost:2", None, directory)
    first.runs(JOB)

    for file in directory.iterdir():  # a clock tick apart, whatever the file system
        later = JOB in file.read_text()
        os.utime(file, ns=(0, 2 if later else 1))

    assert [server.url for server in servers(directory)] == ["http://localhost:2", "http://localhost:1"]


@pytest.mark.parametrize("change", ["readable by others", "a link", "too large", "a pipe"])
def test_a_file_that_another_user_could_read_or_have_put_there_is_not_used(directory: Path, change: str) -> None:
    register("http://localhost:8081", "secret", directory)
    (file,) = directory.iterdir()
    if change == "readable by others":
        file.chmod(0o640)
    elif change == "a link":
        file.rename(directory / "target")
        file.symlink_to(directory / "target")
    elif change == "too large":
        file.write_bytes(file.read_bytes() + b" " * (1 << 20))
    else:
        file.unlink()
        os.mkfifo(file, 0o600)

    assert servers(directory) == []


def test_a_later_process_with_the_same_number_is_not_taken_for_the_server(directory: Path) -> None:
    register("http://localhost:1", None, directory).close()
    me = this_process()
    entry = Server("http://localhost:1", Owner(me.machine, os.getpid(), "1"))
    (directory / "old.json").write_bytes(msgspec.json.encode(entry))

    assert servers(directory) == []


def test_an_entry_of_another_machine_is_neither_used_nor_removed(directory: Path) -> None:
    register("http://localhost:1", None, directory).close()
    entry = Server("http://localhost:1", Owner("elsewhere", 1, "1"))
    (directory / "other.json").write_bytes(msgspec.json.encode(entry))
    (directory / "newer.json").write_text('{"urls": []}')

    assert servers(directory) == []
    assert _entries(directory) == ["newer.json", "other.json"]


@pytest.mark.parametrize("mode", [0o777, 0o750])
def test_a_directory_that_others_can_enter_is_neither_read_nor_written(directory: Path, mode: int) -> None:
    register("http://localhost:1", "secret", directory)
    directory.parent.chmod(mode)

    register("http://localhost:2", "secret", directory)

    assert servers(directory) == []
    assert len(_entries(directory)) == 1


def test_a_link_to_a_directory_is_not_followed(directory: Path, tmp_path: Path) -> None:
    register("http://localhost:1", None, directory)
    link = tmp_path / "link"
    link.symlink_to(directory.parent)

    assert servers(link / "servers") == []


def test_a_registry_that_cannot_be_written_does_not_stop_a_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    register("http://localhost:1", None, tmp_path / "file" / "servers").close()


def test_the_directory_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")

    assert registry.default_directory().parts[-2:] == ("checkdam-ada", "servers")
