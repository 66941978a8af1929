"""`checkdam run` in its own process, watched by its output."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from checkdam.cli.demo.demo_processes import MARK
from checkdam.errors import JobFailedError

_TIME = re.compile(r"^\S+Z ")


class ChildJob:
    """A running job; its process and its JVM form one process group, which is killed as a whole."""

    def __init__(self, arguments: Sequence[str], mark: str) -> None:
        self._said: queue.Queue[str | None] = queue.Queue()
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "checkdam.cli", "run", *arguments],
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            for line in stderr:
                self._said.put(_TIME.sub("", line.rstrip("\n")))
        self._said.put(None)

    def wait_for(self, pattern: str, *, seconds: float) -> re.Match[str]:
        """Return the next line that matches. Raise JobFailedError if the job ends, or no line matches in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise self._failed(f"printed no line that matches /{pattern}/ within {seconds:.0f} s") from None
            if line is None:
                raise self._failed(f"ended before it printed a line that matches /{pattern}/")
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match

    def kill(self) -> None:
        """Send SIGKILL to the driver and its JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, *, seconds: float) -> int:
        return self.process.wait(timeout=seconds)

    def _failed(self, what: str) -> JobFailedError:
        said = "\n".join(self.lines[-10:])
        return JobFailedError(f"the demo's job {what}", hint=f"Its last lines:\n{said}")
