"""`checkdam inspect`: shows the content of a checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.text import Text

from checkdam.checkpoint.savepoints import shown
from checkdam.cli import number_format
from checkdam.cli.error_messages import errors_printed
from checkdam.cli.options import AS_JSON, FULL, SNAPSHOT, VERBOSE
from checkdam.cli.state_tables import operator_parts, snapshot_name
from checkdam.cli.tables import Words, WordTable, console_for_output, print_facts, print_json, print_whole
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError
from checkdam.runtime.source_position import HeldSource, decode_position
from checkdam.state_reader.descriptions import OperatorDescription, StateDescription
from checkdam.state_reader.flink_snapshot import (
    FlinkOperator,
    FlinkSnapshot,
    describe_flink_snapshot,
    is_written_by_flink,
)
from checkdam.state_reader.savepoint_reader import Savepoint

READ_IN_FULL_BYTES = 16_000_000
"""Operators whose files are at most this large are read completely: entries are exact, every checksum is checked."""

_SHOWN_POSITION = 100


@click.command()
@SNAPSHOT
@AS_JSON
@FULL
@VERBOSE
def inspect(path: str, *, as_json: bool, full: bool, verbose: bool) -> None:
    """Show the content of the checkpoint or savepoint in PATH: job, positions of sources, operators, states and sizes.

    PATH is a directory (…/chk-4, …/savepoint-4fa1c0-9b2d61a7f003), local or a URI. If Flink wrote it, only the content
    of its _metadata is shown. "≤" marks an upper limit: several files of a large incremental checkpoint may hold the
    same key. "?" marks a figure that only RocksDB knows. --full counts exactly.
    """
    with errors_printed(verbose=verbose):
        found = look_into(path, in_full=full)
    if as_json:
        print_json(as_plain_data(found))
    else:
        show(found, console_for_output())


@dataclass(frozen=True)
class Inspected:
    """A snapshot written by Checkdam, and the states of each of its operators."""

    snapshot: Savepoint
    states: dict[str, tuple[StateDescription, ...]]

    @property
    def sources(self) -> tuple[str, ...]:
        """The position of each source, in the source's own form."""
        return _positions(self.snapshot.source_position)


def open_snapshot(path: str) -> Savepoint | FlinkSnapshot:
    """Open the checkpoint or savepoint in `path`, of Checkdam or Flink.

    Raises:
        CheckpointNotFoundError, CheckpointDamagedError, FormatTooNewError: there is no readable checkpoint.
    """
    try:
        return Savepoint.load(path)
    except StateNotRestorableError as error:
        if not is_written_by_flink(error):
            raise
        return describe_flink_snapshot(path)


def look_into(path: str, *, in_full: bool = False) -> Inspected | FlinkSnapshot:
    """Open the checkpoint in `path` and describe its states; `in_full` reads every state file, however large."""
    snapshot = open_snapshot(path)
    if isinstance(snapshot, FlinkSnapshot):
        return snapshot
    states = {
        operator.uid: snapshot.states(operator.uid, in_full=in_full or operator.bytes <= READ_IN_FULL_BYTES)
        for operator in snapshot.operators
    }
    return Inspected(snapshot, states)


def as_plain_data(found: Inspected | FlinkSnapshot) -> Any:
    """Return the content for JSON."""
    if isinstance(found, FlinkSnapshot):
        return found
    snapshot = found.snapshot
    return {
        "path": snapshot.path,
        "written_by": "checkdam",
        "kind": "checkpoint" if snapshot.format is None else "savepoint",
        "format": snapshot.format,
        "job_id": snapshot.job_id,
        "job_name": snapshot.job_name,
        "checkpoint_id": snapshot.checkpoint_id,
        "epoch": snapshot.epoch,
        "triggered_at": snapshot.triggered_at,
        "completed_at": snapshot.completed_at,
        "parallelism": snapshot.parallelism,
        "max_parallelism": snapshot.max_parallelism,
        "mode": snapshot.settings.get("mode", ""),
        "retention": snapshot.settings.get("retention", ""),
        "sources": found.sources,
        "operators": [_operator_data(each, found.states[each.uid]) for each in snapshot.operators],
        "files": snapshot.state_files,
        "bytes": snapshot.state_bytes,
    }


def _operator_data(operator: OperatorDescription, states: tuple[StateDescription, ...]) -> dict[str, Any]:
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "key_type": _key_type(states),
        "states": [
            {
                "name": state.name,
                "kind": state.kind,
                "type": _type(state),
                **({"window_type": state.window_type} if state.window_type else {}),
                "entries": state.entries,
                "entries_are_exact": state.entries_are_exact,
                "ttl": state.ttl,
                "bytes": None if state.is_keyed else state.bytes,
            }
            for state in states
        ],
        "files": operator.files,
        "bytes": operator.bytes,
        "uncommitted_outputs": operator.uncommitted_outputs,
        "backend": operator.backend,
        "finished_subtasks": operator.finished_subtasks,
    }


def _key_type(states: tuple[StateDescription, ...]) -> str | None:
    return next((state.key_type for state in states if state.key_type), None)


def _type(state: StateDescription) -> str:
    """Return the type of a state's content: for a map with its keys, for broadcast state that of its entries."""
    if state.map_key_type is None or state.is_timers:
        return state.type
    return f"{'tuple' if state.is_broadcast else 'dict'}[{state.map_key_type}, {state.type}]"


def _positions(encoded: bytes) -> tuple[str, ...]:
    """Return the last line of Spark's offset log for each source, with its uid where the checkpoint has it."""
    if not encoded:
        return ()
    try:
        position = decode_position(encoded)
    except (CheckpointDamagedError, FormatTooNewError):
        return (f"{len(encoded)} bytes",)
    offsets = position.files.get(f"offsets/{position.batch}", b"").decode(errors="replace")
    lines = offsets.splitlines()[2:]  # skip the version and the query's own settings
    if not position.held:
        return tuple(f"at {line}" for line in lines)
    return tuple(_held(source, lines) for source in position.held)


def _held(source: HeldSource, lines: list[str]) -> str:
    own = [lines[line] for line in source.lines if 0 <= line < len(lines)]
    return f"{source.uid} at {', '.join(own)}" if own else f"{source.uid}, read to its end"


def show(found: Inspected | FlinkSnapshot, console: Console) -> None:
    """Print the facts, then each operator with its states."""
    if isinstance(found, Inspected):
        print_facts(console, _facts(found))
        print_whole(console, *operator_parts(found.snapshot.operators, found.states))
    else:
        print_facts(console, _flink_facts(found))
        print_whole(console, *_flink_operators(found))


def _facts(found: Inspected) -> list[tuple[str, str]]:
    it = found.snapshot
    took = (it.completed_at - it.triggered_at).total_seconds()
    facts = [
        snapshot_name(it),
        ("job", f"{it.job_name} ({it.job_id})"),
        ("completed", f"{number_format.instant(it.completed_at)}, took {number_format.duration(took)}"),
        ("parallelism", f"{it.parallelism}, max {it.max_parallelism}"),
        ("mode", ", ".join(filter(None, (it.settings.get("mode"), it.settings.get("retention"))))),
        ("size", f"{number_format.size(it.state_bytes)} in {number_format.counted(it.state_files, 'file')}"),
        ("path", shown(it.path)),
    ]
    for index, position in enumerate(found.sources):
        facts.append((f"source {index}", _shortened(position)))
    return facts


def _flink_facts(view: FlinkSnapshot) -> list[tuple[str, str]]:
    facts = [
        ("snapshot", f"{view.checkpoint_id}, written by Flink (metadata version {view.metadata_version})"),
        ("size", f"{number_format.size(view.bytes)} in {number_format.counted(view.files, 'file')} and in _metadata"),
        ("path", shown(view.path)),
    ]
    if view.master_states:
        facts.append(("master states", ", ".join(view.master_states)))
    return facts


def _flink_operators(view: FlinkSnapshot) -> Iterator[RenderableType]:
    for operator in view.operators:
        facts = (
            f"{operator.name or '-'} ×{operator.parallelism}, max {operator.max_parallelism}",
            _handles(operator),
            f"{number_format.size(operator.bytes)} in {number_format.counted(operator.files, 'file')}",
        )
        yield Text()
        yield Words(" · ".join(facts), name=operator.uid or operator.operator_id)
        table = WordTable("named operator state", "kind", indent=2)
        for state in operator.states:
            table.add(state.name, state.kind)
        yield table


def _handles(operator: FlinkOperator) -> str:
    if operator.finished:
        return "finished"
    return ", ".join(f"{count} {kind}" for kind, count in operator.handles.items()) or "no state"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_POSITION else f"{text[:_SHOWN_POSITION]}…"
