"""Where the log files of a job are, and how large they get."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from checkdam import config
from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.ids import JobId
from checkdam.storage.names import LOGS

MOST_JOBS: Final = 20
"""How many jobs without a local checkpoint directory keep their logs."""


@dataclass(frozen=True)
class LogSettings:
    """The log files of one job. Plain data: slots and Spark's workers get it, too."""

    directory: str
    max_bytes: int = config.LOG_MAX_SIZE.default
    max_old_files: int = config.LOG_MAX_FILES.default
    level: str = config.LOG_LEVEL.default

    def of_job(self, job_id: JobId) -> LogSettings:
        """Return the settings of another job that logs to the same place."""
        return replace(self, directory=str(Path(self.directory).with_name(job_id)))


def log_settings(
    settings: Configuration, job_id: JobId, storage: str | None, *, is_on_by_default: bool
) -> LogSettings | None:
    """Return the log settings of a job; None if it writes no log files.

    Without `env.log.dir` the files are next to the job's checkpoints if these are in a local directory, otherwise in
    the user's own directory for such files, where the logs of older jobs are removed.

    Raises:
        ConfigError: `env.log.dir` is not a local directory.
    """
    configured = settings.get(config.LOG_DIR)
    if configured is None and not is_on_by_default:
        return None
    if configured is not None:
        local = _local_path(configured)
        if local is None:
            raise ConfigError(
                f'setting "{config.LOG_DIR.key}" is "{configured}", which is not a local directory',
                hint="Write for example /var/log/checkdam: log files are appended to, which object stores cannot.",
            )
        parent = Path(local).absolute()
    else:
        parent = _beside(storage) or user_logs()
    return LogSettings(
        str(parent / job_id),
        settings.get(config.LOG_MAX_SIZE),
        settings.get(config.LOG_MAX_FILES),
        settings.get(config.LOG_LEVEL),
    )


def _beside(storage: str | None) -> Path | None:
    """Return the directory for logs beside local checkpoints; None if it is another user's or out of reach."""
    local = _local_path(storage) if storage is not None else None
    if local is None:
        return None
    logs = Path(local).absolute() / LOGS
    try:
        return logs if logs.stat().st_uid == os.geteuid() else None
    except FileNotFoundError:
        return logs
    except OSError:
        return None


def user_logs() -> Path:
    """Return the user's own directory for logs: where XDG has it, or a temporary one for a user without a home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"))
    there = next((each for each in (home, *home.parents) if os.path.exists(each)), home)
    if not home.is_absolute() or not os.access(there, os.W_OK | os.X_OK):
        return Path(tempfile.gettempdir()) / f"checkdam-logs-{os.geteuid()}"
    return home / "checkdam" / "logs"


def private_directory(path: Path) -> None:
    """Make a directory that only this user can enter. Raise OSError, also if another user could have made it."""
    for each in reversed([path, *path.parents]):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    for each, owners in ((path, {os.geteuid()}), (path.parent, {os.geteuid(), 0})):
        status = each.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners:
            raise PermissionError(f'"{each}" is not a directory of this user')


def held(directory: Path) -> int:
    """Lock a job's directory against removal until the returned file is closed. Raise OSError."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks: its directory is not among those that are removed
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return lock


def remove_old_logs(parent: Path, keep: int = MOST_JOBS) -> None:
    """Remove the logs of all but the last jobs; those of a job that runs stay."""
    with suppress(OSError):
        newest_first = sorted(
            (entry for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)),
            key=lambda entry: entry.stat(follow_symlinks=False).st_mtime,
            reverse=True,
        )
        for entry in newest_first[keep:]:
            _remove_unless_held(Path(entry.path))


def _remove_unless_held(directory: Path) -> None:
    with suppress(OSError):  # another driver removes it too, or its job runs
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(lock)


def _local_path(uri: str) -> str | None:
    """Return the path of a local directory; None for any other storage."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return uri if "://" not in uri else None
