"""A job at a light load, and how long each of its records takes from a socket to visible output."""

from __future__ import annotations

import io
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.sides.jobs import SETTINGS, Count
from checkdam import CheckpointConfig, DataStream, StreamExecutionEnvironment

_NUMBER = re.compile(r"record(\d+)")
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.001


class Records:
    """When each record was sent, and when it was first seen in the output."""

    def __init__(self) -> None:
        self._sent: dict[int, float] = {}
        self._seen: dict[int, float] = {}
        self._news = threading.Condition()

    def sent(self, number: int) -> None:
        self._sent[number] = time.perf_counter()

    def seen(self, text: str) -> None:
        """Find the records in some output."""
        now = time.perf_counter()
        with self._news:
            for number in _NUMBER.findall(text):
                self._seen.setdefault(int(number), now)
            self._news.notify_all()

    def wait_for(self, number: int) -> None:
        with self._news:
            if not self._news.wait_for(lambda: number in self._seen, _PATIENCE_SECONDS):
                raise TimeoutError(f"record {number} has not come out")

    def seconds(self, first: int) -> list[float]:
        """Return the time that each record took, without the first ones."""
        return [self._seen[number] - at for number, at in self._sent.items() if number >= first]


def run(*, sink: str, records: int, first: int, seconds_between: float) -> list[float]:
    """Send one record at a time to a job that counts them by key; return the seconds that each took."""
    seen, stop = Records(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, _watched(sink, seen, stop):
        env = StreamExecutionEnvironment.get_execution_environment(SETTINGS)
        if sink == "files":
            env.enable_checkpointing(CheckpointConfig(interval=timedelta(0), storage=os.path.abspath("checkpoints")))
        words = env.socket_text_stream("127.0.0.1", server.getsockname()[1])
        counts = words.key_by(lambda word: word).process(Count(), output_type=tuple[str, int]).uid("count")
        _write(sink, counts, seen)
        job = env.execute_async("latency")
        connection, _ = server.accept()
        with connection:
            for number in range(records):
                seen.sent(number)
                connection.sendall(f"record{number}\n".encode())
                if number < first:
                    seen.wait_for(number)  # the job still starts
                else:
                    time.sleep(seconds_between)
            for number in range(records):  # files of one checkpoint are read in any order
                seen.wait_for(number)
            job.cancel()
    return seen.seconds(first)


def _write(sink: str, counts: DataStream[Any], seen: Records) -> None:
    if sink == "print":
        counts.print()
    elif sink == "files":
        counts.sink_to_files(os.path.abspath("output")).uid("output")
    else:
        counts.sink_to_spark(lambda rows, epoch: seen.seen(str(rows.collect())))


class _Printed(io.StringIO):
    """Standard output that is searched for records."""

    def __init__(self, seen: Records) -> None:
        super().__init__()
        self._records = seen

    def write(self, text: str) -> int:
        self._records.seen(text)
        return len(text)


@contextmanager
def _watched(sink: str, seen: Records, stop: threading.Event) -> Iterator[None]:
    """Look for records where the sink writes them."""
    if sink == "print":
        with redirect_stdout(_Printed(seen)):
            yield
        return
    looking = threading.Thread(target=_look, args=(Path("output").resolve(), seen, stop), daemon=True)
    if sink == "files":
        looking.start()
    try:
        yield
    finally:
        stop.set()


def _look(directory: Path, seen: Records, stop: threading.Event) -> None:
    known: set[str] = set()
    while not stop.wait(_LOOK_SECONDS):
        if not directory.exists():
            continue
        for path in directory.iterdir():
            if path.name not in known and path.name.startswith("part-"):
                known.add(path.name)
                seen.seen(path.read_text(encoding="utf-8"))
