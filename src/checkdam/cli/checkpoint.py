"""`checkdam checkpoint`: takes a checkpoint now."""

from __future__ import annotations

import click

from checkdam.cli.options import JOB
from checkdam.cli.remote import Remote, connection


@click.command()
@JOB
@click.option("-full", "--full", is_flag=True, help="Write the whole state; refer to no file of an earlier checkpoint.")
@connection
def checkpoint(remote: Remote, job: str, *, full: bool) -> None:
    """Take a checkpoint of JOB now and wait for it. The job and its periodic checkpoints continue.

    JOB is a job's id, the beginning of its id, or its name.

    \b
      checkdam checkpoint 4fa1
      checkdam checkpoint "word count" -full
    """
    found = remote.find(job)
    remote.print_text(f"Triggering checkpoint for job {found.id}.")
    body = {"checkpointType": "FULL" if full else "CONFIGURED"}
    trigger = found.client.trigger(found.path("checkpoints"), body)
    number = remote.follow(found, found.path("checkpoints", trigger))["checkpointId"]
    path = found.client.get(found.path("checkpoints", "details", str(number))).get("external_path")
    kind = "Checkpoint(FULL)" if full else "Checkpoint"
    remote.print_text(f"{kind} {number} for job {found.id} completed. Path: {path}")
    remote.print_json({"job": found.id, "checkpoint": number, "path": path})
