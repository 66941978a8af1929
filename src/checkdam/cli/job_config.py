"""`checkdam config`: shows settings, and whether code, the command line, a file or the default has set each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from checkdam.cli.options import JOB_IF_ANY
from checkdam.cli.remote import Remote, connection
from checkdam.cli.tables import WordTable, console_for_output, print_whole
from checkdam.config import Configuration, Origin
from checkdam.runtime.monitor.job_description import option_records


@click.command()
@JOB_IF_ANY
@click.option("-a", "--all", "everything", is_flag=True, help="Also the settings that have their default.")
@connection
def config(remote: Remote, job: str | None, *, everything: bool) -> None:
    """Show the settings of JOB with their effective values, and where each comes from.

    A setting comes from code (the program has set it), the command line, a file, the checkpoint that the job was
    restored from, a rescaling, or is the default. Values that look like secrets are masked. Without JOB, the settings
    are those that "checkdam run" would find here: in the settings file, and in -D.

    \b
      checkdam config 4fa1
      checkdam config "word count" --all
      checkdam config --config flink-conf.yaml
    """
    settings = _of_job(remote, job) if job is not None else _found_here(remote.configuration)
    shown = [each for each in settings if everything or each["origin"] != Origin.DEFAULT.value]
    remote.print_json({"settings": shown})
    if remote.as_json:
        return
    if not shown:
        remote.print_text("No setting is given: all have their defaults, which --all shows.")
        return
    table = WordTable("setting", "value", "from")
    for each in shown:
        table.add(each["key"], "(unset)" if each["value"] is None else each["value"], each["origin"])
    print_whole(console_for_output(), table)


def _of_job(remote: Remote, job: str) -> Sequence[dict[str, Any]]:
    found = remote.find(job)
    settings: Sequence[dict[str, Any]] = found.client.get(found.path("config"))["execution-config"]["options"]
    return settings


def _found_here(configuration: Configuration) -> Sequence[dict[str, Any]]:
    settings: Sequence[dict[str, Any]] = msgspec.to_builtins(option_records(configuration))
    return settings
