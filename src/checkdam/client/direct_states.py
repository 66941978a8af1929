"""Asks the slots of a job for its state without the driver, which tells where they are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from checkdam.client.shared_connection import SharedConnection
from checkdam.errors import CheckdamError
from checkdam.runtime.live_state.queried_state import QueriedState
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_messages import FoundKeys, FoundWindows, GetKeys, GetWindows, StateFacts
from checkdam.runtime.live_state.state_slots import StateSlots
from checkdam.state.state_count import StateCount
from checkdam.types.json_values import key_from_json, key_from_text, to_json
from checkdam.types.type_info import Kind, TypeInfo
from checkdam.types.type_text import type_from_text

_LOOK_AGAIN_SECONDS: Final = 2.0
"""How long the driver is asked for everything after a slot has ended, or the driver could not tell where they are."""

_UNREACHABLE_SECONDS: Final = 60.0
"""The same after a slot did not answer in time: there is no route to it, or it hangs."""

_MOST_KEPT: Final = 1000

Place = tuple[str, str, str]
"""Job, uid and name of a state."""

Found = tuple[int, Any, bool, Any, int, int]
"""The fields of a StateAnswer."""


class AskDriverError(Exception):
    """The slots cannot be asked. The driver has the answer, or tells why there is none."""


class DirectStates:
    """The states whose slots are known. Thread-safe.

    A description is used until a connection breaks: a slot ends with its attempt, and the slots of the next attempt are
    others, with another token.
    """

    def __init__(
        self, describe: Callable[[Place], Any], timeout: float, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """`describe` asks the driver for a StateSlots in JSON. It may raise a CheckdamError."""
        self._describe = describe
        self._timeout = timeout
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: dict[Place, _DirectState] = {}
        self._connections: dict[QueryAccess, SharedConnection] = {}
        self._not_before: dict[Place, float] = {}

    def get(self, place: Place, keys: Sequence[Any], map_key: Any, window: Any, *, is_text: bool) -> list[Found]:
        """Return one answer per key, those of one slot as of the same epoch.

        With `is_text`, keys are read as the text of a GET is: where the state's keys are text, 7 is the key "7".

        Raises:
            AskDriverError: the driver has to be asked.
        """
        known = self._known.get(place) or self._looked_up(place)
        try:
            return known.get(keys, map_key, window, _key_from_value_text if is_text else _key_from_value)
        except OSError as error:
            self._forget(place, known, _UNREACHABLE_SECONDS if _is_late(error) else _LOOK_AGAIN_SECONDS)
            raise AskDriverError from error
        except CheckdamError as error:
            raise AskDriverError from error

    def close(self) -> None:
        """Close all connections. The next question looks its slots up again."""
        with self._lock:
            left = list(self._connections.values())
            self._connections.clear()
            self._known.clear()
        for connection in left:
            connection.close()

    def _looked_up(self, place: Place) -> _DirectState:
        if self._seconds() < self._not_before.get(place, 0.0):
            raise AskDriverError
        try:
            described = msgspec.convert(self._describe(place), StateSlots)
            facts = StateFacts(
                place[1],
                place[2],
                described.kind,
                described.type,
                described.map_key_type,
                described.window_type,
                described.ttl,
                StateCount(),
            )
            key_type = type_from_text(described.key_type)
            state = QueriedState(facts, key_type, described.parallelism, described.max_parallelism)
        except (CheckdamError, msgspec.ValidationError) as error:  # it fails over, or the server is of another version
            self._wait(place, _LOOK_AGAIN_SECONDS)
            raise AskDriverError from error
        if len(described.slots) < state.parallelism:
            self._wait(place, _UNREACHABLE_SECONDS)
            raise AskDriverError
        with self._lock:
            ways = [QueryAccess(location, described.token or "") for location in described.slots]
            for way in ways:
                if way not in self._connections:
                    self._connections[way] = SharedConnection(way, self._timeout)
            found = self._known[place] = _DirectState(state, ways, [self._connections[way] for way in ways])
        return found

    def _forget(self, place: Place, known: _DirectState, seconds: float) -> None:
        """Forget all states in these slots, and use them again when the driver names them after so many seconds."""
        with self._lock:
            lost = [self._connections.pop(way) for way in known.ways if way in self._connections]
            gone = [at for at, each in self._known.items() if not set(each.ways).isdisjoint(known.ways)]
            for at in gone:
                del self._known[at]
        for connection in lost:
            connection.close()
        for at in (place, *gone):
            self._wait(at, seconds)

    def _wait(self, place: Place, seconds: float) -> None:
        with self._lock:
            if len(self._not_before) >= _MOST_KEPT:
                self._not_before.clear()
            self._not_before[place] = self._seconds() + seconds


class _DirectState:
    """One state and the connections to its slots, by subtask."""

    def __init__(self, state: QueriedState, ways: list[QueryAccess], connections: list[SharedConnection]) -> None:
        self.ways = ways
        self._state = state
        self._connections = connections
        self._key_type = state.key_type
        self._plain = _PLAIN.get(state.key_type.kind) if state.key_type.form is None else None

    def get(self, keys: Sequence[Any], map_key: Any, window: Any, read: Callable[[Any, TypeInfo], Any]) -> list[Found]:
        state, plain, key_type = self._state, self._plain, self._key_type
        wanted = [key if type(key) is plain else read(key, key_type) for key in keys]
        within = None if window is None else self._read(window, state.window_type, read)
        entry = None
        if map_key is not None:
            entry = state.encoded_map_key(self._read(map_key, state.map_key_type, read))
        encode = state.encoded if within is None else lambda key: state.encoded_in_window(key, within)
        encoded = [encode(key) for key in wanted]
        groups = [state.key_group_of(key) for key in wanted]
        of_slot: dict[int, list[int]] = {}
        for at, group in enumerate(groups):
            of_slot.setdefault(state.subtask_of(group), []).append(at)
        by_window = state.window_type is not None and window is None
        answer_type = state.answer_type(by_window=by_window)
        ask = GetWindows if by_window else GetKeys
        found: list[Any] = [None] * len(wanted)
        for subtask, places in of_slot.items():
            answer = self._connections[subtask].ask(ask(state.uid, state.name, [encoded[at] for at in places], entry))
            if not isinstance(answer, FoundKeys | FoundWindows):
                raise AskDriverError  # refused, for reasons that the driver tells better
            for at, each in zip(places, state.answers([groups[at] for at in places], answer), strict=True):
                value = to_json(each.value, answer_type) if each.found else None
                key = to_json(wanted[at], key_type)
                found[at] = (each.epoch, key, each.found, value, each.key_group, each.subtask)
        return found

    def _read(self, value: Any, of: TypeInfo | None, read: Callable[[Any, TypeInfo], Any]) -> Any:
        if of is None:
            raise AskDriverError  # the state is no map, or has no windows: the driver says so
        return read(value, of)


_PLAIN: Final = {Kind.STR: str}
"""Types whose values are keys as they are."""


def _key_from_value(key: Any, of: TypeInfo) -> Any:
    return key_from_json(to_json(key), of)


def _key_from_value_text(key: Any, of: TypeInfo) -> Any:
    return key_from_text(json.dumps(to_json(key)), of)


def _is_late(error: OSError) -> bool:
    return isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)
