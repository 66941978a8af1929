"""What the suites of keyed state share: the backends they run against, and a few words to tell stories with."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, KeyedStateStore, RocksDBStateBackend, StoreOwner
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import key_group_range, key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import Cleanup, StateTtlConfig, TtlTime
from checkdam.storage import Storage
from checkdam.types.type_info import tuple_of, type_info

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("32 MB")}

MAX_PARALLELISM = 16
KEYS = [f"k{i}" for i in range(100)]
HUNDRED = {key: i for i, key in enumerate(KEYS)}
GROUP_OF = dict(zip(KEYS, key_groups(KEYS, type_info(str), MAX_PARALLELISM).tolist(), strict=True))

_work = Path(tempfile.mkdtemp(prefix="checkdam-"))
atexit.register(shutil.rmtree, _work, ignore_errors=True)
opened: list[KeyedStateStore] = []
"""The stores of the running test; closed after it."""


@dataclass
class Item:
    name: str
    tags: list[str]


def cell(name: str, of: Any = int, **more: Any) -> StateSpec:
    return StateSpec(name, more.pop("kind", StateKind.VALUE), type_info(of), **more)


def mapping(name: str, map_key: Any = str, of: Any = int, **more: Any) -> StateSpec:
    return StateSpec(name, more.pop("kind", StateKind.MAP), type_info(of), type_info(map_key), **more)


COUNT = cell("count")
VISITS = mapping("visits")
WINDOWED = cell("windowed", namespace=type_info(int))
WINDOWED_VISITS = mapping("windowed visits", namespace=type_info(int))

Touched = tuple[Any, int]
TOUCHED = tuple_of([type_info(int), type_info(int)])


class Expiry:
    """Prunes what was touched before `now`, and counts how often it is asked."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.asked = 0

    def one(self, stored: Touched) -> Touched | None:
        self.asked += 1
        return stored if stored[1] >= self.now else None

    def elements(self, stored: list[Touched]) -> list[Touched] | None:
        self.asked += 1
        fresh = [element for element in stored if element[1] >= self.now]
        return stored if len(fresh) == len(stored) else fresh or None


def expiring(name: str, *cleanup: Cleanup, is_map: bool = False, is_list: bool = False, **more: Any) -> StateSpec:
    """A state whose elements carry a time; without cleanups, none in the background."""
    ttl = StateTtlConfig(timedelta(seconds=1), cleanup=cleanup, time=more.pop("time", TtlTime.PROCESSING_TIME))
    of: Any = TOUCHED
    if is_list:
        of = type_info(list[tuple[int, int]])
    kind = StateKind.MAP if is_map else StateKind.LIST if is_list else StateKind.VALUE
    return StateSpec(name, kind, of, type_info(str) if is_map else None, ttl=ttl, **more)


def owner(
    subtask: int = 0, parallelism: int = 1, key_type: Any = str, max_parallelism: int = MAX_PARALLELISM
) -> StoreOwner:
    return StoreOwner(
        OperatorUid("op"),
        SubtaskIndex(subtask),
        Attempt("a1"),
        key_group_range(subtask, parallelism, max_parallelism),
        max_parallelism,
        type_info(key_type),
        lambda: Path(tempfile.mkdtemp(dir=_work)),
    )


def open_store(
    backend: KeyedStateBackend,
    storage: Storage,
    handles: Sequence[KeyedStateHandle] = (),
    of: StoreOwner | None = None,
    *,
    claim: bool = True,
) -> KeyedStateStore:
    store = backend.open(of or owner(), handles, storage, claim=claim)
    opened.append(store)
    return store


def put(store: KeyedStateStore, state: Any, values: dict[Any, Any]) -> None:
    for store.current_key, value in values.items():
        state.update(value)
    store.end_epoch()


def get(store: KeyedStateStore, state: Any, keys: Iterable[Any]) -> dict[Any, Any]:
    found = {}
    for store.current_key in keys:
        if state.value() is not None:
            found[store.current_key] = state.value()
    return found


def put_maps(store: KeyedStateStore, state: Any, maps: dict[Any, dict[Any, Any]]) -> None:
    for store.current_key, entries in maps.items():
        for map_key, value in entries.items():
            if value is None:
                state.remove(map_key)
            else:
                state.put(map_key, value)
    store.end_epoch()


def get_maps(store: KeyedStateStore, state: Any, keys: Iterable[Any]) -> dict[Any, dict[Any, Any]]:
    found = {}
    for store.current_key in keys:
        if not state.is_empty():
            found[store.current_key] = dict(state.items())
    return found


def checkpoint(store: KeyedStateStore, storage: Storage, number: int) -> KeyedStateHandle:
    handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
    store.completed(CheckpointId(number))
    return handle


def content(
    backend: KeyedStateBackend,
    storage: Storage,
    handles: Sequence[KeyedStateHandle],
    keys: Iterable[str],
    spec: StateSpec = COUNT,
) -> dict[str, Any]:
    store = open_store(backend, storage, handles)
    return get(store, store.cells(spec), keys)


def entries(
    backend: KeyedStateBackend, storage: Storage, handles: Sequence[KeyedStateHandle], spec: StateSpec
) -> dict[Any, Any]:
    """Everything a new store finds in the state, by entry key."""
    store = open_store(backend, storage, handles)
    return dict(store.maps(spec).all() if spec.map_key is not None else store.cells(spec).all())


def bytes_of(handle: KeyedStateHandle, besides: KeyedStateHandle | None = None) -> int:
    known = set() if besides is None else {file.path for file in besides.files}
    return sum(file.size for file in handle.files if file.path not in known)
