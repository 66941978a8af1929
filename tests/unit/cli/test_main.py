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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lst", 'there is no command "lst", did you mean list? See "checkdam --help".'),
        ("xyz", 'there is no command "xyz". See "checkdam --help".'),
        ("--vers", "No such option '--vers'. Did you mean '--version'? See \"checkdam --help\"."),
        ("rescale x -p", "Option '-p' requires an argument. See \"checkdam rescale --help\"."),
        (
            "rescale x -p 0",
            "Invalid value for '-p' / '--parallelism': \"0\" is not a whole number of at least 1. "
            'See "checkdam rescale --help".',
        ),
        ("savepoint x --wait", "--wait needs --status: a savepoint is awaited unless --detached is given."),
        ("stop x --wait --detached", "--detached and --wait cannot be combined."),
        ("savepoint --status 1 x sp", "--status takes the id that --detached has printed, and at most a JOB."),
        ("savepoint --status ../x", '"../x" is not the id that --detached has printed: 32 hexadecimal digits.'),
        ("savepoint -d sp x", "-d takes the path of a savepoint, and nothing else can be given with it."),
    ],
)
def test_wrong_use_is_told_in_a_line_with_where_to_read_on(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(words.split()) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"error: {told}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_listed_command_is_there(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line([verb, "--help"]) == 0

    assert capsys.readouterr().out.startswith(f"Usage: checkdam {verb} ")
