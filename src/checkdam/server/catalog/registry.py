"""Registry of this user's REST servers on this machine: the command line and `checkdam serve` find jobs by it.

Each server has one file in a directory that only the user can enter, because the file may contain a token. A server
removes its file when it ends; after a kill the file stays, and the next reader removes it.
"""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checkdam.ids import JobId
from checkdam.processes import Owner, this_process

_LOG = logging.getLogger(__name__)


_MOST_BYTES = 1 << 20  # a larger file is none of ours
_MOST_NAMED = 100  # jobs and directories that an entry names


class Server(msgspec.Struct, frozen=True):
    """A running server: its URL, its token, the jobs of its process, and where these keep their checkpoints."""

    url: str
    owner: Owner
    token: str | None = None
    jobs: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    is_standing: bool = False  # `checkdam serve`: shows the jobs of all processes, and outlives them


_decode = msgspec.json.Decoder(Server).decode


class Registration:
    """This process's entry. A failed write only costs convenience, so it is logged and never affects the job."""

    def __init__(self, file: Path, server: Server) -> None:
        self._file = file
        self._server = server

    def runs(self, job_id: JobId, directory: str | None = None) -> None:
        """Record that this process runs the job, which keeps its checkpoints in `directory`."""
        jobs = _with(self._server.jobs, job_id)
        directories = self._server.directories if directory is None else _with(self._server.directories, directory)
        self._server = msgspec.structs.replace(self._server, jobs=jobs, directories=directories)
        self.write()

    def write(self) -> None:
        try:
            _write(self._file, msgspec.json.encode(self._server))
        except OSError as error:
            _LOG.warning("registry: %s cannot be written: %s", self._file, error)

    def close(self) -> None:
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("registry: %s cannot be removed: %s", self._file, error)


def default_directory() -> Path:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user id without a name
        user = str(os.getuid())
    return Path(tempfile.gettempdir()) / f"checkdam-{user}" / "servers"


def _with(known: tuple[str, ...], latest: str) -> tuple[str, ...]:
    """Return the latest entries, each once: a program may run one job after another for days."""
    return (*(each for each in known if each != latest), latest)[-_MOST_NAMED:]


def register(url: str, token: str | None, directory: Path | None = None, *, is_standing: bool = False) -> Registration:
    """Register a server of this process until `close` is called."""
    directory = directory or default_directory()
    registration = Registration(
        directory / f"{os.getpid()}-{secrets.token_hex(4)}.json",
        Server(url, this_process(), token, is_standing=is_standing),
    )
    registration.write()
    return registration


def servers(directory: Path | None = None) -> Sequence[Server]:
    """Return the servers whose process runs, latest change last; remove the files of dead ones."""
    directory = directory or default_directory()
    if not _is_private(directory):
        return []
    found = []
    for file in sorted(directory.glob("*.json"), key=_modified_at):
        server = _read(file)
        if server is None or not server.owner.is_here():
            continue  # written by a newer version, being removed, or of a container that shares the directory
        if server.owner.is_alive():
            found.append(server)
        else:
            file.unlink(missing_ok=True)
    return found


def _modified_at(file: Path) -> tuple[int, str]:
    try:
        return file.lstat().st_mtime_ns, file.name
    except OSError:  # removed meanwhile
        return 0, file.name


def _read(file: Path) -> Server | None:
    """Read a file that only this user can have written and read: it says where tokens are sent."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or not _is_mine(status) or status.st_size > _MOST_BYTES:
                return None
            return _decode(stream.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _write(file: Path, content: bytes) -> None:
    """Write the file atomically, readable by this user alone."""
    for directory in (file.parent.parent, file.parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(file.parent):
        raise PermissionError(f"{file.parent} belongs to, or can be entered by, another user")
    temporary = file.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
    temporary.replace(file)


def _is_private(directory: Path) -> bool:
    """Return whether only this user can have written there: the temporary directory is open to all."""
    for each in (directory.parent, directory):
        try:
            status = each.lstat()
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode) or not _is_mine(status):
            return False
    return True


def _is_mine(status: os.stat_result) -> bool:
    """Return whether only this user has access."""
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
