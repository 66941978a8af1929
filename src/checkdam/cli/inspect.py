"""`checkdam inspect`: what a checkpoint holds."""

from __future__ import annotations

import sys
from typing import Any, Literal

import click
import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checkdam.cli import number_format
from checkdam.cli.error_messages import told_to_user
from checkdam.cli.flink_inspection import FlinkCheckpointView, FlinkOperatorView, inspect_flink_checkpoint
from checkdam.cli.inspection import CheckpointView, OperatorView, inspect_checkpoint, is_flinks
from checkdam.cli.state_inspection import StateView
from checkdam.errors import StateNotRestorableError

_SHOWN_POSITION = 100
_PIPE_WIDTH = 160
_FIGURES = frozenset({"entries", "files", "size"})
_SHORT = _FIGURES | {"key", "backend", "kind"}


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option("--full", is_flag=True, help="Read every state file: exact entries, checksums checked, however large.")
@click.option("-v", "--verbose", is_flag=True, help="Show whole stack traces.")
def inspect(path: str, *, as_json: bool, full: bool, verbose: bool) -> None:
    """Show what the checkpoint in PATH holds: job, position of the sources, operators, states and sizes.

    PATH is the directory of a checkpoint (…/chk-4), local or a URI. Checkpoints and savepoints that Flink wrote are
    shown as far as their _metadata tells. "≤" marks counts taken from the files' indexes alone, where a large
    incremental checkpoint may hold a key in several files, "?" those that only RocksDB knows; --full counts exactly.
    """
    with told_to_user(verbose=verbose):
        view = look_into(path, in_full=full)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(view), indent=2).decode())
    else:
        show(view, console_for_output())


def console_for_output() -> Console:
    """Standard output; where it is no terminal there is no edge to fold tables at."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def look_into(path: str, *, in_full: bool = False) -> CheckpointView | FlinkCheckpointView:
    """The checkpoint in `path`, whoever wrote it. Raises RestoreError."""
    try:
        return inspect_checkpoint(path, in_full=in_full)
    except StateNotRestorableError as error:
        if not is_flinks(error):
            raise
        return inspect_flink_checkpoint(path)


def show(view: CheckpointView | FlinkCheckpointView, console: Console) -> None:
    """Facts first, then a row for each state of each operator."""
    if isinstance(view, CheckpointView):
        facts, table = _facts(view), _operators(view)
    else:
        facts, table = _flink_facts(view), _flink_operators(view)
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(f"[dim]{name}[/]", escape(value))
    console.print(grid)
    console.print(table)


def _facts(view: CheckpointView) -> list[tuple[str, str]]:
    took = (view.completed_at - view.triggered_at).total_seconds()
    facts = [
        ("checkpoint", f"{view.checkpoint_id}, after epoch {view.epoch}"),
        ("job", f"{view.job_name} ({view.job_id})"),
        ("completed", f"{view.completed_at:%Y-%m-%d %H:%M:%S} UTC, took {number_format.duration(took)}"),
        ("parallelism", f"{view.parallelism}, max {view.max_parallelism}"),
        ("mode", ", ".join(filter(None, (view.mode, view.retention)))),
        ("size", f"{number_format.size(view.bytes)} in {number_format.counted(view.files, 'file')}"),
        ("path", view.path),
    ]
    for index, position in enumerate(view.sources):
        facts.append((f"source {index}", _shortened(position)))
    return facts


def _flink_facts(view: FlinkCheckpointView) -> list[tuple[str, str]]:
    facts = [
        ("checkpoint", f"{view.checkpoint_id}, written by Flink (metadata version {view.metadata_version})"),
        ("size", f"{number_format.size(view.bytes)} in {number_format.counted(view.files, 'file')} and in _metadata"),
        ("path", view.path),
    ]
    if view.master_states:
        facts.append(("master states", ", ".join(view.master_states)))
    return facts


def _operators(view: CheckpointView) -> Table:
    table = _table("uid", "operator", "key", "backend", "state", "kind", "type", "entries", "files", "size")
    for operator in view.operators:
        for first, state in _rows(operator):
            what = ("", "", "", "") if state is None else (state.name, _kind(state), state.type, _entries(state))
            own = (operator.uid, _operator_name(operator), operator.key_type or "", operator.backend or "")
            totals = (
                (number_format.number(operator.files), number_format.size(operator.bytes))
                if operator.files
                else ("", "")
            )
            if operator.uncommitted_outputs and not operator.states:
                what = (f"{number_format.counted(operator.uncommitted_outputs, 'output')} to publish", "", "", "")
            _add(table, *(own if first else ("",) * 4), *what, *(totals if first else ("", "")))
    return table


def _rows(operator: OperatorView) -> list[tuple[bool, StateView | None]]:
    return [(index == 0, state) for index, state in enumerate(operator.states)] or [(True, None)]


def _flink_operators(view: FlinkCheckpointView) -> Table:
    table = _table("uid or id", "operator", "handles", "named operator states", "files", "size")
    for operator in view.operators:
        states = ", ".join(f"{state.name} ({state.kind})" for state in operator.states)
        _add(
            table,
            operator.uid or operator.operator_id,
            f"{operator.name or '-'} ×{operator.parallelism}, max {operator.max_parallelism}",
            _handles(operator),
            states,
            number_format.number(operator.files),
            number_format.size(operator.bytes),
        )
    return table


def _handles(operator: FlinkOperatorView) -> str:
    if operator.finished:
        return "finished"
    return ", ".join(f"{count} {kind}" for kind, count in operator.handles.items()) or "no state"


def _table(*names: str) -> Table:
    """A table whose texts fold on a narrow terminal, never its figures."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", border_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        justify: Literal["left", "right"] = "right" if name in _FIGURES else "left"
        table.add_column(name, justify=justify, no_wrap=name in _SHORT, overflow="fold")
    return table


def _add(table: Table, *cells: Any) -> None:
    table.add_row(*(escape(str(cell)) for cell in cells))


def _operator_name(operator: OperatorView) -> str:
    name = f"{operator.name} ×{operator.parallelism}"
    return f"{name}, {operator.finished_subtasks} finished" if operator.finished_subtasks else name


def _kind(state: StateView) -> str:
    return f"{state.kind}, TTL" if state.ttl else state.kind


def _entries(state: StateView) -> str:
    if state.entries is None:
        return "?"
    if state.bytes is not None:
        return f"{number_format.number(state.entries)} ({number_format.size(state.bytes)})"
    return (
        number_format.number(state.entries) if state.entries_are_exact else f"≤ {number_format.number(state.entries)}"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_POSITION else f"{text[:_SHOWN_POSITION]}…"
