"""`checkdam cancel`: end a job without a savepoint."""

from __future__ import annotations

import click

from checkdam.cli.options import FORMAT_TYPE, JOB_IF_ANY, WAIT
from checkdam.cli.remote import Remote, RemoteJob, connection, wait_for_end, wait_for_process
from checkdam.cli.stop import job_and_directory
from checkdam.errors import RequestRefusedError
from checkdam.runtime.job_status import JobStatus


@click.command()
@JOB_IF_ANY
@click.option(
    "-s",
    "--withSavepoint",
    "--with-savepoint",
    "directory",
    metavar="[DIRECTORY]",
    is_flag=False,
    flag_value="",
    help='Take a savepoint first. "checkdam stop" is better: it also publishes all output.',
)
@FORMAT_TYPE
@WAIT
@connection
def cancel(remote: Remote, job: str | None, directory: str | None, format_type: str, *, wait: bool) -> None:
    """Cancel JOB. Its execution.checkpointing.externalized-checkpoint-retention decides which checkpoints stay.

    JOB is a job's id, the beginning of its id, or its name. The command returns when the job has ended.

    \b
      checkdam cancel 4fa1
      checkdam cancel "word count" -m localhost:8082
    """
    with_savepoint = directory is not None
    job, directory = job_and_directory(job, directory)
    found = remote.find(job)
    remote.print_text(f"Cancelling job {found.id}{' with savepoint' if with_savepoint else ''}.")
    process = remote.process_of(found)
    path = _savepoint_and_cancel(remote, found, directory, format_type) if with_savepoint else None
    if not with_savepoint:
        found.client.patch(found.path(), mode="cancel")
    status = wait_for_end(found)
    if status not in (None, JobStatus.CANCELED):
        raise RequestRefusedError(f"job {found.id} was not cancelled: it had already ended as {status}")
    if wait:
        wait_for_process(process)
    remote.print_text(f"Cancelled job {found.id}.{f' Savepoint stored in {path}.' if path else ''}")
    remote.print_json({"job": found.id, "status": JobStatus.CANCELED, **({"savepoint": path} if path else {})})


def _savepoint_and_cancel(remote: Remote, found: RemoteJob, directory: str | None, format_type: str) -> str:
    body = {"cancel-job": True, "formatType": format_type.upper()}
    trigger = remote.trigger_savepoint(found, "savepoints", body, directory=("target-directory", directory))
    return str(remote.follow(found, found.path("savepoints", trigger))["location"])
