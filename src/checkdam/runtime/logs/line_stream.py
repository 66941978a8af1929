"""Standard output and standard error of a process, taken line by line; and showing lines elsewhere without waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO

from checkdam.runtime.logs.after_fork import renew_in_child

LONGEST_LINE: Final = 64 << 10
"""Characters after which a line is broken: what a function prints without a newline must not fill the memory."""
_LONGEST_SHOWN = 4000
_MOST_WAITING = 1000


class LineStream:
    """Stands for `sys.stdout` or `sys.stderr`: passes each whole line on. Thread-safe.

    It has no lock, which a finalizer that prints, or a forked child, could find held by its own thread or by none.

    Everything but `write` is left to the stream it stands for, so that a program finds its descriptor and its encoding.
    Bytes that are written to `buffer` or to the descriptor bypass this.
    """

    def __init__(self, beneath: TextIO, take: Callable[[str], None], *, passes_on: bool) -> None:
        """`take` gets each line, without its end. With `passes_on` the text is written to `beneath` as well."""
        self.beneath = beneath
        self._take = take
        self._passes_on = passes_on
        self._begun: dict[int, str] = {}  # by thread: print() writes a line in several parts

    def write(self, text: str) -> int:
        me = threading.get_ident()
        *lines, rest = (self._begun.pop(me, "") + text).split("\n")
        while len(rest) >= LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        if rest:
            self._begun[me] = rest
        for line in lines:
            for begin in range(0, len(line) or 1, LONGEST_LINE):
                self._take(line[begin : begin + LONGEST_LINE])
        if self._passes_on:
            return self.beneath.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream beneath if it got the text: otherwise this could wait for a paused terminal in vain."""
        if self._passes_on:
            self.beneath.flush()

    def end_lines(self) -> None:
        """Pass on lines that were begun and not ended: nothing follows."""
        begun, self._begun = self._begun, {}
        for line in list(begun.values()):
            self._take(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


def beneath(stream: TextIO) -> TextIO:
    """Return the stream that a LineStream stands for; any other stream itself."""
    return stream.beneath if isinstance(stream, LineStream) else stream


class Echo:
    """Shows lines on a stream, in a thread of its own: drops lines rather than wait for a paused terminal.

    It may be called at any time, also by a finalizer in the middle of another call. A forked child has its own thread.
    """

    def __init__(self, stream: TextIO, marker: str = "") -> None:
        self._stream = stream
        self._marker = marker
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew, without the lines that wait: a parent shows its own."""
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._dropped = 0
        self._is_stuck = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, line: str) -> None:
        if self._lines.qsize() < _MOST_WAITING:
            self._lines.put(line[:_LONGEST_SHOWN])
        else:
            self._dropped += 1
        if self._thread is None and self._starting.acquire(blocking=False):  # otherwise it is being started
            try:
                if self._thread is None:
                    thread = threading.Thread(target=self._show, args=(self._lines,), daemon=True, name="echo")
                    thread.start()
                    self._thread = thread
            finally:
                self._starting.release()

    def settle(self, seconds: float) -> None:
        """Wait for a while until all lines are shown; not again before the stream has taken another line."""
        if self._thread is not None and not self._is_stuck:
            is_reached = threading.Event()
            self._lines.put(is_reached)
            self._is_stuck = not is_reached.wait(seconds)

    def _show(self, lines: queue.SimpleQueue[str | threading.Event]) -> None:
        while True:
            line = lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            with suppress(OSError, ValueError):  # a closed terminal; the lines are in the file
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    self._stream.write(f"{self._marker}({dropped} lines are not shown; the log file has them)\n")
                self._stream.write(f"{self._marker}{line}\n")
                self._stream.flush()
            self._is_stuck = False
