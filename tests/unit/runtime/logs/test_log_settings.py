from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest

from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.ids import JobId
from checkdam.runtime.logs.log_settings import (
    LogSettings,
    held,
    log_settings,
    private_directory,
    remove_old_logs,
    user_logs,
)

JOB = JobId("0123456789abcdef0123456789abcdef")


def _directory(storage: str | None, is_on_by_default: bool = True, **settings: str) -> str | None:
    given = Configuration.load(None, {key.replace("_", "."): value for key, value in settings.items()})
    found = log_settings(given, JOB, storage, is_on_by_default=is_on_by_default)
    return None if found is None else found.directory


@pytest.mark.parametrize("storage", ["/data/ck", "file:///data/ck"])
def test_logs_are_beside_local_checkpoints(storage: str) -> None:
    assert _directory(storage) == f"/data/ck/_logs/{JOB}"


def test_a_relative_checkpoint_directory_is_meant_as_of_now() -> None:
    assert _directory("ck") == f"{Path.cwd()}/ck/_logs/{JOB}"


@pytest.mark.parametrize("storage", [None, "s3://bucket/ck", "memory://1"])
def test_without_local_checkpoints_they_are_in_the_users_own_directory(
    storage: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert _directory(storage) == f"{tmp_path}/checkdam/logs/{JOB}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_beside_checkpoints_that_are_shared_each_user_has_their_own_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "ck" / "_logs").mkdir(parents=True)

    assert _directory(str(tmp_path / "ck")) == f"{tmp_path}/ck/_logs/{JOB}"
    os.chown(tmp_path / "ck" / "_logs", 1234, 1234)
    assert _directory(str(tmp_path / "ck")) == f"{tmp_path}/checkdam/logs/{JOB}"


def test_a_user_without_a_home_gets_a_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere

    assert user_logs().name == f"checkdam-logs-{os.geteuid()}"


@pytest.mark.parametrize("home", [None, "somewhere"])
def test_a_user_whose_home_is_unknown_gets_a_temporary_directory(
    home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    if home is not None:
        monkeypatch.setenv("HOME", home)

    assert user_logs().name == f"checkdam-logs-{os.geteuid()}"


def test_a_home_or_checkpoints_that_cannot_be_searched_stop_no_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stat_of, access_of = os.stat, os.access
    (tmp_path / "home").mkdir()

    def stat_unless_below(path: Any, **how: Any) -> os.stat_result:  # root may search anywhere
        if (tmp_path / "home") in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **how)

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with monkeypatch.context() as denied:
        denied.setattr(os, "stat", stat_unless_below)
        denied.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "home" and access_of(path, mode))
        found = [_directory(None), _directory(str(tmp_path / "home" / "ck"))]

    assert [Path(each or "").parent.name for each in found] == [f"checkdam-logs-{os.geteuid()}"] * 2


def test_the_setting_wins() -> None:
    assert _directory("/data/ck", env_log_dir="/var/log/jobs") == f"/var/log/jobs/{JOB}"
    assert _directory("/data/ck", is_on_by_default=False, env_log_dir="/var/log/jobs") == f"/var/log/jobs/{JOB}"


def test_a_bucket_cannot_hold_log_files() -> None:
    with pytest.raises(ConfigError, match="not a local directory"):
        _directory("/data/ck", env_log_dir="s3://bucket/logs")


def test_a_plain_program_writes_none_unless_told() -> None:
    assert _directory("/data/ck", is_on_by_default=False) is None


def test_sizes_and_level_come_from_the_settings() -> None:
    given = Configuration.load(
        None, {"env.log.dir": "/l", "env.log.max-size": "1 mb", "env.log.max": "2", "env.log.level": "warning"}
    )

    assert log_settings(given, JOB, None, is_on_by_default=False) == LogSettings(f"/l/{JOB}", 1 << 20, 2, "WARN")


def test_only_the_user_can_enter_the_directories(tmp_path: Path) -> None:
    private_directory(tmp_path / "a" / "b")

    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")} == {0o700}


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError):
        private_directory(tmp_path / "logs")
    with pytest.raises(PermissionError):
        private_directory(tmp_path / "logs" / "job")


def test_the_logs_of_older_jobs_are_removed_but_not_those_of_one_that_runs(tmp_path: Path) -> None:
    for number in range(6):
        directory = tmp_path / f"job{number}"
        directory.mkdir()
        (directory / "driver.log").write_text("x")
        os.utime(directory, (number, number))
    (tmp_path / "file").write_text("not a directory")
    lock = held(tmp_path / "job1")

    remove_old_logs(tmp_path, keep=2)
    os.close(lock)

    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "job1", "job4", "job5"]
