"""The `checkdam` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import checkdam
from checkdam.cli.check import check
from checkdam.cli.demo.command import demo
from checkdam.cli.failures import EXIT_CANCELLED, EXIT_USAGE, say
from checkdam.cli.inspect import inspect
from checkdam.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(checkdam.__version__, prog_name="checkdam", message="%(prog)s %(version)s")
def commands() -> None:
    """Flink's state and checkpoints for PySpark.

    A job is a Python program that builds a graph of operators and calls env.execute(). Its keyed state survives
    failures and restarts in checkpoints: <checkpoint directory>/<job id>/chk-<n>.
    """


commands.add_command(run)
commands.add_command(inspect)
commands.add_command(check)
commands.add_command(demo)


def command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0, 1 failed, 2 wrong use, 130 cancelled."""
    try:
        code = commands.main(arguments, prog_name="checkdam", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "checkdam"
        message = " ".join(error.format_message().split()).rstrip(".")
        say(f'error: {message}. "{command} --help" tells more.')
        return EXIT_USAGE
    except click.ClickException as error:
        say(f"error: {error.format_message()}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_CANCELLED
    return code if isinstance(code, int) else 0


def main() -> None:
    sys.exit(command_line())
