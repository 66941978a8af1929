from __future__ import annotations

import stat
from pathlib import Path

from checkdam.runtime.logs.rotating_file import RETRY_SECONDS, RotatingFile


def _no_complaint(problem: str) -> None:
    raise AssertionError(problem)


def _contents(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(directory.iterdir())}


def test_a_full_file_is_set_aside_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "driver.log", 10, 2, _no_complaint)

    for line in ("first\n", "1234\n", "second\n", "third\n", "fourth\n"):
        file.write(line)

    assert _contents(tmp_path) == {"driver.log": "fourth\n", "driver.log.1": "third\n", "driver.log.2": "second\n"}


def test_with_no_old_files_a_full_file_begins_anew(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "driver.log", 10, 0, _no_complaint)

    file.write("first line\n")
    file.write("second line\n")

    assert _contents(tmp_path) == {"driver.log": "second line\n"}


def test_a_later_process_appends_and_sets_aside_what_it_finds_full(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "driver.log", 20, 2, _no_complaint).write("of the first\n")

    second = RotatingFile(tmp_path / "driver.log", 20, 2, _no_complaint)
    second.write("more\n")
    second.write("too much\n")

    assert _contents(tmp_path) == {"driver.log": "too much\n", "driver.log.1": "of the first\nmore\n"}


def test_two_processes_may_write_and_lose_no_line(tmp_path: Path) -> None:
    files = [RotatingFile(tmp_path / "slot-0.out", 100, 50, _no_complaint) for _ in range(2)]

    for number in range(100):
        files[number % 2].write(f"line {number}\n")

    lines = [line for text in _contents(tmp_path).values() for line in text.splitlines()]
    assert sorted(lines) == sorted(f"line {number}" for number in range(100))


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "driver.log", 100, 2, _no_complaint).write("a\n")

    assert stat.S_IMODE((tmp_path / "driver.log").stat().st_mode) == 0o600


def test_a_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "driver.log", 100, 2, _no_complaint)
    file.write("a\n")

    (tmp_path / "driver.log").unlink()
    file.write("b\n")

    assert _contents(tmp_path) == {"driver.log": "b\n"}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "driver.log").symlink_to(tmp_path / "precious")
    told: list[str] = []

    RotatingFile(tmp_path / "driver.log", 100, 2, told.append).write("a\n")

    assert (tmp_path / "precious").read_text() == "mine"
    assert len(told) == 1


def test_a_full_disk_is_told_once_and_stops_nothing() -> None:
    told: list[str] = []
    now = 0.0
    file = RotatingFile(Path("/dev/full"), 100, 2, told.append, lambda: now)

    for _ in range(3):
        file.write("a\n")
        now += RETRY_SECONDS

    assert told == ["/dev/full cannot be written, and lines are missing there: No space left on device"]


def test_it_goes_on_when_the_disk_does_and_counts_what_is_missing(tmp_path: Path) -> None:
    told: list[str] = []
    now = 0.0
    file = RotatingFile(tmp_path / "later" / "driver.log", 1000, 2, told.append, lambda: now)

    file.write("a\n")
    file.write("b\n")
    (tmp_path / "later").mkdir()
    file.write("c\n")
    now += RETRY_SECONDS
    file.write("d\n")

    assert (tmp_path / "later" / "driver.log").read_text() == (
        "(3 lines are missing here: they could not be written)\nd\n"
    )


def test_text_that_no_encoding_has_is_written_anyway(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "driver.log", 100, 2, _no_complaint).write("\udc80\n")

    assert (tmp_path / "driver.log").read_text() == "\\udc80\n"
