"""Reads the log files of a job. Names come from requests and directories from archived records: both are checked."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

DRIVER: Final = "driver"
LOG: Final = "log"
STDOUT: Final = "out"
MOST_BYTES: Final = 1 << 20
"""The most that one call reads."""

_NAME = re.compile(r"(?P<current>(?P<process>driver|slot-(?:0|[1-9][0-9]{0,5}))\.(?:log|out))(?:\.[1-9][0-9]{0,2})?")
_CURSOR = re.compile(r"(?P<id>[0-9]{1,20}):(?P<offset>[0-9]{1,18})")


@dataclass(frozen=True)
class LogFile:
    """One file. `id` stays the same when the file is set aside under another name."""

    name: str
    size: int
    modified_at: int  # milliseconds since 1970
    id: int

    @property
    def process(self) -> str:
        """The process that writes it: "driver", or "slot-0"."""
        return process_of(self.name)


@dataclass(frozen=True)
class LogPart:
    """Whole lines of a log; `cursor` asks for those that follow."""

    text: str
    cursor: str
    has_gap: bool = False  # lines before these are not included


class LogSource(Protocol):
    """The log files of one process, or of several. Raises OSError: FileNotFoundError for a file that is not there."""

    def files(self) -> Sequence[LogFile]: ...

    def read(self, name: str, offset: int, length: int, id: int | None = None) -> bytes:
        """Return a part of a file, at most MOST_BYTES. With `id` the file is found even if it was set aside."""

    def tail(self, name: str, cursor: str | None, limit: int) -> LogPart:
        """Return the lines after the cursor, across files that were set aside; without a cursor the last ones."""


def slot_process(subtask: int) -> str:
    return f"slot-{subtask}"


def process_of(name: str) -> str:
    """Return the process that writes a file of this name; "" if it is not the name of a log file."""
    match = _NAME.fullmatch(name)
    return match["process"] if match is not None else ""


def log_directory(path: str | None, job_id: str) -> LogDirectory | None:
    """Return the log directory that a job's record names; None for a path that cannot be one."""
    if path is None or "\0" in path or not os.path.isabs(path) or Path(path).name != job_id:
        return None
    return LogDirectory(Path(path))


class LogDirectory:
    """A LogSource: the files in a directory of this machine. Opens regular files with the names of log files only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> list[LogFile]:
        found = []
        with self._directory() as directory:
            for name in os.listdir(directory):
                if process_of(name):
                    with suppress(OSError):  # removed meanwhile, or not a file
                        found.append(_described(name, os.stat(name, dir_fd=directory, follow_symlinks=False)))
        return sorted(found, key=_order)

    def read(self, name: str, offset: int, length: int, id: int | None = None) -> bytes:
        with self._opened(name) as files:
            for file, status in files:
                if (status.st_ino == id) if id is not None else (file is files[0][0]):
                    return os.pread(file, min(length, MOST_BYTES), offset)
        raise FileNotFoundError(name)

    def tail(self, name: str, cursor: str | None, limit: int) -> LogPart:
        limit = min(max(limit, 1), MOST_BYTES)
        with self._opened(name) as files:
            match = _CURSOR.fullmatch(cursor or "")
            if match is not None:
                for place, (_, status) in enumerate(files):
                    if status.st_ino == int(match["id"]) and int(match["offset"]) <= status.st_size:
                        return _after(files[: place + 1], int(match["offset"]), limit)
            return _last(files, limit, has_gap=match is not None)

    @contextmanager
    def _opened(self, name: str) -> Iterator[list[tuple[int, os.stat_result]]]:
        """Open a file and, if it is a current one, those that were set aside: newest first."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise FileNotFoundError(name)
        with ExitStack() as closing, self._directory() as directory:
            files: list[tuple[int, os.stat_result]] = []
            names = [name]
            if match["current"] == name:
                older = [each for each in os.listdir(directory) if each.startswith(f"{name}.") and process_of(each)]
                names += sorted(older, key=_number)
            for each in names:
                try:
                    file = _open_regular(each, directory)
                except OSError:
                    if each == name:
                        raise
                    continue
                closing.callback(os.close, file)
                status = os.fstat(file)
                if all(status.st_ino != other.st_ino for _, other in files):  # moved while this looks
                    files.append((file, status))
            yield files

    @contextmanager
    def _directory(self) -> Iterator[int]:
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield directory
        finally:
            os.close(directory)


def _open_regular(name: str, directory: int) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
    file = os.open(name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(name)
    return file


def _after(newest_first: Sequence[tuple[int, os.stat_result]], offset: int, limit: int) -> LogPart:
    """Read from an offset in the oldest of these files on."""
    parts: list[bytes] = []
    for place, (file, status) in reversed(list(enumerate(newest_first))):
        data = os.pread(file, limit, offset)
        is_done = offset + len(data) >= status.st_size and place > 0
        if not is_done:
            data = _whole_lines(data, limit)
        parts.append(data)
        limit -= len(data)
        if not is_done or limit <= 0:
            return _part(parts, status.st_ino, offset + len(data))
        offset = 0
    raise AssertionError("the newest file is never done")


def _last(newest_first: Sequence[tuple[int, os.stat_result]], limit: int, *, has_gap: bool) -> LogPart:
    """Read the last lines of these files together."""
    newest, status = newest_first[0]
    begin = max(0, status.st_size - limit)
    data = _whole_lines(os.pread(newest, limit, begin), limit)
    end = begin + len(data)
    parts, is_cut = [data], begin > 0
    for file, older in newest_first[1:]:
        left = limit - sum(map(len, parts))
        if is_cut or left <= 0:
            is_cut = True
            break
        is_cut = older.st_size > left
        parts.insert(0, os.pread(file, left, max(0, older.st_size - left)))
    if is_cut and b"\n" in parts[0]:
        parts[0] = parts[0].partition(b"\n")[2]  # the first line is cut
    return _part(parts, status.st_ino, end, has_gap=has_gap or is_cut)


def _whole_lines(data: bytes, limit: int) -> bytes:
    """Return the data up to the last end of a line; all of it if a line is longer than the limit."""
    end = data.rfind(b"\n") + 1
    return data[:end] if end or len(data) < limit else data


def _part(parts: Sequence[bytes], id: int, offset: int, *, has_gap: bool = False) -> LogPart:
    return LogPart(b"".join(parts).decode("utf-8", "replace"), f"{id}:{offset}", has_gap)


def _described(name: str, status: os.stat_result) -> LogFile:
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(name)
    return LogFile(name, status.st_size, status.st_mtime_ns // 1_000_000, status.st_ino)


def _number(name: str) -> int:
    suffix = name.rpartition(".")[2]
    return int(suffix) if suffix.isdigit() else 0


def _order(file: LogFile) -> tuple[bool, int, str, int]:
    """Order the driver's files first, then the slots' by number, each with its newest file first."""
    is_slot, _, number = file.process.partition("-")
    return is_slot != DRIVER, int(number or 0), file.name.split(".")[1], _number(file.name)
