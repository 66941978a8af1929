"""What a slot prints and logs, and what a job's functions print in it."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.logs.plain_program import plain_program

from checkdam import AsyncFunction, DataStream, KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from checkdam.runtime.logs import process_logs
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.runtime.logs.process_logs import output_captured
from checkdam.testing.local_job import LocalJob


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_prints_and_log_records_go_to_files_and_are_still_shown(tmp_path: Path) -> None:
    with plain_program() as terminal:
        with output_captured(LogSettings(str(tmp_path / "job")), "slot-1", 1, "!", is_until_end=True):
            print("to stdout")  # noqa: T201
            print("to stderr", file=sys.stderr)  # noqa: T201
            logging.getLogger("clicks").info("seen %d", 7)
            logging.getLogger("clicks").warning("of s3://key:secret@bucket")
            logging.getLogger("clicks").debug("not at this level")
            warnings.warn("old", DeprecationWarning, stacklevel=1)

        assert _lines(tmp_path / "job" / "slot-1.out") == ["to stdout", "to stderr"]
        log = _lines(tmp_path / "job" / "slot-1.log")
        assert [line.partition("Z ")[2] for line in log[:2]] == [
            "INFO  clicks: seen 7",
            "WARN  clicks: of s3://******@bucket",
        ]
        assert log[2].endswith("DeprecationWarning: old")
        shown = terminal.getvalue().splitlines()
        assert shown[:3] == ["!to stdout", "!to stderr", "!of s3://key:secret@bucket"]


def test_an_exception_is_logged_with_its_stack(tmp_path: Path) -> None:
    with plain_program():
        with output_captured(LogSettings(str(tmp_path / "job")), "slot-0", 0, is_until_end=True):
            try:
                raise ValueError("no such rate")
            except ValueError:
                logging.getLogger("rates").exception("failed")

        log = _lines(tmp_path / "job" / "slot-0.log")
        assert log[0].endswith("ERROR rates: failed")
        assert log[1] == "Traceback (most recent call last):"
        assert log[-1] == "ValueError: no such rate"


def test_everything_is_as_before_afterwards(tmp_path: Path) -> None:
    with plain_program():
        root = logging.getLogger()
        before = sys.stdout, sys.stderr, root.level, list(root.handlers)

        with output_captured(LogSettings(str(tmp_path / "job")), "slot-0", 0, is_until_end=True):
            sys.stdout.write("begun")

        assert (sys.stdout, sys.stderr, root.level, list(root.handlers)) == before
        assert _lines(tmp_path / "job" / "slot-0.out") == ["begun"]


def test_a_process_that_prints_nothing_makes_no_file(tmp_path: Path) -> None:
    with plain_program():
        with output_captured(LogSettings(str(tmp_path / "job")), "slot-0", 0, is_until_end=True):
            pass

        assert not (tmp_path / "job").exists()


def test_a_place_that_cannot_be_used_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    with plain_program() as terminal:
        (tmp_path / "file").write_text("not a directory")

        with output_captured(LogSettings(str(tmp_path / "file" / "job")), "slot-0", 0, is_until_end=True):
            print("a")  # noqa: T201
            logging.getLogger("clicks").warning("b")

        shown = terminal.getvalue().splitlines()
        assert [line for line in shown if not line.startswith("WARNING")] == ["a", "b"]
        assert [line for line in shown if line.startswith("WARNING")] == [
            f"WARNING: {tmp_path}/file/job cannot be used for log files: Not a directory"
        ]


class _Paused(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.can_go_on = threading.Event()

    def flush(self) -> None:
        self.can_go_on.wait()


def test_a_task_of_spark_does_not_wait_for_a_paused_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_logs, "_SETTLE_SECONDS", 60.0)
    with plain_program(), redirect_stderr(_Paused()) as terminal:

        def task() -> None:
            with output_captured(LogSettings(str(tmp_path / "job")), "slot-0", 0, is_until_end=False):
                print("a", flush=True)  # noqa: T201

        thread = threading.Thread(target=task)
        thread.start()
        thread.join(5)
        has_ended = not thread.is_alive()
        terminal.can_go_on.set()
        thread.join()
        assert has_ended


class _Printing(KeyedProcessFunction[str, str, str]):
    def open(self, context: Any) -> None:
        print("opened")  # noqa: T201

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        print("seen", value)  # noqa: T201
        logging.getLogger("words").info("logged %s", value)
        ctx.timer_service.register_processing_time_timer(0)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        print("due")  # noqa: T201
        return iter(())

    def close(self) -> None:
        print("closed")  # noqa: T201


class _Words(SourceFunction[str]):
    def run(self, ctx: Any) -> Iterator[str]:
        print("reading")  # noqa: T201
        yield "b"


class _Looked(AsyncFunction[str, str]):
    def open(self, ctx: Any) -> None:
        print("connecting")  # noqa: T201

    async def async_invoke(self, value: str) -> str:
        await asyncio.sleep(0)
        print("asking for", value)  # noqa: T201
        return value

    def close(self) -> None:
        print("disconnecting")  # noqa: T201


def _program(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    def plain(value: str) -> str:
        print("mapping", value)  # noqa: T201
        return value

    words = stream.map(plain, output_type=str).name("trim")
    words.key_by(lambda word: word, key_type=str).process(_Printing(), output_type=str).uid("counts").print().uid("o1")
    environment.add_source(_Words(), str).uid("more").map_async(_Looked(), output_type=str).uid("looked").print().uid(
        "o2"
    )


def test_what_functions_print_names_their_operator_and_subtask(tmp_path: Path) -> None:
    with plain_program():
        with output_captured(LogSettings(str(tmp_path / "job")), "slot-0", 0, is_until_end=True):
            LocalJob(_program, [["a"]], None, parallelism=1).run()
            other = threading.Thread(target=lambda: print("of no operator"))  # noqa: T201
            other.start()
            other.join()

        lines = _lines(tmp_path / "job" / "slot-0.out")
        assert {line for line in lines if "> " in line} >= {
            "trim[0]> mapping a",
            "counts[0]> opened",
            "counts[0]> seen a",
            "counts[0]> due",
            "counts[0]> closed",
            "more[0]> reading",
            "looked[0]> connecting",
            "looked[0]> asking for b",
            "looked[0]> disconnecting",
        }
        assert "of no operator" in lines
        assert any(line.endswith("INFO  words counts[0]: logged a") for line in _lines(tmp_path / "job" / "slot-0.log"))
