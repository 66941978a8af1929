"""The live states of the hashmap backend: Python objects in dicts, with their changes beside them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from checkdam.backends.contract import MemberOwner, Prune
from checkdam.state.handle_checks import GREATEST_INT, LEAST_INT, ElementFit, Fit, KeyFit
from checkdam.state.kinds import StoredMap
from checkdam.types.type_check import REFUSED, encode

REMOVED: Any = type("Removed", (), {"__slots__": ()})()
"""Stands in a set of changes for the value of a removed entry."""

_SMALL = 10**9

Changes = dict[Any, Any] | None
"""The changed entries since some point; None: any entry may have changed."""


class Current(Protocol):
    """Holds the current key of the states."""

    @property
    def current_key(self) -> Any: ...


class NamespacedKey:
    """Combines key and namespace, so that a state with namespaces is keyed by pairs."""

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        self._store = store

    @property
    def current_key(self) -> Any:
        return self._store.current_key, self._store.current_namespace


class HashMapCells:
    """One value per key. Plain methods with slots measure faster here than closures over the dicts."""

    __slots__ = (
        "_check",
        "_current",
        "_decode",
        "_exact",
        "_order",
        "_prune",
        "are_fixed",
        "changes",
        "default",
        "entries",
    )

    def __init__(self, current: Current, entries: dict[Any, Any], changes: Changes, prune: Prune | None) -> None:
        self.are_fixed = False  # whether values are only replaced, never changed in place
        self._check: Callable[[Any], None] | None = None
        self._exact: type | None = None
        self._decode: Callable[[bytes], Any] | None = None
        self.default: Any = None  # the value of a key without one; here it costs no extra call
        self._current = current
        self._prune = prune
        # A sweep must keep its position in the dict while entries come and go, which a plain dict cannot do
        self._order = None if prune is None else OrderedDict(entries)
        self.entries: dict[Any, Any] = entries if self._order is None else self._order
        self.changes = changes  # since the last snapshot; None: not recorded, since the next one has all entries

    def value(self) -> Any:
        return self.entries.get(self._current.current_key, self.default)

    def check_with(self, fit: Fit) -> None:
        """Make `update` refuse values that do not fit; without this, the caller must have checked them."""
        self._check, self._exact, self._decode = fit.check, fit.exact, fit.decode_to_check

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        if self._check is not None:  # what Fit.check does, without a call for values that fit
            if (kind := type(value)) is self._exact:
                if kind is int:  # compared with small numbers first, which Python does in half the time
                    if not (-_SMALL < value < _SMALL or LEAST_INT <= value <= GREATEST_INT):
                        self._check(value)
                elif kind is str and not value.isascii():
                    self._check(value)
            elif self._decode is None:
                self._check(value)
            else:
                try:
                    self._decode(encode(value))
                except REFUSED:
                    self._check(value)
        key = self._current.current_key
        self.entries[key] = value
        if self.changes is not None:
            self.changes[key] = value

    def clear(self) -> None:
        key = self._current.current_key
        if key in self.entries:  # checked first, because an empty dict pops without hashing the key
            self.remove(key)

    def stored_keys(self) -> Iterator[Any]:
        return iter(list(self.entries))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.entries.items())

    def sweep(self, count: int) -> None:
        order, prune = self._order, self._prune
        if order is None or prune is None:
            return
        for _ in range(min(count, len(order))):
            key = next(iter(order))
            stored = order[key]
            pruned = prune(stored)
            if pruned is None:
                self.remove(key)
                continue
            order.move_to_end(key)
            if pruned is not stored:
                self.put(key, pruned)

    def put(self, key: Any, value: Any) -> None:
        self.entries[key] = value
        if self.changes is not None:
            self.changes[key] = value

    def remove(self, key: Any) -> None:
        del self.entries[key]
        if self.changes is not None:
            self.changes[key] = REMOVED

    def take_changes(self) -> Changes:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, {}
        return changes

    def changed_count(self) -> int | None:
        """Return how many entries have changed, None if that is not recorded."""
        return None if self.changes is None else len(self.changes)

    def remove_all(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self.remove(key)

    def get_all(self, keys: Sequence[Any]) -> list[Any]:
        return list(map(self.entries.get, keys))

    def put_all(self, values: Mapping[Any, Any]) -> None:
        self.entries.update(values)
        if self.changes is not None:
            self.changes.update(values)

    def promise_no_change_in_place(self) -> None:
        self.are_fixed = True

    @property
    def count(self) -> int:
        return len(self.entries)

    def flat(self) -> dict[Any, Any]:
        """Return every entry as of now, by key."""
        return dict(self.entries)

    copied = flat


class HashMapSet:
    """A set whose owner holds the members: nothing but changes is kept here."""

    __slots__ = ("_owner", "changes")

    are_fixed = True

    def __init__(self, owner: MemberOwner, changes: Changes) -> None:
        self._owner = owner
        self.changes = changes  # since the last snapshot; None: not recorded, since the next one has all entries

    def take_changes(self) -> Changes:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, {}
        return changes

    def changed_count(self) -> int | None:
        """Return how many entries have changed, None if that is not recorded."""
        return None if self.changes is None else len(self.changes)

    def newest(self) -> tuple[list[Any], list[bool]]:
        """Take the changes from the owner."""
        return self._owner.take_changes()

    def record(self, members: list[Any], are_added: list[bool]) -> None:
        if self.changes is not None:
            self.changes.update(zip(members, [True if added else REMOVED for added in are_added], strict=True))

    @property
    def count(self) -> int:
        return len(self._owner)

    def flat(self) -> dict[Any, Any]:
        """Return every member as of now."""
        return dict.fromkeys(self._owner.members(), True)

    copied = flat


class HashMapMaps:
    """A dict per key. Changes are recorded by (key, map key), so that one changed entry is one entry in a snapshot.

    No key has an empty dict.
    """

    __slots__ = ("_order", "_prune", "_sweeping", "_to_sweep", "changed", "changes", "count", "current", "entries")

    def __init__(self, current: Current, entries: dict[Any, Any], changes: Changes, prune: Prune | None) -> None:
        """Take over both dicts, which are by (key, map key)."""
        self.current = current
        self._prune = prune
        self._order: OrderedDict[Any, Any] | None = None if prune is None else OrderedDict()  # see HashMapCells
        self._sweeping: Any = None  # the dict where the last sweep ended, and how many of its entries are left
        self._to_sweep = 0
        self.entries: dict[Any, Any] = {} if self._order is None else self._order
        for (key, map_key), value in entries.items():
            held = self.entries.get(key)
            if held is None:
                self.entries[key] = self._dict(map_key, value)
            else:
                held[map_key] = value
        self.count = len(entries)
        # Since the last snapshot, a dict for each key; None: not recorded, since the next one has all entries
        self.changes: dict[Any, dict[Any, Any]] | None = None if changes is None else {}
        self.changed = 0  # the entries in `changes`
        for (key, map_key), value in (changes or {}).items():
            self._note(key, map_key, value)

    def _note(self, key: Any, map_key: Any, value: Any) -> None:
        changes = self.changes
        if changes is None:
            return
        changed = changes.get(key)
        if changed is None:
            changes[key] = {map_key: value}
            self.changed += 1
        else:
            before = len(changed)
            changed[map_key] = value
            self.changed += len(changed) - before

    def take_changes(self) -> Changes:
        """Return the changes since the last call, by (key, map key)."""
        changed, self.changes = self.changes, {}
        self.changed = 0
        if changed is None:
            return None
        return {(key, map_key): value for key, held in changed.items() for map_key, value in held.items()}

    def changed_count(self) -> int | None:
        """Return how many entries have changed, None if that is not recorded."""
        return None if self.changes is None else self.changed

    def _dict(self, map_key: Any, value: Any) -> dict[Any, Any]:
        return {map_key: value} if self._order is None else OrderedDict({map_key: value})

    def get(self, map_key: Any) -> Any:
        held = self.entries.get(self.current.current_key)
        return None if held is None else held.get(map_key)

    def put(self, map_key: Any, value: Any) -> None:
        key = self.current.current_key
        held = self.entries.get(key)
        if held is None:
            self.entries[key] = self._dict(map_key, value)
            self.count += 1
        else:
            before = len(held)
            held[map_key] = value
            self.count += len(held) - before
        self._note(key, map_key, value)

    def remove(self, map_key: Any) -> None:
        key = self.current.current_key
        held = self.entries.get(key)
        if held is not None and map_key in held:
            self._drop(key, held, map_key)

    def _drop(self, key: Any, held: dict[Any, Any], map_key: Any) -> None:
        del held[map_key]
        if not held:
            del self.entries[key]
        self.count -= 1
        self._note(key, map_key, REMOVED)

    def items(self) -> Iterator[tuple[Any, Any]]:
        held = self.entries.get(self.current.current_key)
        return iter(()) if held is None else iter(list(held.items()))  # a copy: the reader may put and remove

    def is_empty(self) -> bool:
        return self.current.current_key not in self.entries

    def clear(self) -> None:
        key = self.current.current_key
        if key in self.entries:
            held = self.entries.pop(key)
            self.count -= len(held)
            for map_key in held if self.changes is not None else ():
                self._note(key, map_key, REMOVED)

    def stored_keys(self) -> Iterator[Any]:
        return iter(list(self.entries))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self.pairs()

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield every entry by (key, map key)."""
        for key, held in self.entries.items():
            for map_key, value in held.items():
                yield (key, map_key), value

    def sweep(self, count: int) -> None:
        order, prune = self._order, self._prune
        if order is None or prune is None:
            return
        for _ in range(min(count, self.count)):
            key = next(iter(order))
            held = order[key]
            if held is not self._sweeping:
                self._sweeping, self._to_sweep = held, len(held)
            map_key = next(iter(held))
            stored = held[map_key]
            held.move_to_end(map_key)
            self._to_sweep -= 1
            if self._to_sweep <= 0:
                order.move_to_end(key)
                self._sweeping = None
            pruned = prune(stored)
            if pruned is None:
                self._drop(key, held, map_key)
            elif pruned is not stored:
                held[map_key] = pruned
                self._note(key, map_key, pruned)

    def flat(self) -> dict[Any, Any]:
        """Return every entry as of now, by (key, map key)."""
        return dict(self.pairs())

    def copied(self) -> dict[Any, Any]:
        """Return every entry as of now as a dict per key; faster than `flat`."""
        return {key: dict(held) for key, held in self.entries.items()}


class DictMap(StoredMap):
    """A map whose `get` and `[]=`, called for every record, go straight to the dicts."""

    __slots__ = ("_current", "_held", "_maps")

    def __init__(self, maps: HashMapMaps, keys: KeyFit, values: ElementFit) -> None:
        super().__init__(maps, keys, values)
        self._maps = maps
        self._held = maps.entries
        self._current = maps.current

    def get(self, key: Any, default: Any = None) -> Any:
        if type(key) is not self._exact:
            self._keys.check(key)
        held = self._held.get(self._current.current_key)
        return default if held is None else held.get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        if (kind := type(key)) is not self._exact or not (
            (kind is str and key.isascii()) or (kind is int and LEAST_INT <= key <= GREATEST_INT)
        ):
            self._keys.check(key)
        if (kind := type(value)) is not self._exact_value or (
            (kind is str and not value.isascii()) or (kind is int and not LEAST_INT <= value <= GREATEST_INT)
        ):
            self._values.check(value)
        holder, maps = self._current.current_key, self._maps
        held = self._held.get(holder)
        if held is None:
            maps.put(key, value)
            return
        if key not in held:
            maps.count += 1
        held[key] = value
        changes = maps.changes
        if changes is None:
            return
        changed = changes.get(holder)
        if changed is None:
            changes[holder] = {key: value}
            maps.changed += 1
        else:
            if key not in changed:
                maps.changed += 1
            changed[key] = value


class NamespacedMaps(HashMapMaps):
    """Maps by pairs of key and namespace; only outside this class do entry keys have three parts."""

    __slots__ = ()

    def all(self) -> Iterator[tuple[Any, Any]]:
        for ((key, namespace), map_key), value in self.pairs():
            yield (key, namespace, map_key), value
