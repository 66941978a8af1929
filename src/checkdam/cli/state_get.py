"""`checkdam state get`: what a key of a running job holds."""

from __future__ import annotations

import json
from typing import Any

import click

from checkdam.cli.remote import Remote, connection
from checkdam.client.rest_client import segment


@click.command("get", short_help="Ask a running job what a key holds.")
@click.argument("job")
@click.argument("uid")
@click.argument("name")
@click.argument("key")
@click.option("--map-key", metavar="KEY", help="Of a map, only this entry.")
@connection
def get(remote: Remote, job: str, uid: str, name: str, key: str, map_key: str | None) -> None:
    """Tell what KEY holds in state NAME of operator UID, as of the last whole epoch of the running JOB.

    JOB is an id, the beginning of one, or a job's name. KEY is JSON; where keys are text, a bare word will do. A key
    that holds nothing is no error. Sums, minima, maxima and reductions keep their state under the name _op_state.

    \b
      checkdam state get 4fa1 count _op_state word
      checkdam state get "word count" visits by-day '["Main Street", 5]' --map-key 2024-05-01 --json
    """
    found = remote.find(job)
    query = {"key": key} if map_key is None else {"key": key, "map-key": map_key}
    answer = found.client.get(found.path("state", segment(uid), segment(name)), **query)
    remote.answer(answer)
    remote.tell(_told(answer))


def _told(answer: dict[str, Any]) -> str:
    where = f"epoch {answer['epoch']}, key group {answer['key-group']}, slot {answer['subtask']}"
    if not answer["found"]:
        return f"nothing  ({where})"
    return f"{json.dumps(answer['value'], ensure_ascii=False)}  ({where})"
