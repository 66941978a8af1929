"""Registry of this user's REST servers on this machine, so that the command line finds jobs without an address.

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


class Server(msgspec.Struct, frozen=True):
    """A running server: its URL, its token, and the jobs of its process."""

    url: str
    owner: Owner
    token: str | None = None
    jobs: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(Server).decode


class Registration:
    """This process's entry. A failed write only costs convenience, so it is logged and never affects the job."""

    def __init__(self, file: Path, server: Server) -> None:
        self._file = file
        self._server = server

    def runs(self, job_id: JobId) -> None:
        """Record that this process runs the job."""
        jobs = tuple(dict.fromkeys((*self._server.jobs, job_id)))
        self._server = msgspec.structs.replace(self._server, jobs=jobs)
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


def register(url: str, token: str | None, directory: Path | None = None) -> Registration:
    """Register a server of this process until `close` is called."""
    directory = directory or default_directory()
    registration = Registration(
        directory / f"{os.getpid()}-{secrets.token_hex(4)}.json", Server(url, this_process(), token)
    )
    registration.write()
    return registration


def servers(directory: Path | None = None) -> Sequence[Server]:
    """Return the servers whose process runs; remove the files of dead ones."""
    directory = directory or default_directory()
    if not _is_private(directory):
        return []
    found = []
    for file in sorted(directory.glob("*.json")):
        server = _read(file)
        if server is None or not server.owner.is_here():
            continue  # written by a newer version, being removed, or of a container that shares the directory
        if server.owner.is_alive():
            found.append(server)
        else:
            file.unlink(missing_ok=True)
    return found


def _read(file: Path) -> Server | None:
    try:
        return _decode(file.read_bytes())
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
        mine = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
        if not mine or stat.S_IMODE(status.st_mode) & 0o077:
            return False
    return True
