"""`checkdam savepoint`: takes a savepoint of a running job, or disposes of one."""

from __future__ import annotations

import click

from checkdam.checkpoint.savepoints import dispose
from checkdam.cli.options import DETACHED, FORMAT_TYPE
from checkdam.cli.remote import Remote, absolute, connection
from checkdam.client.rest_client import RestClient


@click.command()
@click.argument("job", required=False)
@click.argument("directory", required=False)
@FORMAT_TYPE
@DETACHED
@click.option("-d", "--dispose", "disposed", metavar="PATH", help="Delete the savepoint in PATH. Needs no running job.")
@connection
def savepoint(
    remote: Remote,
    job: str | None,
    directory: str | None,
    format_type: str,
    disposed: str | None,
    *,
    detached: bool,
) -> None:
    """Write a self-contained copy of the state of JOB below DIRECTORY. The job continues.

    JOB is a job's id, the beginning of its id, or its name. DIRECTORY may be left out if the job sets
    execution.checkpointing.savepoint-dir. A savepoint can be moved or copied, restores with "checkdam run -s", and
    stays until it is disposed of.

    \b
      checkdam savepoint 4fa1 data/savepoints
      checkdam savepoint "word count" s3://bucket/savepoints -type native
      checkdam savepoint -d data/savepoints/savepoint-4fa1c0-9b2d61a7f003
    """
    if disposed is not None:
        if job is not None:
            raise click.UsageError("-d takes the path of a savepoint; JOB cannot be given with it.")
        _dispose(remote, disposed)
        return
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
        remote.print_json({"job": found.id, "request-id": trigger})
        return
    path = remote.follow(found, found.path("savepoints", trigger))["location"]
    remote.print_text(f"Savepoint completed. Path: {path}")
    remote.print_text(f"Resume with: checkdam run -s {path} …")
    remote.print_json({"job": found.id, "savepoint": path})


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
