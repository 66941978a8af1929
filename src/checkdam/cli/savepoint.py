"""`checkdam savepoint`: takes a savepoint of a running job, tells how far one is, or disposes of one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from checkdam.checkpoint.savepoints import dispose
from checkdam.cli.completion import complete_directories
from checkdam.cli.options import DETACHED, FORMAT_TYPE, JOB_IF_ANY
from checkdam.cli.remote import Remote, RemoteJob, absolute, connection
from checkdam.client.rest_client import RestClient, result_of
from checkdam.config import REST_ASYNC_STORE_DURATION
from checkdam.errors import CheckdamError, RequestRefusedError, ServerUnreachableError

_ID = re.compile("[0-9a-fA-F]{32}")
_IN_PROGRESS = "IN_PROGRESS"
_NOT_FOUND = 404
_BUSY = 503


@click.command()
@JOB_IF_ANY
@click.argument("directory", required=False, shell_complete=complete_directories)
@FORMAT_TYPE
@DETACHED
@click.option(
    "--status", "asked", metavar="ID", help="Tell the result of the savepoint or stop that --detached has started."
)
@click.option("--wait", is_flag=True, help="With --status: wait for the result.")
@click.option("-d", "--dispose", "disposed", metavar="PATH", help="Delete the savepoint in PATH. Needs no running job.")
@connection
def savepoint(
    remote: Remote,
    job: str | None,
    directory: str | None,
    format_type: str,
    asked: str | None,
    disposed: str | None,
    *,
    detached: bool,
    wait: bool,
) -> None:
    """Write a self-contained copy of the state of JOB below DIRECTORY. The job continues.

    JOB is a job's id, the beginning of its id, or its name. DIRECTORY may be left out if the job sets
    execution.checkpointing.savepoint-dir. A savepoint can be moved or copied, restores with "checkdam run -s", and
    stays until it is disposed of.

    \b
      checkdam savepoint 4fa1 data/savepoints
      checkdam savepoint "word count" s3://bucket/savepoints -type native
      checkdam savepoint --status 5f0c8f0f8e4b4a39a5b8d9c0f7b3e1aa --wait
      checkdam savepoint -d data/savepoints/savepoint-4fa1c0-9b2d61a7f003
    """
    if disposed is not None:
        if job is not None or asked is not None:
            raise click.UsageError("-d takes the path of a savepoint, and nothing else can be given with it.")
        _dispose(remote, disposed)
        return
    if asked is not None:
        if directory is not None or detached:
            raise click.UsageError("--status takes the id that --detached has printed, and at most a JOB.")
        if _ID.fullmatch(asked) is None:
            raise click.UsageError(f'"{asked}" is not the id that --detached has printed: 32 hexadecimal digits.')
        _tell_status(remote, asked, job, wait=wait)
        return
    if wait:
        raise click.UsageError("--wait needs --status: a savepoint is awaited unless --detached is given.")
    if job is None:
        raise click.UsageError("Missing argument 'JOB'.")
    found = remote.find(job)
    how = "in detached mode " if detached else ""
    remote.print_text(f"Triggering savepoint {how}for job {found.id}.")
    target = ("target-directory", absolute(directory) if directory else None)
    body = {"formatType": format_type.upper()}
    trigger = remote.trigger_savepoint(found, "savepoints", body, directory=target)
    if detached:
        remote.print_text(f"Successfully triggered the savepoint, triggerId: {trigger}")
        remote.print_text(f"Ask for its result with: {remote.status_command(trigger)}")
        remote.print_json({"job": found.id, "request-id": trigger})
        return
    path = remote.follow(found, found.path("savepoints", trigger))["location"]
    remote.print_text(f"Savepoint completed. Path: {path}")
    remote.print_text(f"Resume with: checkdam run -s {path} …")
    remote.print_json({"job": found.id, "savepoint": path})


def _tell_status(remote: Remote, trigger: str, job: str | None, *, wait: bool) -> None:
    """Print the state of an operation; raise RequestRefusedError if it has failed, or if no job knows it."""
    found, answer = _job_that_knows(remote, trigger, job)
    is_in_progress = answer["status"]["id"] == _IN_PROGRESS
    if is_in_progress and not wait:
        remote.print_text(f"Savepoint of job {found.id} is in progress.")
        remote.print_json({"job": found.id, "request-id": trigger, "status": _IN_PROGRESS})
        return
    # A result is asked for once: after a stop, the driver ends as soon as it has been fetched.
    result = remote.follow(found, found.path("savepoints", trigger)) if is_in_progress else result_of(answer)
    path = result["location"]
    remote.print_text(f"Savepoint completed. Path: {path}")
    remote.print_json({"job": found.id, "request-id": trigger, "status": "COMPLETED", "savepoint": path})


def _job_that_knows(remote: Remote, trigger: str, job: str | None) -> tuple[RemoteJob, Mapping[str, Any]]:
    """Return the job that knows the operation, and what it answers.

    A job that does not answer is passed over; its error is raised if no other job knows the operation.
    """
    silent: list[CheckdamError] = []
    for each in _served(remote) if job is None else [remote.find(job)]:
        try:
            return each, each.client.get(each.path("savepoints", trigger))
        except ServerUnreachableError as error:
            silent.append(error)
        except RequestRefusedError as error:
            if error.status not in (_NOT_FOUND, _BUSY):
                raise
            if error.status == _BUSY:
                silent.append(error)
    if silent:
        raise silent[0]
    raise RequestRefusedError(
        f'no job that is served knows a savepoint with the id "{trigger}"',
        hint=f"A result is kept for {REST_ASYNC_STORE_DURATION.key} (5 min), and no longer than the job's process. "
        '"checkdam list --savepoints" lists the savepoints that were written.',
    )


def _served(remote: Remote) -> Sequence[RemoteJob]:
    """Return the jobs that are served; none if no server runs on this machine."""
    try:
        return remote.jobs()
    except ServerUnreachableError:
        if remote.address is not None:
            raise
        return []


def _dispose(remote: Remote, path: str) -> None:
    """Dispose on the server that -m names, where the path may mean another place; else from here."""
    remote.print_text(f"Disposing savepoint '{path}'.")
    if remote.address is None:
        dispose(path)
    else:
        client, _ = remote.clients()[0]
        _dispose_on(client, path)
    remote.print_text(f"Savepoint '{path}' disposed.")
    remote.print_json({"disposed": path})


def _dispose_on(client: RestClient, path: str) -> None:
    answer = client.post("/savepoint-disposal", {"savepoint-path": path})
    client.wait(f"/savepoint-disposal/{answer['request-id']}")
