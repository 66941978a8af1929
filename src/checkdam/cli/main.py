"""The `checkdam` command."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

import checkdam
from checkdam.cli.error_messages import EXIT_CANCELLED, EXIT_USAGE, errors_as_json, say

_VERBS = {
    "cancel": "Cancel a job.",
    "check": "Check whether a job can start from a checkpoint, without running it.",
    "checkpoint": "Take a checkpoint of a running job now.",
    "completion": "Print the script that completes commands in a shell.",
    "config": "Show the settings of a job, and where each comes from.",
    "demo": "Watch a job survive kill -9, in about a minute.",
    "inspect": "Show the content of a checkpoint or savepoint.",
    "list": "List jobs, checkpoints, savepoints.",
    "rescale": "Change the parallelism of a running job.",
    "run": "Run a job file.",
    "savepoint": "Take a savepoint of a running job, or dispose of one.",
    "serve": "Show jobs that have ended, in a browser.",
    "state": "Read state: of a running job, or in checkpoints and savepoints.",
    "stop": "Stop a job with a savepoint.",
}


class _Verbs(click.Group):
    """Loads a command's module when it is called, so that --help and each command start fast."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, raise an error that suggests what may be meant."""
        is_unknown = bool(args) and args[0] not in _VERBS and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing:  # a shell that completes a line wants no error in its prompt
            near = difflib.get_close_matches(args[0], [*_VERBS], n=1)
            ctx.fail(f'there is no command "{args[0]}"{f", did you mean {near[0]}?" if near else ""}')
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _loaded(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(verb, help=text) for verb, text in _VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]


def _loaded(verb: str) -> click.Command | None:
    match verb:
        case "cancel":
            from checkdam.cli.cancel import cancel as command
        case "check":
            from checkdam.cli.check import check as command
        case "checkpoint":
            from checkdam.cli.checkpoint import checkpoint as command
        case "completion":
            from checkdam.cli.completion import completion as command
        case "config":
            from checkdam.cli.job_config import config as command
        case "demo":
            from checkdam.cli.demo.command import demo as command
        case "inspect":
            from checkdam.cli.inspect import inspect as command
        case "list":
            from checkdam.cli.list import list_jobs as command
        case "rescale":
            from checkdam.cli.rescale import rescale as command
        case "run":
            from checkdam.cli.run import run as command
        case "savepoint":
            from checkdam.cli.savepoint import savepoint as command
        case "serve":
            from checkdam.cli.serve import serve as command
        case "state":
            from checkdam.cli.state import state as command
        case "stop":
            from checkdam.cli.stop import stop as command
        case _:
            return None
    return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(checkdam.__version__, prog_name="checkdam", message="%(prog)s %(version)s")
def commands() -> None:
    """Flink's state and checkpoints for PySpark.

    A job is a Python program that builds a graph of operators and calls env.execute(). Its keyed state survives
    failures and restarts in checkpoints: <checkpoint directory>/<job id>/chk-<n>. A running job is served on a port
    (8081, or the next free one); commands that take a JOB find it by its id, the beginning of its id, or its name.
    """


def command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0, 1 failed, 2 wrong use, 130 cancelled."""
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    try:
        code = commands.main(arguments, prog_name="checkdam", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else _command_path(words)
        message = " ".join(error.format_message().split()).rstrip(".")
        if as_json:
            click.echo(errors_as_json(message))
        else:
            say(f'error: {message}{"" if message.endswith("?") else "."} See "{command} --help".')
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


def _command_path(words: Sequence[str]) -> str:
    """Return the command of an error that has no context: an option without its value."""
    return f"checkdam {words[0]}" if words and words[0] in _VERBS else "checkdam"


def main() -> None:
    sys.exit(command_line())
