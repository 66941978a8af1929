"""A checkpoint or savepoint opened for reading, without a running job."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from checkdam.backends.restoring import agreed
from checkdam.backends.snapshot_contents import describe_handle, describe_keys
from checkdam.backends.state_file import StateInfo
from checkdam.checkpoint.checkpoint_store import METADATA, load_checkpoint
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.errors import StateAccessError
from checkdam.ids import CheckpointId, Epoch, JobId, SubtaskIndex
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import (
    OperatorDescription,
    StateDescription,
    describe_keyed,
    describe_operator,
    describe_operator_states,
    describe_part,
)
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.operator_states import BroadcastState, OperatorListState, operator_parts
from checkdam.state_reader.timer_states import DOMAINS, TimerContent
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage


class Savepoint:
    """Any retained checkpoint or savepoint. It is read lazily, and never written.

    Types come from the files, so the job's code is not needed: dataclasses are read as dicts or structs, named tuples
    as tuples or structs. Values of a `PickleType` stay bytes unless `unpickle` is given.
    """

    def __init__(self, checkpoint: CompletedCheckpoint, path: str, storage: Storage) -> None:
        """Read state files from `storage`, under the paths that the checkpoint has for them."""
        self._checkpoint = checkpoint
        self._storage = storage
        self.path = path

    @classmethod
    def load(cls, path: str) -> Savepoint:
        """Open the checkpoint or savepoint in a directory, local or by URI, or given by its `_metadata`.

        Raises:
            CheckpointNotFoundError: there is none; the hint lists complete ones nearby.
            CheckpointDamagedError, FormatTooNewError: its `_metadata` is damaged, or of a newer version.
            StateNotRestorableError: Flink wrote it; `checkdam inspect` describes it as far as its metadata allows.
        """
        checkpoint, directory = load_checkpoint(str(path))
        return cls(checkpoint, open_storage(str(path)).uri.removesuffix(f"/{METADATA}"), open_storage(directory))

    @property
    def job_id(self) -> JobId:
        return self._checkpoint.job_id

    @property
    def job_name(self) -> str:
        return self._checkpoint.job_name

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self._checkpoint.checkpoint_id

    @property
    def epoch(self) -> Epoch:
        """The last epoch whose records are in the state."""
        return self._checkpoint.epoch

    @property
    def format(self) -> str | None:
        """The format of a savepoint, CANONICAL or NATIVE; None for a checkpoint."""
        return self._checkpoint.savepoint_format

    @property
    def triggered_at(self) -> datetime:
        return self._checkpoint.triggered_at

    @property
    def completed_at(self) -> datetime:
        return self._checkpoint.completed_at

    @property
    def parallelism(self) -> int:
        return self._checkpoint.parallelism

    @property
    def max_parallelism(self) -> int:
        return self._checkpoint.max_parallelism

    @property
    def state_bytes(self) -> int:
        """The size of all state, each file counted once."""
        return self._checkpoint.state_bytes

    @property
    def state_files(self) -> int:
        """The number of files that the snapshot refers to."""
        return len(self._checkpoint.files())

    @property
    def settings(self) -> Mapping[str, str]:
        """The job's settings when the snapshot was taken: mode, retention and more."""
        return self._checkpoint.settings

    @property
    def source_position(self) -> bytes:
        """The position of the sources as the engine encodes it; empty if no source can resume."""
        return self._checkpoint.source_position

    @cached_property
    def operators(self) -> tuple[OperatorDescription, ...]:
        """The operators with state in the snapshot."""
        return tuple(map(describe_operator, self._checkpoint.operators))

    def handles(self, uid: str) -> dict[SubtaskIndex, KeyedStateHandle]:
        """Return the handle of each subtask's keyed state. Raise StateAccessError if there is no such operator."""
        return dict(self._entry(uid).subtasks)

    def states(self, uid: str, *, in_full: bool = False) -> tuple[StateDescription, ...]:
        """Describe every state of an operator: keyed state, timers, operator and broadcast state.

        Entries are counted from the indexes of the files. With `in_full` every file is read completely, so that counts
        are exact and any damage is found.

        Raises:
            StateAccessError: there is no such operator; the hint lists the existing ones.
            CheckpointDamagedError, FormatTooNewError: a file is damaged, or of a newer version.
        """
        entry = self._entry(uid)
        # subtasks that have not yet accessed a state may hold it in an older form: it is described, but not read
        infos = {info.name: info for info in self._all_infos(entry)}
        keyed = describe_keyed(entry, infos, self._storage, in_full=in_full)
        return (*keyed, *self._operator_states(entry))

    def keyed_state(self, uid: str, name: str, *, unpickle: bool = False) -> KeyedState:
        """Return a value, list, reducing, aggregating or map state.

        With `unpickle`, iterating and `get` return pickled values as objects. Use it only with files that you trust,
        and where the classes can be imported.

        Raises:
            StateAccessError: there is no such operator or state; the message names the nearest.
        """
        entry = self._entry(uid)
        infos = self._keyed_infos(entry)
        self._check_name(uid, name, "keyed state", (info for info in infos if info not in DOMAINS))
        return self._keyed(entry, infos, name, unpickle=unpickle)

    def timers(self, uid: str) -> TimerContent:
        """Return all timers of an operator, of event time and processing time.

        Raises:
            StateAccessError: there is no such operator, or it has no timers.
        """
        entry = self._entry(uid)
        infos = self._keyed_infos(entry)
        kept = [self._keyed(entry, infos, name) for name in DOMAINS if name in infos]
        if not kept:
            raise StateAccessError(
                f'operator "{uid}" has no timers in "{self.path}"', hint=self._what_there_is(uid) or None
            )
        entries = [state.description.entries for state in kept]
        known = [count for count in entries if count is not None]
        description = replace(
            kept[0].description,
            name="timers",
            entries=sum(known) if len(known) == len(entries) else None,
            entries_are_exact=all(state.description.entries_are_exact for state in kept),
            bytes=None,
        )
        return TimerContent(description, self.path, kept, pa.field("key", kept[0].key_type.arrow_type))

    def operator_state(self, uid: str, name: str, *, unpickle: bool = False) -> OperatorListState:
        """Return a list or union list state of an operator. Raise the errors of `keyed_state`."""
        found: OperatorListState = self._operator_state(uid, name, OperatorListState, unpickle=unpickle)
        return found

    def broadcast_state(self, uid: str, name: str, *, unpickle: bool = False) -> BroadcastState:
        """Return a broadcast state. Raise the errors of `keyed_state`."""
        found: BroadcastState = self._operator_state(uid, name, BroadcastState, unpickle=unpickle)
        return found

    def content(self, uid: str, name: str, *, unpickle: bool = False) -> StateContent:
        """Return the state of that name, of any kind; "timers" means the timers unless a state has that name.

        Raises:
            StateAccessError: there is no such operator or state; the message names the nearest.
        """
        by_name = {state.name: state for state in reversed(self.states(uid))}  # keyed state takes precedence
        if name == "timers" and name not in by_name:
            return self.timers(uid)
        self._check_name(uid, name, "state", by_name)
        return self.timers(uid) if by_name[name].is_timers else self.content_of(by_name[name], unpickle=unpickle)

    def content_of(self, state: StateDescription, *, unpickle: bool = False) -> StateContent:
        """Return the state that a description of `states` stands for; timers as the map state of their time domain."""
        if state.is_keyed:
            entry = self._entry(state.uid)
            return self._keyed(entry, self._keyed_infos(entry), state.name, unpickle=unpickle)
        if state.is_broadcast:
            return self.broadcast_state(state.uid, state.name, unpickle=unpickle)
        return self.operator_state(state.uid, state.name, unpickle=unpickle)

    def check(self, uid: str, name: str | None = None) -> None:
        """Raise StateAccessError, naming the nearest, if there is no such operator, or it has no such state."""
        states = self.states(uid)
        if name is not None:
            self._check_name(uid, name, "state", (state.name for state in states))

    # ------------------------------------------------------------------------------------------ finding

    def _entry(self, uid: str) -> OperatorEntry:
        for entry in self._checkpoint.operators:
            if entry.uid == uid:
                return entry
        uids = [str(entry.uid) for entry in self._checkpoint.operators]
        raise StateAccessError(
            f'there is no operator with uid "{uid}" in "{self.path}"', hint=_instead("operators", uid, uids)
        )

    def _keyed_infos(self, entry: OperatorEntry) -> dict[str, StateInfo]:
        """Return every keyed state as all subtasks declare it. Raise StateNotRestorableError if they disagree."""
        infos: dict[str, StateInfo] = {}
        for info in self._all_infos(entry):
            infos[info.name] = agreed(entry.uid, infos.get(info.name, info), info)
        return infos

    def _all_infos(self, entry: OperatorEntry) -> Iterator[StateInfo]:
        for _, handle in sorted(entry.subtasks.items()):
            yield from describe_handle(handle, self._storage)

    def _keyed(
        self, entry: OperatorEntry, infos: dict[str, StateInfo], name: str, *, unpickle: bool = False
    ) -> KeyedState:
        filled = {subtask: handle for subtask, handle in entry.subtasks.items() if handle.files}
        keys = next(filter(None, (describe_keys(handle, self._storage) for handle in filled.values())))
        [description] = describe_keyed(entry, {name: infos[name]}, self._storage)
        return KeyedState(description, self.path, infos[name], keys, filled, self._storage, unpickle=unpickle)

    def _operator_states(self, entry: OperatorEntry) -> list[StateDescription]:
        parts = operator_parts(entry.operator_states, self._storage)
        return describe_operator_states(entry.uid, (part for _, part in parts))

    def _operator_state(self, uid: str, name: str, kind: Any, *, unpickle: bool) -> Any:
        entry = self._entry(uid)
        wanted = [each for each in self._operator_states(entry) if each.is_broadcast is (kind is BroadcastState)]
        what = "broadcast state" if kind is BroadcastState else "operator state"
        self._check_name(uid, name, what, (each.name for each in wanted))
        description = next(each for each in wanted if each.name == name)
        texts = [
            (bool(part.elements), part.type)
            for _, part in operator_parts(entry.operator_states, self._storage)
            if (part.name, describe_part(uid, part).kind) == (name, description.kind)
        ]
        _, text = max(texts)  # an empty list fits any type
        return kind(description, self.path, text, entry.operator_states, self._storage, unpickle=unpickle)

    def _check_name(self, uid: str, name: str, what: str, known: Iterable[str]) -> None:
        names = list(known)
        if name in names:
            return
        hint = _instead("states", name, names) if names else self._what_there_is(uid)
        raise StateAccessError(f'operator "{uid}" has no {what} "{name}" in "{self.path}"', hint=hint or None)

    def _what_there_is(self, uid: str) -> str:
        found = [f'"{state.name}" ({state.kind})' for state in self.states(uid)]
        return f"It has {', '.join(found)}." if found else "It has no state here."


def _instead(what: str, given: str, known: list[str]) -> str:
    """Return the hint with the names the user may have meant."""
    if not known:
        return f"There are no {what} with state in it."
    nearest = difflib.get_close_matches(given, known, n=1)
    meant = f'Did you mean "{nearest[0]}"? ' if nearest else ""
    listed = ", ".join(f'"{each}"' for each in sorted(known))
    return f"{meant}There {'is' if len(known) == 1 else 'are'} {listed}."
