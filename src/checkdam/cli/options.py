"""Options that several commands have, and the settings they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from checkdam.api.launch import DEFAULT_FILE
from checkdam.cli.completion import complete_directories, complete_jobs
from checkdam.config import Configuration, parse_override


class AtLeast(click.IntRange):
    """A whole number from `minimum` up, with an error that says so."""

    def __init__(self, minimum: int) -> None:
        super().__init__(min=minimum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f'"{value}" is not a whole number of at least {self.min}', param, ctx)


JOB = click.argument("job", shell_complete=complete_jobs)
JOB_IF_ANY = click.argument("job", required=False, shell_complete=complete_jobs)
SNAPSHOT = click.argument("path", shell_complete=complete_directories)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show whole stack traces.")
FULL = click.option(
    "--full", is_flag=True, help="Read every state file, however large: exact counts, verified checksums."
)
SETTINGS = click.option(
    "-D", "settings", metavar="KEY=VALUE", multiple=True, help="A setting, with Flink's key; repeatable."
)
CONFIG_FILE = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Settings file, also one of Flink (flink-conf.yaml, config.yaml) or the directory of one. "
    f"Default: ./{DEFAULT_FILE}.",
)
SOURCE_POSITION = click.option(
    "--source-position",
    "source_positions",
    metavar="UID=POSITION",
    multiple=True,
    help="For a source whose input has changed since the checkpoint: earliest reads the new input from its beginning,"
    " restored continues at the position of the checkpoint; repeatable.",
)
FORMAT_TYPE = click.option(
    "-type",
    "--type",
    "format_type",
    type=click.Choice(["canonical", "native"], case_sensitive=False),
    default="canonical",
    help="canonical (default): any state backend can restore it; native: the files of the job's own backend.",
)
DETACHED = click.option(
    "-detached",
    "--detached",
    is_flag=True,
    help='Do not wait; print the id with which "checkdam savepoint --status" tells the result.',
)
WAIT = click.option(
    "--wait", is_flag=True, help="Wait until the job's process has ended as well: then it can be started again at once."
)


def load_configuration(
    settings: Sequence[str], file: Path | None, overrides: Mapping[str, str | None] | None = None
) -> Configuration:
    """Load the settings file with the settings of -D, and of the options in `overrides` that were given, over it.

    Raises:
        ConfigError: a setting is unknown or has an invalid value.
    """
    given = dict(map(parse_override, settings))
    given |= {key: value for key, value in (overrides or {}).items() if value is not None}
    return Configuration.load(file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None), given)
