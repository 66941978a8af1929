"""`checkdam state`: shows the state of a running job by key, and the content of checkpoints and savepoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click
from rich.console import Console

from checkdam.cli import number_format
from checkdam.cli.completion import complete_directories
from checkdam.cli.error_messages import errors_printed
from checkdam.cli.inspect import Inspected, look_into, open_snapshot, show
from checkdam.cli.live_listing import entries_text, list_entries, list_timers
from checkdam.cli.options import AS_JSON, FULL, JOB, SNAPSHOT, VERBOSE, AtLeast
from checkdam.cli.remote import Remote, connection
from checkdam.cli.state_tables import diff_table, operator_parts, rows_table, snapshot_name, window_text
from checkdam.cli.tables import Words, console_for_output, print_json, print_whole
from checkdam.client.rest_client import segment
from checkdam.errors import StateNotRestorableError, UsageError
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import StateDescription
from checkdam.state_reader.diffing import EXAMPLES, StateDiff, diff
from checkdam.state_reader.flink_snapshot import FlinkSnapshot
from checkdam.state_reader.json_rows import json_example, json_rows
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.savepoint_reader import Savepoint
from checkdam.state_reader.timer_states import TimerContent
from checkdam.types.json_values import key_from_text, to_json

_LIMIT = 20


@click.group()
def state() -> None:
    """Read state: of a running JOB (get), or in a checkpoint or savepoint (ls, show, diff).

    PATH is the directory of a checkpoint (…/chk-4) or a savepoint, local or a URI. Neither a running job nor its
    code is needed to read it.
    """


@state.command("get", short_help="Print state of a running job: a key, all of a state, timers.")
@JOB
@click.argument("uid")
@click.argument("name", required=False)
@click.argument("key", required=False)
@click.option("--map-key", metavar="KEY", help="Only this entry of a map state.")
@click.option("--window", metavar="WINDOW", help="Only this window of window state, as JSON.")
@click.option("--timers", is_flag=True, help="Show the next timers of the operator.")
@click.option(
    "--filter", "text", metavar="TEXT", help="Without KEY: only keys whose JSON contains this text, ignoring case."
)
@click.option("--limit", type=AtLeast(1), default=_LIMIT, show_default=True, help="Without KEY: entries to show.")
@connection
def get_state(
    remote: Remote,
    job: str,
    uid: str,
    name: str | None,
    key: str | None,
    *,
    map_key: str | None,
    window: str | None,
    timers: bool,
    text: str | None,
    limit: int,
) -> None:
    """Print the value of KEY in state NAME of operator UID, as of the last complete epoch of the running JOB.

    Without KEY the state's entries are listed: of keyed state its keys, of broadcast state the entries in force, of an
    operator's list state its elements. --timers lists the operator's next timers.

    JOB is a job's id, the beginning of its id, or its name. KEY is JSON; a text key may be
    given without quotes. A missing key is no error. sum, min, max and reduce keep their state under the name _op_state.
    Of window state, such as window-contents, the value of each window of KEY is printed.

    \b
      checkdam state get 4fa1 count _op_state word
      checkdam state get "word count" visits by-day '["Main Street", 5]' --map-key 2024-05-01 --json
      checkdam state get clicks per-minute window-contents ada --window '{"start": 0, "end": 60000}'
      checkdam state get fraud match rules
      checkdam state get fraud match --timers --filter ada
    """
    found = remote.find(job)
    if timers or key is None or name is None:
        if timers and name is not None:
            raise UsageError("--timers shows all timers of an operator, not those of a state", hint="Leave NAME out.")
        listed = list_timers(found, uid, text, limit) if timers else list_entries(found, uid, name, text, limit)
        remote.print_json(listed)
        remote.print_text(entries_text(listed))
        return
    given = {"key": key, "map-key": map_key, "window": window}
    query = {name: text for name, text in given.items() if text is not None}
    answer = found.client.get(found.path("state", segment(uid), segment(name)), **query)
    remote.print_json(answer)
    remote.print_text(_answer_text(answer))


@state.command("ls", short_help="List operators and their states.")
@SNAPSHOT
@AS_JSON
@FULL
@VERBOSE
def list_states(path: str, *, as_json: bool, full: bool, verbose: bool) -> None:
    """List the operators in PATH and their states: kind, types, entries and size.

    "≤" marks an upper limit: several files of a large incremental checkpoint may hold the same key. "?" marks a
    figure that only reading the whole state would give. --full counts exactly. If Flink wrote PATH, only its _metadata
    is shown.
    """
    with errors_printed(verbose=verbose, as_json=as_json):
        found = look_into(path, in_full=full)
    if as_json:
        print_json(found if isinstance(found, FlinkSnapshot) else _described(found.snapshot, found.states))
    elif isinstance(found, FlinkSnapshot):
        show(found, console_for_output())
    else:
        _print_states(found, console_for_output())


@state.command("show", short_help="Show entries of a state.")
@SNAPSHOT
@click.argument("uid")
@click.argument("name", required=False)
@click.option("--key", help="Only this key, as JSON; a text key may be given without quotes.")
@click.option("--limit", type=AtLeast(0), default=_LIMIT, show_default=True, help="Rows to show; 0: all.")
@click.option("--timers", is_flag=True, help="Show the operator's timers.")
@AS_JSON
@VERBOSE
def show_state(
    path: str, uid: str, name: str | None, *, key: str | None, limit: int, timers: bool, as_json: bool, verbose: bool
) -> None:
    """Show entries of state NAME of operator UID in PATH; NAME may be left out if there is only one state.

    With --json, each entry is one line.
    """
    with errors_printed(verbose=verbose, as_json=as_json):
        content = _chosen(_load(path), uid, name, timers=timers)
        rows = _rows_of_key(content, key) if key is not None else json_rows(content)
        if as_json:
            for row in islice(rows, limit or None):
                click.echo(json.dumps(row, ensure_ascii=False))
            return
        shown = list(islice(rows, limit or None))
        console = console_for_output()
        print_whole(console, rows_table(content, shown))
        more = 0 if not limit else sum(1 for _ in rows) if key is not None else content.count() - len(shown)
        if more > 0:
            console.print(f"{number_format.number(len(shown) + more)} in all: --limit shows more", style="dim")


@state.command("diff", short_help="Show what changed between two snapshots.")
@click.argument("old", shell_complete=complete_directories)
@click.argument("new", shell_complete=complete_directories)
@click.argument("uid", required=False)
@click.argument("name", required=False)
@click.option("--limit", type=AtLeast(0), default=EXAMPLES, show_default=True, help="Examples to show of each state.")
@AS_JSON
@VERBOSE
def diff_states(
    old: str, new: str, uid: str | None, name: str | None, *, limit: int, as_json: bool, verbose: bool
) -> None:
    """Count the keys added, changed and removed from OLD to NEW, with examples; of one operator or state, or of all."""
    with errors_printed(verbose=verbose, as_json=as_json):
        found = list(diff(_load(old), _load(new), uid, name, examples=limit))
    if as_json:
        print_json({"states": [_diff_data(each) for each in found]})
    else:
        print_whole(console_for_output(), diff_table(found))


def _answer_text(answer: dict[str, Any]) -> str:
    where = f"epoch {answer['epoch']}, key group {answer['key-group']}, slot {answer['subtask']}"
    if not answer["found"]:
        return f"no value  ({where})"
    if answer.get("by-window"):
        shown = (f"{window_text(window)}  {json.dumps(value, ensure_ascii=False)}" for window, value in answer["value"])
        return "\n".join([*shown, f"({where})"])
    return f"{json.dumps(answer['value'], ensure_ascii=False)}  ({where})"


def _print_states(found: Inspected, console: Console) -> None:
    it = found.snapshot
    which = " ".join(snapshot_name(it))
    head = f"{it.job_name} ({it.job_id}), {which}, {number_format.instant(it.completed_at)}"
    print_whole(console, Words(head), *operator_parts(it.operators, found.states))


def _load(path: str) -> Savepoint:
    snapshot = open_snapshot(path)
    if isinstance(snapshot, FlinkSnapshot):
        raise StateNotRestorableError(
            f'"{path}" was written by Flink, and only Flink can read its state files',
            hint='"checkdam state ls" and "checkdam inspect" show its _metadata.',
        )
    return snapshot


def _chosen(savepoint: Savepoint, uid: str, name: str | None, *, timers: bool) -> StateContent:
    if timers:
        return savepoint.timers(uid)
    if name is not None:
        return savepoint.content(uid, name)
    states = [each for each in savepoint.states(uid) if not each.is_timers]
    if len(states) == 1:
        return savepoint.content_of(states[0])
    listed = ", ".join(f'"{each.name}"' for each in states)
    raise UsageError(
        f'operator "{uid}" has {len(states) or "no"} states in "{savepoint.path}"',
        hint=f"Name one of {listed}." if states else "--timers shows its timers.",
    )


def _rows_of_key(content: StateContent, text: str) -> Iterator[dict[str, Any]]:
    """Return the rows of one key, reading only its key group."""
    if not isinstance(content, KeyedState | TimerContent):
        raise UsageError(
            f'state "{content.description.name}" of operator "{content.description.uid}" has no keys',
            hint="Leave --key out.",
        )
    key = key_from_text(text, content.key_type)
    wanted = to_json(key, content.key_type)
    return (row for row in json_rows(content.of_key(key)) if row["key"] == wanted)


def _described(savepoint: Savepoint, states: dict[str, tuple[StateDescription, ...]]) -> dict[str, Any]:
    return {
        "path": savepoint.path,
        "job_id": savepoint.job_id,
        "job_name": savepoint.job_name,
        "checkpoint_id": savepoint.checkpoint_id,
        "epoch": savepoint.epoch,
        "completed_at": savepoint.completed_at,
        "parallelism": savepoint.parallelism,
        "max_parallelism": savepoint.max_parallelism,
        "operators": [
            {
                "uid": operator.uid,
                "name": operator.name,
                "parallelism": operator.parallelism,
                "max_parallelism": operator.max_parallelism,
                "backend": operator.backend,
                "bytes": operator.bytes,
                "states": states[operator.uid],
            }
            for operator in savepoint.operators
        ],
    }


def _diff_data(found: StateDiff) -> dict[str, Any]:
    return {
        "uid": found.description.uid,
        "name": found.description.name,
        "kind": found.description.kind,
        "added": found.added,
        "changed": found.changed,
        "removed": found.removed,
        "unchanged": found.unchanged,
        "examples": [json_example(example, found.content) for example in found.examples],
    }
