from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkdam.runtime.logs.log_reader import MOST_BYTES, LogDirectory, log_directory
from checkdam.runtime.logs.rotating_file import RotatingFile

JOB = "0123456789abcdef0123456789abcdef"


def _ignore(problem: str) -> None: ...


@pytest.fixture
def logs(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path)


def test_files_are_listed_with_the_drivers_first(tmp_path: Path, logs: LogDirectory) -> None:
    for name in ("slot-10.log", "slot-2.log", "driver.out", "driver.log.10", "driver.log.2", "driver.log", "other.log"):
        (tmp_path / name).write_text("text")
    (tmp_path / "slot-3.log").symlink_to(tmp_path / "driver.log")
    (tmp_path / "slot-4.log").mkdir()

    assert [file.name for file in logs.files()] == [
        "driver.log",
        "driver.log.2",
        "driver.log.10",
        "driver.out",
        "slot-2.log",
        "slot-10.log",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "driver.log/../secret",
        "driver.log\n",
        "driver.log.0",
        "driver.log.1000",
        "driver.txt",
        "slot-01.log",
        "slot-.log",
        "secret",
        "",
        ".",
        "driver.log\0",
    ],
)
def test_a_name_that_is_none_of_a_log_file_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "secret").write_text("secret")
    logs = LogDirectory(tmp_path / "logs")

    with pytest.raises(FileNotFoundError):
        logs.read(name, 0, 100)
    with pytest.raises(FileNotFoundError):
        logs.tail(name, None, 100)


def test_neither_links_nor_pipes_are_read(tmp_path: Path, logs: LogDirectory) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "driver.log").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "driver.out")
    (tmp_path / "linked").symlink_to(tmp_path)

    for name in ("driver.log", "driver.out"):
        with pytest.raises(OSError):
            logs.read(name, 0, 100)
    with pytest.raises(OSError):
        LogDirectory(tmp_path / "linked").files()


@pytest.mark.parametrize("path", [None, "", JOB, f"relative/{JOB}", "/etc", f"/logs/{JOB}/..", f"/logs/\0/{JOB}"])
def test_a_record_cannot_name_any_directory(path: str | None) -> None:
    assert log_directory(path, JOB) is None


def test_a_record_names_a_directory_of_its_job() -> None:
    assert log_directory(f"/logs/{JOB}", JOB) is not None


def test_lines_are_followed_across_files_that_are_set_aside(tmp_path: Path, logs: LogDirectory) -> None:
    file = RotatingFile(tmp_path / "driver.log", 30, 9, _ignore)
    file.write("line 0\n")
    first = logs.tail("driver.log", None, 1000)
    seen, cursor = first.text, first.cursor

    for number in range(1, 40):
        file.write(f"line {number}\n")
        if number % 7 == 0:
            part = logs.tail("driver.log", cursor, 1000)
            assert not part.has_gap
            seen, cursor = seen + part.text, part.cursor
    seen += logs.tail("driver.log", cursor, 1000).text

    assert seen == "".join(f"line {number}\n" for number in range(40))


def test_a_follower_with_little_room_gets_everything_in_parts(tmp_path: Path, logs: LogDirectory) -> None:
    file = RotatingFile(tmp_path / "driver.log", 30, 9, _ignore)
    file.write("line 0\n")
    cursor = logs.tail("driver.log", None, 10).cursor
    for number in range(1, 10):
        file.write(f"line {number}\n")

    parts: list[str] = []
    while not parts or parts[-1]:
        part = logs.tail("driver.log", cursor, 10)
        parts.append(part.text)
        cursor = part.cursor

    assert "".join(parts) == "".join(f"line {number}\n" for number in range(1, 10))
    assert max(map(len, parts)) <= 10


def test_without_a_cursor_the_last_lines_come_from_older_files_too(tmp_path: Path, logs: LogDirectory) -> None:
    file = RotatingFile(tmp_path / "driver.log", 30, 9, _ignore)
    for number in range(10):
        file.write(f"line {number}\n")

    assert logs.tail("driver.log", None, 25).text == "line 7\nline 8\nline 9\n"
    assert logs.tail("driver.log", None, 25).has_gap
    assert logs.tail("driver.log", None, 1000).text == "".join(f"line {number}\n" for number in range(10))
    assert not logs.tail("driver.log", None, 1000).has_gap


def test_a_follower_who_was_away_too_long_is_told_of_the_gap(tmp_path: Path, logs: LogDirectory) -> None:
    file = RotatingFile(tmp_path / "driver.log", 30, 1, _ignore)
    file.write("line 0\n")
    cursor = logs.tail("driver.log", None, 1000).cursor
    away = [(tmp_path / "driver.log").open()]  # keeps the inode from being used again
    for number in range(1, 20):
        file.write(f"line {number}\n")

    part = logs.tail("driver.log", cursor, 1000)

    assert part.has_gap
    assert part.text.endswith("line 19\n")
    away.pop().close()


@pytest.mark.parametrize("cursor", ["", "x", "1:", ":1", "1:2:3", "-1:0", "9" * 40 + ":0", "0:" + "9" * 30])
def test_a_cursor_that_is_none_gives_the_last_lines(tmp_path: Path, logs: LogDirectory, cursor: str) -> None:
    (tmp_path / "driver.log").write_text("a\nb\n")

    assert logs.tail("driver.log", cursor, 1000).text == "a\nb\n"


def test_a_line_in_progress_waits_until_it_is_whole(tmp_path: Path, logs: LogDirectory) -> None:
    (tmp_path / "driver.log").write_text("whole\nbeg")
    first = logs.tail("driver.log", None, 1000)

    with (tmp_path / "driver.log").open("a") as file:
        file.write("un\n")

    assert first.text == "whole\n"
    assert logs.tail("driver.log", first.cursor, 1000).text == "begun\n"


def test_a_line_longer_than_the_limit_is_passed_on_in_parts(tmp_path: Path, logs: LogDirectory) -> None:
    (tmp_path / "driver.log").write_text("")
    cursor = logs.tail("driver.log", None, 10).cursor
    (tmp_path / "driver.log").write_text("x" * 25 + "\n")

    first = logs.tail("driver.log", cursor, 10)

    assert first.text == "x" * 10
    assert logs.tail("driver.log", first.cursor, 10).text == "x" * 10


def test_no_call_reads_more_than_the_limit(tmp_path: Path, logs: LogDirectory) -> None:
    (tmp_path / "driver.log").write_bytes(b"x\n" * MOST_BYTES)

    assert len(logs.read("driver.log", 0, 10 * MOST_BYTES)) == MOST_BYTES
    assert len(logs.tail("driver.log", None, 10 * MOST_BYTES).text) <= MOST_BYTES


def test_a_file_that_is_set_aside_meanwhile_is_found_by_its_id(tmp_path: Path, logs: LogDirectory) -> None:
    file = RotatingFile(tmp_path / "driver.log", 10, 2, _ignore)
    file.write("first\n")
    [listed] = logs.files()

    file.write("second\n")

    assert logs.read("driver.log", 0, 100, listed.id) == b"first\n"
