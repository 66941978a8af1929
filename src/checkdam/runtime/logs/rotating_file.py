"""A log file of bounded size, with the older ones beside it: `driver.log`, `driver.log.1`, `driver.log.2` …"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from checkdam.runtime.logs.after_fork import renew_in_child

RETRY_SECONDS: Final = 30.0


class RotatingFile:
    """Appends lines. Thread-safe; another process may append to the same file, also a forked child.

    A failed write, such as on a full disk, never raises: `complain` is called once, lines are dropped, and writing is
    tried again after a while. The file is created with the first line.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        max_old_files: int,
        complain: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_old_files = max_old_files
        self._complain = complain
        self._monotonic = monotonic
        self.renew()
        renew_in_child(self)
        self._file: int | None = None
        self._failed_until: float | None = None
        self._has_complained = False
        self._lost = 0

    def renew(self) -> None:
        """Make the lock anew, without the lines that wait: a parent writes its own."""
        self._lock = threading.RLock()
        self._is_writing = False
        self._waiting: deque[str] = deque()

    def write(self, text: str) -> None:
        """Append a line, or several; `text` ends with a newline.

        A finalizer may print while its thread is writing: then the text is appended next.
        """
        with self._lock:
            self._waiting.append(text)
            if self._is_writing:
                return
            self._is_writing = True
            try:
                while self._waiting:
                    self._write(self._waiting.popleft())
            finally:
                self._is_writing = False

    def _write(self, text: str) -> None:
        if self._failed_until is not None and self._monotonic() < self._failed_until:
            self._lost += 1
            return
        try:
            if self._lost:
                self._append(f"({self._lost} lines are missing here: they could not be written)\n".encode())
                self._lost = 0
            self._append(text.encode("utf-8", "backslashreplace"))
            self._failed_until = None
        except OSError as error:
            self._give_up_for_now(error)

    def close(self) -> None:
        with self._lock:
            self._release()

    def _append(self, data: bytes) -> None:
        file = self._with_room_for(len(data))
        while data:
            data = data[os.write(file, data) :]

    def _with_room_for(self, size: int) -> int:
        if self._file is not None:
            status = os.fstat(self._file)
            if status.st_nlink == 0:  # somebody has deleted it
                self._release()
            elif status.st_size and status.st_size + size > self._max_bytes:
                self._release()
                if _inode(self._path) == status.st_ino:  # otherwise another process has just moved it
                    self._move_old_files()
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            status = os.fstat(self._file)
            if status.st_size and status.st_size + size > self._max_bytes:
                return self._with_room_for(size)
        return self._file

    def _move_old_files(self) -> None:
        if self._max_old_files == 0:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._max_old_files, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            with suppress(FileNotFoundError):
                newer.replace(older)

    def _give_up_for_now(self, error: OSError) -> None:
        self._release()
        self._failed_until = self._monotonic() + RETRY_SECONDS
        self._lost += 1
        if not self._has_complained:
            self._has_complained = True
            self._complain(f"{self._path} cannot be written, and lines are missing there: {error.strerror or error}")

    def _release(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                os.close(file)


def _inode(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
