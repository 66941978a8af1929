"""`checkdam check`: shows whether a job can start from a checkpoint and what happens to each state; runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NoReturn

import click
from rich.console import RenderableType
from rich.text import Text

from checkdam.api.launch import JobToExamine, Launch
from checkdam.cli.error_messages import EXIT_FAILED, errors_printed, say
from checkdam.cli.job_file import run_printing_errors
from checkdam.cli.options import AS_JSON, CONFIG_FILE, SETTINGS, SOURCE_POSITION, VERBOSE, load_configuration
from checkdam.cli.tables import Words, WordTable, console_for_output, print_json, print_whole
from checkdam.config import DEFAULT_PARALLELISM, IGNORE_UNCLAIMED_STATE, MAX_PARALLELISM
from checkdam.errors import JobFileError
from checkdam.graph.levels import JobPlan, plan_job
from checkdam.runtime.driver.restore import Restored, from_path, keep_max_parallelism, max_parallelism_for
from checkdam.runtime.driver.restore_check import Fate, StateReport, check_restore, is_refused
from checkdam.runtime.monitor.job_events import told_without_effect
from checkdam.runtime.source_position import SourceChoices, parse_source_start

_COLOURS = {
    Fate.AS_IS: "green",
    Fate.MIGRATES: "cyan",
    Fate.NEW: "blue",
    Fate.CARRIED: "yellow",
    Fate.DROPPED: "yellow",
}


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-s", "--from-savepoint", "path", metavar="PATH", required=True, help="The checkpoint or savepoint (…/chk-4)."
)
@click.option("-p", "--parallelism", metavar="N", help="Parallelism with which the job will run.")
@SETTINGS
@CONFIG_FILE
@click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="Allow dropping state of operators the job no longer has."
)
@SOURCE_POSITION
@AS_JSON
@VERBOSE
@click.pass_context
def check(
    ctx: click.Context,
    job: Path,
    arguments: tuple[str, ...],
    path: str,
    parallelism: str | None,
    settings: tuple[str, ...],
    file: Path | None,
    source_positions: tuple[str, ...],
    *,
    allow_non_restored_state: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Show what happens to each state and source if the program JOB starts from the checkpoint in PATH.

    The program runs until env.execute(), which ends it. Functions that may keep state are initialized, opened and
    closed once, to learn which states they ask for; no record is read or written. Spark starts only if the program
    needs it to build the job, for instance for the schema of a DataFrame. Every state file that the job would restore
    is read, to verify its checksum: with large state this takes a while.

    \b
      restored as is   the state is used as it was written
      migrates         its type has changed, and its values are converted
      new              the checkpoint does not have it: it starts empty, a source at its start
      carried along    the function does not ask for it in open(): it is kept, and restored if it asks later
      dropped          the job has no operator with this uid
      incompatible     the job would not start

    Exit code 0 if the job would start, 1 if it would not.

    \b
      checkdam check job.py -s data/checkpoints/<job>/chk-4
    """
    with errors_printed(verbose=verbose):
        launch = Launch(load_configuration(settings, file, {DEFAULT_PARALLELISM.key: parallelism}))
        starts = dict(map(parse_source_start, source_positions))
        restored = from_path(path)
        built = _build(job, arguments, launch, verbose=verbose)
        if built is None:
            ctx.exit(EXIT_FAILED)
        for reason, keys in built.configuration.without_effect().items():
            say(f"note: {told_without_effect(keys, reason)}")
        plan = _plan(built, restored)
        may_drop = allow_non_restored_state or built.configuration.get(IGNORE_UNCLAIMED_STATE)
        choices = SourceChoices(starts, may_drop, restored.checkpoint.checkpoint_id)
        reports = check_restore(plan, restored, choices)
    if as_json:
        view = {
            "checkpoint": restored.path,
            "job": built.name,
            "would_start": not is_refused(reports),
            "states": reports,
        }
        print_json(view)
    else:
        show(reports)
    ctx.exit(EXIT_FAILED if is_refused(reports) else 0)


class _Built(BaseException):
    """Ends the user's program once the job is built; a BaseException, so that no `except Exception` catches it."""

    def __init__(self, job: JobToExamine) -> None:
        super().__init__()
        self.job = job


def _stop(job: JobToExamine) -> NoReturn:
    raise _Built(job)


def _build(job: Path, arguments: Sequence[str], launch: Launch, *, verbose: bool) -> JobToExamine | None:
    """Return the job that the program builds; None if the program raised an error, which is printed."""
    launch.examine = _stop
    try:
        if not run_printing_errors(job, arguments, launch, verbose=verbose):
            return None
    except _Built as built:
        return built.job
    raise JobFileError(f'job file "{job}" does not call env.execute()', hint="Call it at the end.")


def _plan(job: JobToExamine, restored: Restored) -> JobPlan:
    """Return the job as it would be restored; checks the graph as a run does."""
    parallelism = job.configuration.get(DEFAULT_PARALLELISM) or 1
    asked = job.configuration.get(MAX_PARALLELISM) if job.configuration.is_set(MAX_PARALLELISM) else None
    groups = max_parallelism_for(restored, asked, parallelism)
    operators = keep_max_parallelism(job.operators, restored, asked, parallelism)
    return plan_job(job.name, operators, parallelism=parallelism, max_parallelism=groups)


def show(reports: Sequence[StateReport]) -> None:
    """Print tables on a terminal; elsewhere a line for each state."""
    if sys.stdout.isatty():
        print_whole(console_for_output(), *_operators(reports))
    else:
        for report in reports:
            fields = (report.uid, report.state or "-", report.kind, report.fate.value, report.reason)
            click.echo("\t".join(fields).rstrip())
    refused = sum(report.is_refused for report in reports)
    if not reports:
        click.echo("neither the job nor the checkpoint has state")
    elif refused:
        click.echo(f"the job would not start: {refused} of {len(reports)} states cannot be restored")


def _operators(reports: Sequence[StateReport]) -> Iterator[RenderableType]:
    """Return a line for each operator, and below it a table of its states."""
    for uid, of_operator in groupby(reports, key=lambda report: report.uid):
        states = list(of_operator)
        yield Words(states[0].operator, name=uid)
        table = WordTable("state", "kind", "on restore", "why", whole={"on restore"}, indent=2)
        for report in states:
            colour = "red" if report.is_refused else _COLOURS.get(report.fate, "red")
            table.add(report.state, report.kind, Text(report.fate.value, style=colour), report.reason)
        yield table
        yield Text()
