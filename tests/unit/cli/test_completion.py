"""Completion of verbs, options and jobs, as shells ask for it."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest
from tests.unit.cli.conftest import Terminal

from checkdam.cli.main import command_line

JOB = "4fa1" + "0" * 28
OTHER = "beef" + "1" * 28


def _completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """What bash would offer for the last word of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_CHECKDAM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command_line([])
    monkeypatch.delenv("_CHECKDAM_COMPLETE")
    return [item for item in capsys.readouterr().out.splitlines() if item]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("checkdam che", ["plain,check", "plain,checkpoint"]),
        ("checkdam state d", ["plain,diff"]),
        ("checkdam rescale --par", ["plain,--parallelism"]),
        ("checkdam run --resume ", ["plain,latest", "plain,auto"]),
        ("checkdam completion z", ["plain,zsh"]),
        ("checkdam inspect ck", ["dir,ck"]),
        ("checkdam state ls ck", ["dir,ck"]),
        ("checkdam cancel -m nonsense w", []),
    ],
)
def test_verbs_options_and_choices_are_completed(
    line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _completed(monkeypatch, capsys, line) == offered


@pytest.mark.parametrize("line", ["checkdam lst ", "checkdam lst --al"])
def test_after_a_mistyped_verb_no_error_comes_into_the_prompt(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_CHECKDAM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", "2")

    with pytest.raises(SystemExit) as ended:
        command_line([])

    assert (ended.value.code, capsys.readouterr().err) == (0, "")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.cli.completion._PATIENCE", timedelta(seconds=30))  # on a busy machine


@pytest.mark.slow
def test_jobs_are_completed_by_name_and_id(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.job()
    terminal.job("two words", OTHER)

    def offered(line: str) -> list[str]:
        return _completed(monkeypatch, terminal.capsys, line)

    for verb in ("cancel", "stop", "savepoint", "rescale", "checkpoint", "state get", "config", "list --savepoints"):
        assert offered(f"checkdam {verb} wo") == ["plain,words"]
        assert offered(f"checkdam {verb} be") == [f"plain,{OTHER}"]
    assert set(offered("checkdam cancel ")) == {"plain,words", f"plain,{OTHER}"}  # its name is not one word
    assert offered(f"checkdam cancel -m {terminal.hosts[0].url} 4f") == [f"plain,{JOB}"]


@pytest.mark.slow
def test_a_job_that_ended_is_completed_only_where_it_can_be_asked_for(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.job()
    terminal.checkdam("cancel", "words")

    assert _completed(monkeypatch, terminal.capsys, "checkdam stop w") == []
    assert _completed(monkeypatch, terminal.capsys, "checkdam list --checkpoints w") == ["plain,words"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert f"_CHECKDAM_COMPLETE={shell}_complete" in script


def test_bash_accepts_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    subprocess.run(["bash", "-c", f"{script}\ncomplete -p checkdam"], check=True, capture_output=True)
