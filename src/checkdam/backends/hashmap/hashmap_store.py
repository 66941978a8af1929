"""The live keyed state of one operator in one subtask, as Python objects in dicts."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from checkdam.backends.compaction import Pruning
from checkdam.backends.contract import NO_KEY, HeldChanges, MemberOwner, Prune, StoreOwner, asked_twice
from checkdam.backends.hashmap.hashmap_restore import RestoredState, decode, prune_entries, restore
from checkdam.backends.hashmap.hashmap_snapshot import HashMapSnapshot, SnapshotTable, naming
from checkdam.backends.hashmap.hashmap_states import (
    REMOVED,
    Changes,
    Current,
    HashMapCells,
    HashMapMaps,
    HashMapSet,
    NamespacedKey,
    NamespacedMaps,
)
from checkdam.backends.hashmap.hashmap_view import HashMapPublished
from checkdam.backends.restoring import reading_of
from checkdam.backends.state_file import state_info
from checkdam.ids import CheckpointId, Epoch
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.state_count import StateCount, count_of_states
from checkdam.state.stored import as_of_now, in_bulk
from checkdam.state.ttl import TtlTime
from checkdam.storage.contract import Storage
from checkdam.types.serializers import serializer
from checkdam.types.type_check import are_exact


def open_store(
    owner: StoreOwner, restore_from: Sequence[KeyedStateHandle], storage: Storage | None, *, claim: bool
) -> HashMapStore:
    """Open the state of one subtask, as `KeyedStateBackend.open` promises."""
    restored = {} if storage is None else restore(owner, restore_from, storage)
    only = restore_from[0] if claim and len(restore_from) == 1 else None
    builds_on = only is not None and only.backend == "hashmap" and only.key_groups == owner.key_groups
    return HashMapStore(owner, restored, restore_from[0].files if builds_on else ())


class HashMapStore:
    """One dict per state, and one more for its changes since the last snapshot."""

    __slots__ = (
        *("_confirmed", "_generation", "_lock", "_owner", "_restored", "_pending", "_states"),
        *("_aborted_changes", "_held_back", "current_key", "current_namespace", "published"),
    )

    def __init__(self, owner: StoreOwner, restored: dict[str, RestoredState], confirmed: tuple[StateFile, ...]) -> None:
        self.current_key: Any = NO_KEY
        self.current_namespace: Any = None
        self._owner = owner
        self._restored = restored
        self._states: dict[str, _KeptState] = {}
        self.published: HashMapPublished | None = None
        self._held_back: list[HeldChanges] = []
        self._lock = threading.Lock()  # completed() and aborted() may be called from another thread
        self._confirmed = confirmed  # the files of the last completed checkpoint; none: the next snapshot is full
        self._generation = 0  # of the types in files; a delta builds only on files of its own generation
        self._pending: dict[CheckpointId, HashMapSnapshot] = {}  # since the last completed checkpoint, oldest first
        self._aborted_changes: dict[str, Changes] = {}  # of aborted snapshots; no later one has repeated them

    def cells(self, spec: StateSpec, prune: Prune | None = None) -> HashMapCells:
        entries, changes = self._taken_over(spec, prune)
        cells = HashMapCells(self._current(spec), entries, None if self._starts_full else changes, prune)
        self._states[spec.name] = _KeptState(self._owner, spec, cells, prune)
        return cells

    def maps(self, spec: StateSpec, prune: Prune | None = None) -> HashMapMaps:
        entries, changes = self._taken_over(spec, prune)
        make = HashMapMaps
        if spec.namespace is not None:
            make, entries, changes = NamespacedMaps, _by_pairs(entries), _by_pairs(changes)
        maps = make(self._current(spec), entries, None if self._starts_full else changes, prune)
        self._states[spec.name] = _KeptState(self._owner, spec, maps, prune)
        return maps

    def table(self, spec: StateSpec) -> HashMapCells:
        return self.cells(spec)

    def kept_set(self, spec: StateSpec, owner: MemberOwner) -> Iterator[Any]:
        entries, changes = self._taken_over(spec, None)
        members = HashMapSet(owner, None if self._starts_full else changes)
        self._states[spec.name] = _KeptState(self._owner, spec, members, None)
        return iter(entries)

    @property
    def _starts_full(self) -> bool:
        """Whether the next snapshot has all entries of a state that is opened now."""
        return not self._confirmed and not self._pending

    def _current(self, spec: StateSpec) -> Current:
        return self if spec.namespace is None else NamespacedKey(self)

    def _taken_over(self, spec: StateSpec, prune: Prune | None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the restored entries of a state, and the changes that make them differ from the files."""
        if spec.name in self._states:
            raise asked_twice(self._owner.uid, spec.name)
        restored = self._restored.get(spec.name)
        if restored is None:
            return {}, {}
        reading = reading_of(self._owner.uid, restored.info, spec)
        entries = decode(restored, serializer(spec.entry_key(self._owner.key_type)), reading)
        del self._restored[spec.name]
        if reading.is_renewed:
            with self._lock:
                self._generation += 1
                self._confirmed = ()
        return entries, {} if prune is None else prune_entries(entries, reading.prune(prune))

    @property
    def not_asked_for(self) -> Sequence[str]:
        return list(self._restored)

    def hold_back(self, changes: HeldChanges) -> None:
        self._held_back.append(changes)

    def _write_back(self) -> None:
        for held in self._held_back:
            held.write_back()

    def batch_ended(self) -> None:
        """Stop recording changes once they are so many that the next snapshot has all entries anyway."""
        if self._are_many([kept.state.changed_count() for kept in self._states.values()]):
            for kept in self._states.values():
                if not isinstance(kept.state, HashMapSet):
                    kept.state.changes = None

    def end_epoch(self) -> None:
        sets = [
            (kept.state, *kept.state.newest()) for kept in self._states.values() if isinstance(kept.state, HashMapSet)
        ]
        if not any(members for _, members, _ in sets):
            return
        recorded = [kept.state.changed_count() for kept in self._states.values()]
        many = self._are_many([*recorded, *(len(members) for _, members, _ in sets)])
        for state, members, are_added in sets:
            if many:
                state.changes = None  # the next snapshot has all members anyway
            state.record(members, are_added)

    def publish(self, epoch: Epoch) -> None:
        self._write_back()
        published = self.published or HashMapPublished(self._owner)
        published.advance(epoch, self._readable())
        self.published = published

    def _readable(self) -> list[Any]:
        """Return the states for readers in other threads; those cannot ask for timers."""
        kept = (each for each in self._states.values() if each.spec.kind is not StateKind.TIMER)
        return [(each.spec, each.state, each.prune, each.fold) for each in kept]

    def unpublish(self) -> None:
        self.published = None

    def close(self) -> None:
        self._states, self._restored, self._pending, self.published = {}, {}, {}, None
        self._held_back = []

    def count(self) -> StateCount:
        new = {name: entries for held in self._held_back for name, entries in held.new_entries.items()}
        return count_of_states(kept.counted(new.get(name, 0)) for name, kept in self._states.items())

    def snapshot(self, checkpoint_id: CheckpointId, *, full: bool = False) -> HashMapSnapshot:
        self._write_back()
        self.end_epoch()
        noted = self.published is not None
        with self._lock:
            newest = {name: kept.take_changes(noted=noted) for name, kept in self._states.items()}
            taken = joined(self._aborted_changes, newest)
            self._aborted_changes = {}
            changes = {name: self._unconfirmed(name, each) for name, each in taken.items()}
            is_full = full or self._is_full(changes)
            snapshot = self._pending[checkpoint_id] = HashMapSnapshot(
                self._owner,
                checkpoint_id,
                builds_on=None if is_full else self._confirmed,
                changes=taken,  # recorded first: if a value fails to encode below, the next snapshot still has them all
                carried=[(state.info, [*map(list, state.sources)]) for state in self._restored.values()],
                prunings={name: pruning for name, kept in self._states.items() if (pruning := kept.pruning())},
                generation=self._generation,
            )
            states = self._states.items()
            snapshot.tables = [kept.all() if is_full else kept.part(changes[name] or {}) for name, kept in states]
            return snapshot

    def _unconfirmed(self, name: str, newest: Changes) -> Changes:
        """Return the changes of a state since the last completed checkpoint."""
        older = [pending.changes[name] for pending in self._pending.values() if name in pending.changes]
        return functools.reduce(_joined, (*older, newest))

    def completed(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            snapshot = self._pending.get(checkpoint_id)
            if snapshot is None:
                return  # older than the last completed one, or taken before this store was opened
            if snapshot.handle is None:
                raise RuntimeError(f"checkpoint {checkpoint_id} cannot be complete: its state is not written")
            self._confirmed = snapshot.handle.files if snapshot.generation == self._generation else ()
            self._pending = {number: pending for number, pending in self._pending.items() if number > checkpoint_id}

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            snapshot = self._pending.get(checkpoint_id)
            if snapshot is None:
                return
            snapshot.abort()
            later = next((pending for number, pending in self._pending.items() if number > checkpoint_id), None)
            del self._pending[checkpoint_id]
            if later is not None:
                later.changes = joined(snapshot.changes, later.changes)
                return
            # existing changes are of later snapshots
            self._aborted_changes = joined(snapshot.changes, self._aborted_changes)
            if not self._pending and self._is_full(self._aborted_changes):
                self._confirmed, self._aborted_changes = (), {}  # a full snapshot follows, which needs no changes

    def _is_full(self, changes: dict[str, Changes]) -> bool:
        """Return whether a full snapshot is better than one with these changes."""
        return not self._confirmed or self._are_many(None if each is None else len(each) for each in changes.values())

    def _are_many(self, changes: Iterable[int | None]) -> bool:
        """Return whether writing as many changes costs as much as writing everything."""
        held = sum(kept.state.count for kept in [*self._states.values()])
        held += sum(state.count for state in [*self._restored.values()])
        changed = 0
        for each in changes:
            if each is None:
                return True
            changed += each
        return 2 * changed >= max(held, 1)


class _KeptState:
    """One live state and how it becomes part of a snapshot."""

    def __init__(
        self,
        owner: StoreOwner,
        spec: StateSpec,
        state: HashMapCells | HashMapMaps | HashMapSet,
        prune: Prune | None,
    ) -> None:
        self.state = state
        self._is_paired = isinstance(state, NamespacedMaps)
        self.spec = spec
        self.prune = prune
        self._folded: Changes = {}  # changes since the last snapshot, without those in `state.changes`
        self._unpublished: Changes = {}  # changes that a snapshot has taken and readers have not seen
        self._owner = owner
        self._info = state_info(spec)
        self._keys = serializer(spec.entry_key(owner.key_type))
        self._values = serializer(spec.value)
        ttl = spec.ttl
        # The content of a checkpoint must not depend on the watermark at the time its files are written.
        by_event_time = ttl is not None and ttl.time is TtlTime.EVENT_TIME
        prunes_when_full = prune is not None and ttl is not None and ttl.prunes_full_snapshots
        self._prune_at_snapshot = prune if prunes_when_full and by_event_time else None
        self._prune_at_write = prune if prunes_when_full else None  # unless the snapshot was pruned already
        self._compaction = None if ttl is None else ttl.on_compaction
        self._by_event_time = by_event_time

    def counted(self, held_back: int) -> StateCount:
        """Count the entries, with those of new keys that are held back."""
        if self.spec.kind is StateKind.TIMER or isinstance(self.state, HashMapSet):
            return StateCount(self.state.count, 0)
        keys = None if self.spec.namespace is not None else len(self.state.entries) + held_back
        return StateCount(self.state.count + held_back, keys)

    def pruning(self) -> Pruning | None:
        """Return the pruning for files that are merged for this snapshot; None if there is none."""
        prune, compaction = self.prune, self._compaction
        if prune is None or compaction is None:
            return None
        stopped = as_of_now(prune) if self._by_event_time else in_bulk(prune, compaction.query_time_after_num_entries)
        return Pruning(self._values, stopped)

    def take_changes(self, *, noted: bool) -> Changes:
        """Return the changes since the last call and reset them. With `noted` the next `fold` still includes them."""
        newest = self.fold()
        self._unpublished = newest if noted else {}
        taken, self._folded = self._folded, {}
        return taken

    def fold(self) -> Changes:
        """Return the changes since the last call; the next snapshot still includes them."""
        newest: Changes = self.state.take_changes()
        if self._folded and newest is not None:
            self._folded.update(newest)
        elif self._folded is not None:
            self._folded = newest
        newest, self._unpublished = _joined(self._unpublished, newest), {}
        return newest

    def part(self, changes: dict[Any, Any]) -> SnapshotTable:
        """Return these changes, fixed as of now; immutable objects are kept by reference.

        Checks the values, not only the declared type: a list is accepted for a tuple, but is mutable.
        """
        return self._table(changes, None)

    def all(self) -> SnapshotTable:
        """Return all entries, fixed as of now, without expired elements if the state's cleanup asks for that."""
        prune = self._prune_at_snapshot
        if prune is not None:
            fresh = {key: left for key, value in self.state.flat().items() if (left := prune(value)) is not None}
            return self._table(fresh, None)
        if not self._values.type.is_immutable and not self._are_fixed:
            return self._table(self.state.flat(), self._prune_at_write)
        is_nested = isinstance(self.state, HashMapMaps)
        copied = self.state.copied()
        values = chain.from_iterable(map(dict.values, copied.values())) if is_nested else copied.values()
        if not self._are_fixed and not are_exact(self._values.type, list(values)):
            return self._table(self.state.flat(), self._prune_at_write)
        return SnapshotTable(
            self._info,
            self._keys,
            self._values,
            copied,
            is_nested,
            self._is_paired,
            prune=self._prune_at_write,
            has_removed=False,
        )

    @property
    def _are_fixed(self) -> bool:
        return not isinstance(self.state, HashMapMaps) and self.state.are_fixed

    def _table(self, found: dict[Any, Any], prune: Prune | None) -> SnapshotTable:
        values = [value for value in found.values() if value is not REMOVED]
        if self._are_fixed or (self._values.type.is_immutable and are_exact(self._values.type, values)):
            return SnapshotTable(self._info, self._keys, self._values, found, is_paired=self._is_paired, prune=prune)
        with naming(self._owner, self._info):
            encoded = self._values.encode_checked(values)
        keys_only = {key: REMOVED if value is REMOVED else None for key, value in found.items()}
        return SnapshotTable(
            self._info, self._keys, self._values, keys_only, is_paired=self._is_paired, encoded=encoded, prune=prune
        )


def joined(older: dict[str, Changes], newer: dict[str, Changes]) -> dict[str, Changes]:
    """Return the changes of both by state, without modifying either."""
    if not older:
        return newer
    names = dict.fromkeys((*older, *newer))
    return {name: _joined(older.get(name, {}), newer.get(name, {})) for name in names}


def _joined(older: Changes, newer: Changes) -> Changes:
    if older is None or newer is None:
        return None
    return {**older, **newer} if older else newer


def _by_pairs(entries: dict[Any, Any]) -> dict[Any, Any]:
    return {((key, namespace), map_key): value for (key, namespace, map_key), value in entries.items()}
