"""`checkdam list`: lists jobs, and the checkpoints and savepoints they can start from."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from checkdam.cli import number_format
from checkdam.cli.completion import complete_jobs
from checkdam.cli.health_words import health_words
from checkdam.cli.listed_jobs import ListedJob, ListedSnapshot, found_savepoints, known_jobs
from checkdam.cli.remote import Remote, connection
from checkdam.clock import from_milliseconds
from checkdam.errors import RequestRefusedError
from checkdam.runtime.job_status import JobStatus

_SCHEDULED = frozenset({JobStatus.INITIALIZING, JobStatus.CREATED})
_GAP = "  "
_EVERY_JOB = ""  # the option is given without a job


@click.command("list")
@click.option("-r", "--running", is_flag=True, help="Only jobs that run or restart.")
@click.option("-s", "--scheduled", is_flag=True, help="Only jobs that are about to run.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs that have ended.")
@click.option(
    "--checkpoints",
    "checkpoints_of",
    metavar="[JOB]",
    is_flag=False,
    flag_value=_EVERY_JOB,
    shell_complete=complete_jobs,
    help="List the retained checkpoints of one job, or of all.",
)
@click.option(
    "--savepoints",
    "savepoints_of",
    metavar="[JOB]",
    is_flag=False,
    flag_value=_EVERY_JOB,
    shell_complete=complete_jobs,
    help="List the known savepoints of one job, or of all.",
)
@click.option(
    "--dir", "directory", metavar="DIRECTORY", help="Read this checkpoint directory instead of asking a server."
)
@connection
def list_jobs(
    remote: Remote,
    checkpoints_of: str | None,
    savepoints_of: str | None,
    directory: str | None,
    *,
    running: bool,
    scheduled: bool,
    everything: bool,
) -> None:
    """List the jobs that run on this machine, or the jobs of the server that -m names.

    With -a, --checkpoints or --savepoints, jobs that do not run are listed as well. They are found in the checkpoint
    directories of running jobs, in state.checkpoints.dir of the settings file, or in the directory of --dir.

    \b
      checkdam list
      checkdam list -a --dir data/checkpoints
      checkdam list --checkpoints "word count"
      checkdam list --savepoints --json
    """
    if checkpoints_of is not None and savepoints_of is not None:
        raise click.UsageError("--checkpoints and --savepoints cannot be combined.")
    jobs = sorted(known_jobs(remote, directory), key=lambda job: job.overview["start-time"])
    if checkpoints_of is not None:
        chosen = _chosen(jobs, checkpoints_of)
        _print_snapshots(remote, "checkpoint", [each for job in chosen for each in job.checkpoints()])
    elif savepoints_of is not None:
        _print_snapshots(remote, "savepoint", _savepoints(remote, jobs, savepoints_of, directory))
    else:
        active = not (running or scheduled)
        everything = everything or (active and directory is not None)  # most jobs in a directory have ended
        _print_jobs(
            remote,
            [job for job in jobs if _is_wanted(job, running or active, scheduled or active, everything)],
            "running" if not scheduled else "scheduled",
            everything=everything,
        )


def _is_wanted(job: ListedJob, running: bool, scheduled: bool, everything: bool) -> bool:  # noqa: FBT001  the flags
    status = JobStatus(job.overview["state"])
    if status in _SCHEDULED:
        return scheduled or everything
    if status.has_ended:
        return everything
    return running or everything


def _chosen(jobs: Sequence[ListedJob], wanted: str) -> Sequence[ListedJob]:
    """Return all jobs with this id, name or prefix of an id; several jobs may have one name."""
    if wanted == _EVERY_JOB:
        return jobs
    for fits in (
        [job for job in jobs if wanted in (job.overview["jid"], job.overview["name"])],
        [job for job in jobs if job.overview["jid"].startswith(wanted.lower())],
    ):
        if fits:
            return fits
    raise RequestRefusedError(f'there is no job "{wanted}"', hint='"checkdam list -a" lists all jobs.')


def _savepoints(remote: Remote, jobs: Sequence[ListedJob], wanted: str, directory: str | None) -> list[ListedSnapshot]:
    """Return the savepoints that jobs remember and those in the savepoint directory, each once."""
    found = found_savepoints(remote, directory)
    if wanted != _EVERY_JOB:
        found = [each for each in found if wanted == each.name or each.job.startswith(wanted.lower())]
        jobs = _chosen(jobs, wanted) if not found or _fits_any(jobs, wanted) else []
    remembered = [each for job in jobs for each in job.savepoints() if each.exists]
    by_path = {_bare(each.path): each for each in (*remembered, *found)}
    return sorted(by_path.values(), key=lambda each: each.completed)


def _fits_any(jobs: Iterable[ListedJob], wanted: str) -> bool:
    return any(wanted == job.overview["name"] or job.overview["jid"].startswith(wanted.lower()) for job in jobs)


def _bare(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:").rstrip("/")


def _print_jobs(remote: Remote, jobs: Sequence[ListedJob], kind: str, *, everything: bool) -> None:
    remote.print_json({"jobs": [{**job.overview, "where": job.where} for job in jobs]})
    if not jobs:
        remote.print_text("No jobs." if everything else f"No {kind} jobs.")
    elif not remote.as_json:
        rows = [_job_row(job.overview, job.where) for job in jobs]
        _show(("job", "name", "status", "started", "duration", "checkpoint", "health", "where"), rows)


def _job_row(overview: dict[str, Any], where: str) -> Sequence[str]:
    last = overview.get("last-checkpoint")
    status = JobStatus(overview["state"])
    known = status is not JobStatus.SUSPENDED  # it is unknown when a killed driver ended
    return (
        overview["jid"],
        overview["name"],
        status,
        _instant(overview["start-time"]),
        number_format.duration(overview["duration"] / 1000) if known else "-",
        f"{last['id']} ({number_format.size(last['state_size'])})" if last else "-",
        health_words(overview),
        where,
    )


def _print_snapshots(remote: Remote, kind: str, snapshots: Sequence[ListedSnapshot]) -> None:
    remote.print_json({f"{kind}s": snapshots})
    if not snapshots:
        remote.print_text(f"No {kind}s.")
    elif not remote.as_json:
        rows = [_snapshot_row(each) for each in snapshots]
        _show(("job", "name", kind, "epoch", "completed", "size", "path"), rows)


def _snapshot_row(each: ListedSnapshot) -> Sequence[str]:
    kind = f" ({each.format.lower()})" if each.format else ""
    return (
        each.job or "-",
        each.name or "-",
        f"{each.id}{kind}" if each.damage is None else "damaged",
        "-" if each.epoch is None else str(each.epoch),
        _instant(each.completed),
        number_format.size(each.size) if each.damage is None else "-",
        each.path,
    )


def _instant(milliseconds: int) -> str:
    return number_format.instant(from_milliseconds(milliseconds)) if milliseconds > 0 else "-"


def _show(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line, is_head in lines_of(names, rows, width):
        click.echo(click.style(line, bold=True) if is_head else line)


def lines_of(names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[tuple[str, bool]]:
    """Yield columns, and whether a line is their head. Nothing is cut or folded: ids and paths are there to be copied.

    On a terminal that is too narrow for the columns each row becomes a list of its cells.
    """
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        margin = max(map(len, names))
        for number, row in enumerate(rows):
            if number:
                yield "", False
            yield from ((f"{name.ljust(margin)}{_GAP}{cell}", False) for name, cell in zip(names, row, strict=True))
        return
    for number, row in enumerate((names, *rows)):
        yield _GAP.join(cell.ljust(fill) for cell, fill in zip(row, widths, strict=True)).rstrip(), number == 0
