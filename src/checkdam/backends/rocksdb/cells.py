"""Cells of the RocksDB backend: one value per key, or per key and namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from checkdam.backends.rocksdb.table import UNKNOWN, StateTable
from checkdam.state.handle_checks import GREATEST_INT, LEAST_INT, Fit


class RocksDBCells(StateTable):
    """Cells, and the table of all of them.

    An entry is looked up among the changes, then in `_hot`, which holds recently used entries, then in `_cooling` with
    those used before; None stands for a key known to have no value. The changes become hot when they are written.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._hot: dict[Any, Any] = {}
        self._cooling: dict[Any, Any] = {}
        self._changes: dict[Any, Any] = {}
        self.default: Any = None  # the value of a key without one; here it costs no extra call
        self._check: Callable[[Any], None] | None = None
        self._exact: type | None = None

    def check_with(self, fit: Fit) -> None:
        """Make `update` refuse values that do not fit; without this, the caller must have checked them."""
        self._check, self._exact = fit.check, fit.exact

    def value(self) -> Any:
        key = self._current.current_key
        found = self._changes.get(key, UNKNOWN)
        if found is UNKNOWN:
            found = self._hot.get(key, UNKNOWN)
            if found is UNKNOWN:
                found = self._load(key)
        return self.default if found is None else found

    def update(self, value: Any) -> None:
        if value is not None and self._check is not None:  # what Fit.check does, without a call for values that fit
            if (kind := type(value)) is self._exact:
                if (kind is int and not LEAST_INT <= value <= GREATEST_INT) or (kind is str and not value.isascii()):
                    self._check(value)
            else:
                self._check(value)
        changes = self._changes
        changes[self._current.current_key] = value
        if len(changes) >= self._check_at:
            self._check_changes()

    def clear(self) -> None:
        self._clear(self._current.current_key)

    def _clear(self, entry: Any) -> None:
        if self._found(entry) is not None:
            self.change(entry, None)

    def _found(self, entry: Any) -> Any:
        """Return the value of an entry, whatever the current key."""
        found = self._changes.get(entry, UNKNOWN)
        if found is UNKNOWN:
            found = self._hot.get(entry, UNKNOWN)
        return self._load(entry) if found is UNKNOWN else found

    def put(self, key: Any, value: Any) -> None:
        self.change(key, value)

    def remove(self, key: Any) -> None:
        self.change(key, None)

    def remove_all(self, keys: Iterable[Any]) -> None:
        self.put_all(dict.fromkeys(keys))

    def get_all(self, keys: Sequence[Any]) -> list[Any]:
        changed, hot = self._changes.get, self._hot.get
        found = [changed(key, UNKNOWN) for key in keys]
        found = [hot(key, UNKNOWN) if value is UNKNOWN else value for key, value in zip(keys, found, strict=True)]
        missing = [key for key, value in zip(keys, found, strict=True) if value is UNKNOWN]
        if not missing:
            return found
        loaded = self._load_all(missing)
        return [loaded[key] if value is UNKNOWN else value for key, value in zip(keys, found, strict=True)]

    def put_all(self, values: Mapping[Any, Any]) -> None:
        self._changes.update(values)
        if len(self._changes) >= self._check_at:
            self._check_changes()

    def promise_no_change_in_place(self) -> None:
        """Do nothing: a snapshot refers to no objects."""

    def _load(self, entry: Any) -> Any:
        found = self._cooling.pop(entry, UNKNOWN)
        if found is not UNKNOWN:
            self._hot[entry] = found
            return found
        key = self.encode_entry(entry)
        stored = self.column.get(key)
        value = self._hot[entry] = None if stored is None else self._values.decode_one(stored)
        self._loaded(key, stored)
        return value

    def _load_all(self, entries: list[Any]) -> dict[Any, Any]:
        loaded: dict[Any, Any] = {}
        unknown: list[Any] = []
        for entry in dict.fromkeys(entries):
            found = self._cooling.pop(entry, UNKNOWN)
            if found is UNKNOWN:
                unknown.append(entry)
            else:
                loaded[entry] = found
        if unknown:
            keys = self.encode_entries(unknown)
            stored = self.column.get(keys)
            decode = self._values.decode_one
            loaded.update(
                (entry, None if value is None else decode(value)) for entry, value in zip(unknown, stored, strict=True)
            )
            self._sample(len(keys), sum(len(key) + len(value or b"") for key, value in zip(keys, stored, strict=True)))
        self._hot.update(loaded)
        self._make_room()
        return loaded

    def waiting(self) -> int:
        return len(self._changes)

    def waiting_value(self, entry: Any) -> Any:
        return self._changes.get(entry, UNKNOWN)

    def change(self, entry: Any, value: Any) -> None:
        self._changes[entry] = value
        if len(self._changes) >= self._check_at:
            self._check_changes()

    def changes(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._changes.items())

    def newest_changes(self, count: int) -> list[tuple[Any, Any]]:
        return list(islice(reversed(self._changes.items()), count))

    def forget_changes(self) -> None:
        self._hot.update(self._changes)
        self._changes = {}

    def held(self) -> int:
        return len(self._hot) + len(self._cooling)

    def evict(self, count: int) -> None:
        if not self._cooling:
            self._cooling, self._hot = self._hot, {}
        for entry in list(islice(self._cooling, count)):
            del self._cooling[entry]

    def close(self) -> None:
        super().close()
        self._hot, self._cooling, self._changes = {}, {}, {}


class RocksDBNamespacedCells(RocksDBCells):
    """Cells whose entry key is a pair of key and namespace."""

    def value(self) -> Any:
        found = self._found((self._current.current_key, self._current.current_namespace))
        return self.default if found is None else found

    def update(self, value: Any) -> None:
        if value is not None and self._check is not None:
            self._check(value)
        self.change((self._current.current_key, self._current.current_namespace), value)

    def clear(self) -> None:
        self._clear((self._current.current_key, self._current.current_namespace))
