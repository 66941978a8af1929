"""Lists live state of a running job for `checkdam state get` without a key: entries of a state, or timers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from checkdam.cli import number_format
from checkdam.cli.remote import RemoteJob
from checkdam.cli.state_tables import window_text
from checkdam.client.rest_client import segment
from checkdam.clock import from_milliseconds
from checkdam.errors import UsageError

_PAGE = 500


def list_entries(job: RemoteJob, uid: str, name: str | None, text: str | None, limit: int) -> dict[str, Any]:
    """Return up to `limit` entries of a keyed or operator state; those that contain `text`, if it is given.

    Raises:
        UsageError: no such state, or NAME is missing and there are several.
        RequestRefusedError: the job's server refuses.
    """
    operators = job.client.get(job.path("state"))["operators"]
    operator = next((each for each in operators if each["uid"] == uid), None)
    if operator is None:
        known = ", ".join(f'"{each["uid"]}"' for each in operators)
        raise UsageError(
            f'the job has no operator "{uid}" with state', hint=f"It has {known}." if known else "It has no state yet."
        )
    keyed = [each["name"] for each in operator["states"]]
    of_operator = [each["name"] for each in operator["operator-states"]]
    if name is None and len(keyed) + len(of_operator) == 1:
        [name] = keyed or of_operator
    if name not in keyed and name not in of_operator:
        listed = ", ".join(f'"{each}"' for each in (*keyed, *of_operator)) or "none"
        what = "NAME is missing" if name is None else f'operator "{uid}" has no state "{name}"'
        raise UsageError(what, hint=f"It has {listed}; --timers shows its timers.")
    assert name is not None
    if name in keyed:
        return _gathered(job, job.path("state", segment(uid), segment(name), "keys"), text, limit)
    return _gathered(job, job.path("operator-state", segment(uid), segment(name)), text, limit)


def list_timers(job: RemoteJob, uid: str, text: str | None, limit: int) -> dict[str, Any]:
    """Return up to `limit` of the next timers of each time domain."""
    found: dict[str, Any] = job.client.get(job.path("timers", segment(uid)), **_query(text, limit))
    return found


def _gathered(job: RemoteJob, path: str, text: str | None, limit: int) -> dict[str, Any]:
    """Ask for page after page until there are enough entries, or no more."""
    entries: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = job.client.get(path, **_query(text, min(_PAGE, limit - len(entries))), **cursor)
        entries += page["entries"]
        if page["next"] is None or len(entries) >= limit:
            return {"epoch": page["epoch"], "entries": entries, "is-all": page["next"] is None}
        cursor = {"cursor": page["next"]}


def _query(text: str | None, limit: int) -> dict[str, Any]:
    return {"limit": limit, **({} if text is None else {"filter": text})}


def entries_text(found: Mapping[str, Any]) -> str:
    """Format the entries, one a line, and below them the epoch."""
    entries = found["entries"]
    more = "" if found.get("is-all", True) else ", more with --limit"
    return "\n".join([*map(_line, entries), f"({len(entries)} shown{more}, epoch {found['epoch']})"])


def _line(entry: Mapping[str, Any]) -> str:
    shown = [f"{_instant(entry['timestamp'])} {entry['time-domain']}"] if "timestamp" in entry else []
    shown += [f"subtask {entry['subtask']}"] if "subtask" in entry else []
    shown += [json.dumps(entry["key"], ensure_ascii=False)] if "key" in entry else []
    shown += [window_text(entry["window"])] if "window" in entry else []
    shown += [json.dumps(entry["value"], ensure_ascii=False)] if "value" in entry else []
    return "  ".join(shown)


def _instant(milliseconds: int) -> str:
    """Format the time of a timer; event time may be any number."""
    try:
        return number_format.instant(from_milliseconds(milliseconds))
    except (OverflowError, ValueError):
        return str(milliseconds)
