"""`checkdam rescale`: another parallelism for a running job."""

from __future__ import annotations

import click

from checkdam.cli.options import JOB, AtLeast
from checkdam.cli.remote import Remote, connection


@click.command()
@JOB
@click.option("-p", "--parallelism", type=AtLeast(1), metavar="N", required=True, help="The new parallelism.")
@connection
def rescale(remote: Remote, job: str, parallelism: int) -> None:
    """Continue JOB with another number of slots; no record is lost or processed twice.

    The job takes a checkpoint, distributes its state over the new slots and continues in the same process. It needs a
    checkpoint directory; its max parallelism is the limit. JOB is a job's id, the beginning of its id, or its name.

    \b
      checkdam rescale 4fa1 -p 4
    """
    found = remote.find(job)
    remote.print_text(f"Rescaling job {found.id} to parallelism {parallelism}.")
    trigger = found.client.patch(found.path("rescaling"), parallelism=parallelism)["request-id"]
    remote.follow(found, found.path("rescaling", trigger))
    remote.print_text(f"Job {found.id} runs with parallelism {parallelism}.")
    remote.print_json({"job": found.id, "parallelism": parallelism})
