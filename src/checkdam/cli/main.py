"""The `checkdam` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import checkdam
from checkdam.cli.cancel import cancel
from checkdam.cli.check import check
from checkdam.cli.checkpoint import checkpoint
from checkdam.cli.demo.command import demo
from checkdam.cli.error_messages import EXIT_CANCELLED, EXIT_USAGE, errors_as_json, say
from checkdam.cli.inspect import inspect
from checkdam.cli.list import list_command
from checkdam.cli.rescale import rescale
from checkdam.cli.run import run
from checkdam.cli.savepoint import savepoint
from checkdam.cli.serve import serve
from checkdam.cli.state import state
from checkdam.cli.stop import stop


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(checkdam.__version__, prog_name="checkdam", message="%(prog)s %(version)s")
def commands() -> None:
    """Flink's state and checkpoints for PySpark.

    A job is a Python program that builds a graph of operators and calls env.execute(). Its keyed state survives
    failures and restarts in checkpoints: <checkpoint directory>/<job id>/chk-<n>. A job that runs is served on a port
    (8081, or the next free one): commands that take a JOB find it by id, the beginning of an id, or name.
    """


for command in (run, list_command, checkpoint, savepoint, stop, cancel, rescale, serve, state, inspect, check, demo):
    commands.add_command(command)


def command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0, 1 failed, 2 wrong use, 130 cancelled."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = commands.main(arguments, prog_name="checkdam", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "checkdam"
        message = " ".join(error.format_message().split()).rstrip(".")
        if as_json:
            click.echo(errors_as_json(message))
        else:
            say(f'error: {message}. "{command} --help" tells more.')
        return EXIT_USAGE
    except click.ClickException as error:
        if as_json:
            click.echo(errors_as_json(error.format_message()))
        else:
            say(f"error: {error.format_message()}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_CANCELLED
    return code if isinstance(code, int) else 0


def main() -> None:
    sys.exit(command_line())
