"""The published view of a hashmap store: a second dict per state, updated when an epoch ends.

Immutable values are shared with the live state; all others are stored encoded, so that changes to an object in the
middle of an epoch do not show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.hashmap.hashmap_states import REMOVED, HashMapCells, HashMapMaps
from checkdam.backends.published_view import MOST_ENTRIES, StateCodec, packed_pairs, unknown_state, unreadable
from checkdam.backends.state_file import split_array
from checkdam.errors import CheckdamError, StateAccessError
from checkdam.ids import Epoch
from checkdam.state.spec import StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.serializers import serializer
from checkdam.types.text_filter import MOST_SCANNED
from checkdam.types.type_check import are_exact

_CHUNK = 10_000
_COPIED_WHOLE = 250_000
"""Up to this many values, copying all is cheaper than looking up what an epoch has changed: Python copies a dict
without hashing its keys, and the live state need not track the changes per epoch.
"""


class ShadowState:
    """One state as of the last published epoch."""

    def __init__(
        self, owner: StoreOwner, spec: StateSpec, state: HashMapCells | HashMapMaps, prune: Prune | None
    ) -> None:
        self.codec = StateCodec(spec, owner.key_type, prune)
        self.entries: dict[Any, Any] = {}  # for maps a dict each, as in the live state
        self._namespaces: dict[Any, dict[Any, None]] | None = None  # of each key; None unless it was asked for
        self.count = StateCount()
        self.prune: Prune | None = None
        # a value did not fit its type: nothing is readable until all values fit
        self.failure: CheckdamError | None = None
        self._live = state
        self._is_map = isinstance(state, HashMapMaps)
        self._is_shared = self.codec.values.type.is_immutable
        self._is_whole = False

    @property
    def wants_changes(self) -> bool:
        """Whether `prepared` needs the changes of the epoch; otherwise it reads the live state itself."""
        return self._is_map or not self._is_shared or self._live.count > _COPIED_WHOLE

    def prepared(self, changes: dict[Any, Any] | None) -> dict[Any, Any] | CheckdamError:
        """Return the argument of `apply`, in stored form, or the failure.

        Includes everything if no changes are given, the first time and after a failure; otherwise these changes.
        """
        try:
            self._is_whole = self._is_whole and changes is not None
            return self._kept(changes) if self._is_whole and changes is not None else self._all()
        except CheckdamError as failure:
            return failure
        except Exception as failure:  # noqa: BLE001  pickling runs the user's code; readers must not fail the job
            return StateAccessError(f"a value cannot be encoded: {type(failure).__name__}: {failure}")

    def _all(self) -> dict[Any, Any]:
        if self._is_shared:
            copied = self._live.copied()
            values = chain.from_iterable(map(dict.values, copied.values())) if self._is_map else copied.values()
            if are_exact(self.codec.values.type, list(values)):
                return copied
        kept = self._kept(self._live.flat())
        return _nested(kept) if self._is_map else kept

    def _kept(self, found: dict[Any, Any]) -> dict[Any, Any]:
        values = self.codec.values
        present = [value for value in found.values() if value is not REMOVED]
        if self._is_shared and are_exact(values.type, present):
            return found
        encoded: list[Any] = []
        left = iter(present)
        while chunk := list(islice(left, _CHUNK)):
            packed = values.encode_checked(chunk)
            # decoding again makes a copy of an object that only looked immutable
            encoded += values.decode(packed) if self._is_shared else split_array(packed)
        each = iter(encoded)
        return {key: REMOVED if value is REMOVED else next(each) for key, value in found.items()}

    def apply(self, prepared: dict[Any, Any] | CheckdamError) -> None:
        if isinstance(prepared, CheckdamError):
            self.failure, self._is_whole = prepared, False
            return
        if not self._is_whole:
            self.entries, self._is_whole, self.failure = prepared, True, None
            self._namespaces = None
        elif self._is_map:
            self._apply_to_maps(prepared)
        else:
            self.entries.update(prepared)
            for key in [key for key, value in prepared.items() if value is REMOVED]:
                del self.entries[key]
        if self._namespaces is not None:
            self._apply_to_namespaces({holder for holder, _ in prepared} if self._is_map else prepared)
        keys = None if self.codec.spec.namespace is not None else len(self.entries)
        self.count = StateCount(self._live.count, keys)
        self.prune = self.codec.prune_of_epoch()

    def _apply_to_maps(self, prepared: dict[Any, Any]) -> None:
        entries = self.entries
        for (key, map_key), value in prepared.items():
            held = entries.get(key)
            if value is REMOVED:
                if held is not None:
                    held.pop(map_key, None)
                    if not held:
                        del entries[key]
            elif held is None:
                entries[key] = {map_key: value}
            else:
                held[map_key] = value

    def _apply_to_namespaces(self, changed: Iterable[Any]) -> None:
        assert self._namespaces is not None
        for holder in changed:
            key, namespace = holder
            if holder in self.entries:
                self._namespaces.setdefault(key, {})[namespace] = None
            elif (held := self._namespaces.get(key)) is not None:
                held.pop(namespace, None)
                if not held:
                    del self._namespaces[key]

    def namespaces_of(self, key: Any) -> list[Any]:
        """Return the namespaces of a key. The first call looks at every entry, later ones only at the changes."""
        if self._namespaces is None:
            self._namespaces = {}
            self._apply_to_namespaces(self.entries)
        return list(self._namespaces.get(key, ()))

    def found(self, holders: Sequence[Any], map_key: bytes | None) -> list[Any]:
        """Return the content of each, None if it has none: a value, or a dict that belongs to the caller."""
        found = list(map(self.entries.get, holders))
        if not self._is_map:
            return found
        if map_key is None:
            return [None if held is None else dict(held) for held in found]
        assert self.codec.map_keys is not None
        wanted = self.codec.map_keys.decode_one(map_key)
        return [None if held is None or wanted not in held else {wanted: held[wanted]} for held in found]

    def encoded(self, found: Any, prune: Prune | None) -> bytes | None:
        """Encode the content of a key, as taken from `entries`: a value, or a dict that belongs to the caller."""
        if found is None:
            return None
        if not self._is_map:
            return self._encoded_value(found, prune)
        assert self.codec.map_keys is not None
        encode = self.codec.map_keys.encode_key
        pairs = [
            (encode(map_key), value)
            for map_key, held in found.items()
            if (value := self._encoded_value(held, prune)) is not None
        ]
        return packed_pairs(pairs) if pairs else None

    def _encoded_value(self, kept: Any, prune: Prune | None) -> bytes | None:
        if not self._is_shared:
            return self.codec.visible(kept, prune)
        fresh = kept if prune is None else prune(kept)
        return None if fresh is None else self.codec.values.encode_one(fresh)


class HashMapPublished:
    """The views of all states of a store, all as of one epoch."""

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._epoch = Epoch(-1)
        self._shadows: dict[str, ShadowState] = {}

    def advance(
        self,
        epoch: Epoch,
        changed: Iterable[tuple[StateSpec, HashMapCells | HashMapMaps, Prune | None, Callable[[], dict[Any, Any]]]],
    ) -> None:
        """End an epoch. `changed` lists each state with a function that returns its changes since the previous call."""
        shadows = dict(self._shadows)
        prepared = []
        for spec, state, prune, changes in changed:
            shadow = shadows.get(spec.name) or ShadowState(self._owner, spec, state, prune)
            shadows[spec.name] = shadow
            prepared.append((shadow, shadow.prepared(changes() if shadow.wants_changes else None)))
        with self._lock:
            for shadow, each in prepared:
                shadow.apply(each)
            self._shadows, self._epoch = shadows, epoch

    @property
    def specs(self) -> Sequence[StateSpec]:
        return [shadow.codec.spec for shadow in self._shadows.values()]

    def has(self, name: str) -> bool:
        return name in self._shadows

    def get(self, name: str, keys: Sequence[bytes], map_key: bytes | None = None) -> tuple[Epoch, list[bytes | None]]:
        shadow = self._shadow(name)
        holders = list(map(shadow.codec.holder, keys))
        with self._lock:  # only during the lookup: the end of an epoch waits for it
            self._refuse_if_failed(shadow)
            epoch, prune = self._epoch, shadow.prune
            found = shadow.found(holders, map_key)
        return epoch, [shadow.encoded(each, prune) for each in found]

    def windows(
        self, name: str, keys: Sequence[bytes], map_key: bytes | None = None
    ) -> tuple[Epoch, list[list[tuple[bytes, bytes]]]]:
        shadow = self._shadow(name)
        assert shadow.codec.spec.namespace is not None
        of_key, of_namespace = serializer(self._owner.key_type), serializer(shadow.codec.spec.namespace)
        wanted = list(map(of_key.decode_one, keys))
        found: list[list[tuple[Any, Any]]] = []
        with self._lock:
            self._refuse_if_failed(shadow)
            epoch, prune = self._epoch, shadow.prune
            for key in wanted:
                namespaces = shadow.namespaces_of(key)
                held = shadow.found([(key, namespace) for namespace in namespaces], map_key)
                found.append(list(zip(namespaces, held, strict=True)))
        return epoch, [
            [
                (of_namespace.encode_key(namespace), value)
                for namespace, held in each
                if (value := shadow.encoded(held, prune)) is not None
            ]
            for each in found
        ]

    def page(self, name: str, after: bytes, limit: int) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None]:
        shadow = self._shadow(name)
        is_map = shadow.codec.map_keys is not None
        start = position = int(after or b"0")
        taken: list[tuple[Any, Any]] = []
        size = 0
        with self._lock:
            self._refuse_if_failed(shadow)
            epoch, prune = self._epoch, shadow.prune
            for key, found in islice(shadow.entries.items(), start, start + limit):
                taken.append((key, dict(found) if is_map else found))
                size += len(found) if is_map else 1
                position += 1
                if is_map and size >= MOST_ENTRIES:
                    break
            is_last = position >= len(shadow.entries)
        encoded = ((shadow.codec.holders.encode_key(key), shadow.encoded(found, prune)) for key, found in taken)
        entries = [(key, value) for key, value in encoded if value is not None]
        return epoch, entries, None if is_last else b"%d" % position

    def find(
        self, name: str, after: bytes, limit: int, text: str
    ) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None, int]:
        shadow = self._shadow(name)
        is_map = shadow.codec.map_keys is not None
        matches = shadow.codec.filter_of(text)
        start = position = int(after or b"0")
        with self._lock:  # not while keys are compared, which takes long: the end of an epoch waits for it
            self._refuse_if_failed(shadow)
            keys = list(islice(shadow.entries, start, start + MOST_SCANNED))
        matching = list(islice(((at, key) for at, key in enumerate(keys, start + 1) if matches(key)), limit))
        taken: list[tuple[Any, Any]] = []
        size = 0
        with self._lock:  # an epoch may have ended meanwhile: then all contents are as of that one
            self._refuse_if_failed(shadow)
            epoch, prune = self._epoch, shadow.prune
            if len(matching) < limit:
                position = start + len(keys)
            for at, key in matching:
                [found] = shadow.found([key], None)
                taken.append((key, found))
                size += len(found) if is_map and found is not None else 1
                if len(taken) == limit or (is_map and size >= MOST_ENTRIES):
                    position = at
                    break
            is_last = position >= len(shadow.entries)
        encoded = ((shadow.codec.holders.encode_key(key), shadow.encoded(found, prune)) for key, found in taken)
        entries = [(key, value) for key, value in encoded if value is not None]
        return epoch, entries, None if is_last else b"%d" % position, position - start

    def count(self, name: str) -> StateCount:
        return self._shadow(name).count

    def _shadow(self, name: str) -> ShadowState:
        shadow = self._shadows.get(name)
        if shadow is None:
            raise unknown_state(self._owner.uid, name, self._shadows)
        return shadow

    def _refuse_if_failed(self, shadow: ShadowState) -> None:
        if shadow.failure is not None:
            raise unreadable(self._owner.uid, shadow.codec.spec.name, shadow.failure)


def _nested(entries: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict per key from entries by (key, map key)."""
    nested: dict[Any, Any] = {}
    for (key, map_key), value in entries.items():
        nested.setdefault(key, {})[map_key] = value
    return nested
