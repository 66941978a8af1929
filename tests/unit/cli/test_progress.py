"""How far long work is, on a terminal and in a log."""

from __future__ import annotations

import pytest

from checkdam.cli.progress import Progress


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_a_log_gets_each_news_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(is_live=False) as progress:
        for what in ("savepoint 4: 0 of 2 slots", "savepoint 4: 0 of 2 slots", None, "savepoint 4: 1 of 2 slots"):
            progress.show(what)

    said = capsys.readouterr()
    assert said.err.splitlines() == ["savepoint 4: 0 of 2 slots", "savepoint 4: 1 of 2 slots"]
    assert said.out == ""


def test_a_terminal_gets_a_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    seconds = Seconds()
    with Progress(is_live=True, monotonic=seconds) as progress:
        seconds.pass_by(3)
        progress.show("savepoint 4: 1 of 2 slots")

    said = capsys.readouterr()
    assert "savepoint 4: 1 of 2 slots (3.0 s)" in said.err
    assert said.out == ""


def test_short_work_is_never_looked_at_and_long_work_twice_a_second() -> None:
    seconds = Seconds()
    progress = Progress(is_live=False, monotonic=seconds)

    asked = []
    for _ in range(20):
        asked.append(progress.is_due())
        seconds.pass_by(0.125)

    assert [number * 0.125 for number, is_due in enumerate(asked) if is_due] == [0.5, 1.0, 1.5, 2.0]


def test_pauses_grow_up_to_a_second() -> None:
    pauses: list[float] = []
    progress = Progress(is_live=False, pause=pauses.append)

    for _ in range(7):
        progress.rest()

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
