"""The commands by name."""

from __future__ import annotations

import click
import pytest

from checkdam.cli.main import command_line, commands

VERBS = commands.list_commands(click.Context(commands))


def test_help_lists_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["--help"]) == 0

    _, _, listed = capsys.readouterr().out.partition("Commands:\n")
    assert [line.split()[0] for line in listed.splitlines() if not line.startswith("   ")] == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_listed_command_is_there(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line([verb, "--help"]) == 0

    assert capsys.readouterr().out.startswith(f"Usage: checkdam {verb} ")
