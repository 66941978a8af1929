"""`checkdam stop`: ends a job with a savepoint, from which it can resume later."""

from __future__ import annotations

import click

from checkdam.cli.options import DETACHED, FORMAT_TYPE, JOB_IF_ANY, WAIT
from checkdam.cli.remote import Remote, absolute, connection, wait_for_end, wait_for_process


@click.command()
@JOB_IF_ANY
@click.option(
    "-p",
    "--savepointPath",
    "--savepoint-path",
    "directory",
    metavar="[DIRECTORY]",
    is_flag=False,
    flag_value="",
    help="Directory for the savepoint. Default: execution.checkpointing.savepoint-dir of the job.",
)
@click.option(
    "-d",
    "--drain",
    is_flag=True,
    help="End event time first, so that all timers fire; only for a job that ends for good.",
)
@FORMAT_TYPE
@DETACHED
@WAIT
@connection
def stop(
    remote: Remote, job: str | None, directory: str | None, format_type: str, *, drain: bool, detached: bool, wait: bool
) -> None:
    """Stop JOB: read no more records, write a savepoint, publish all output, and end.

    JOB is a job's id, the beginning of its id, or its name. If the savepoint cannot be written, the job continues.
    The command returns when the job has ended.

    \b
      checkdam stop 4fa1 -p data/savepoints
      checkdam stop "word count" --drain
    """
    if detached and wait:
        raise click.UsageError("--detached and --wait cannot be combined.")
    job, directory = job_and_directory(job, directory)
    found = remote.find(job)
    remote.print_text(
        f'{"Draining" if drain else "Suspending"} job "{found.id}" with a {format_type.upper()} savepoint.'
    )
    process = remote.process_of(found)
    body = {"drain": drain, "formatType": format_type.upper()}
    trigger = remote.trigger_savepoint(found, "stop", body, directory=("targetDirectory", directory))
    if detached:
        remote.print_text(f"Successfully triggered stop-with-savepoint, triggerId: {trigger}")
        remote.print_text(f"Ask for its result with: {remote.status_command(trigger)}")
        remote.print_json({"job": found.id, "request-id": trigger})
        return
    path = remote.follow(found, found.path("savepoints", trigger))["location"]
    remote.print_text(f"Savepoint completed. Path: {path}")
    status = wait_for_end(found)
    if wait:
        wait_for_process(process)
    remote.print_json({"job": found.id, "savepoint": path, "status": status})


def job_and_directory(job: str | None, directory: str | None) -> tuple[str, str | None]:
    """Resolve an option whose value may be left out, and which has then consumed the job's argument."""
    if job is None and directory:
        job, directory = directory, None
    if job is None:
        raise click.UsageError("Missing argument 'JOB'.")
    return job, absolute(directory) if directory else None
