"""One state as the driver queries it: how keys are encoded and located, and how answers are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator, SinkKind
from checkdam.ids import Epoch
from checkdam.runtime.job_control import QueryableState, QueryAnswer
from checkdam.runtime.live_state.query_messages import FoundKeys, FoundWindows, StateFacts
from checkdam.state.key_groups import key_hasher, subtask_of
from checkdam.state.spec import StateKind
from checkdam.state.state_count import StateCount
from checkdam.types.serializers import serializer
from checkdam.types.type_info import Kind, TypeInfo, fields_of, list_of, map_of, tuple_of
from checkdam.types.type_text import type_from_text


def keyed_operators(plan: JobPlan) -> dict[str, Operator]:
    """Return the operators of a plan that may have keyed state, by uid, each with its parallelism."""
    return {
        op.uid or f"operator-{op.id}": op
        for level in plan.levels
        for op in level.operators
        if op.key is not None and op.is_stateful and not isinstance(op.kind, SinkKind)
    }


class QueriedState:
    """One keyed state, decoded without the job's code: a dataclass as a dict, a named tuple as a tuple, a pickled value
    as its bytes. A state with TTL shows only its elements, an aggregate its accumulator.
    """

    def __init__(self, facts: StateFacts, key_type: TypeInfo, parallelism: int, max_parallelism: int) -> None:
        self.facts = facts
        self.uid = facts.uid
        self.name = facts.name
        self.key_type = key_type
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.map_key_type = None if facts.map_key_type is None else type_from_text(facts.map_key_type)
        self.window_type = None if facts.window_type is None else type_from_text(facts.window_type)
        stored = type_from_text(facts.value_type)
        self.value_type = _without_time(stored, facts.kind) if facts.has_ttl else stored
        self.held_type = self.value_type  # of the content of a key
        if self.map_key_type is not None:
            self.held_type = map_of(self.map_key_type, self.value_type, dict)
        self._has_ttl = facts.has_ttl
        self._is_list = facts.kind == StateKind.LIST
        self._keys = serializer(self.key_type)
        holder = self.key_type if self.window_type is None else tuple_of([self.key_type, self.window_type])
        self._holders = serializer(holder)
        self._hash = key_hasher(self.key_type)
        held = stored if self.map_key_type is None else list_of(tuple_of([self.map_key_type, stored]), list)
        self._decode = serializer(held).decode_one
        self._are_map_keys_hashable = _is_hashable(self.map_key_type)
        self._are_windows_hashable = _is_hashable(self.window_type)

    def answer_type(self, *, by_window: bool) -> TypeInfo:
        """Return the type of an answer: the content of a key, or of each window of a key."""
        if not by_window:
            return self.held_type
        assert self.window_type is not None
        return map_of(self.window_type, self.held_type, dict)

    def described(self, held: StateCount) -> QueryableState:
        return QueryableState(
            uid=self.uid,
            name=self.name,
            kind=self.facts.kind,
            key_type=self.key_type,
            value_type=self.value_type,
            map_key_type=self.map_key_type,
            held=held,
            has_ttl=self._has_ttl,
            window_type=self.window_type,
        )

    def encoded(self, key: Any) -> bytes:
        """Encode a key.

        Raises:
            StateAccessError: it is not a key of this state.
        """
        try:
            return self._keys.encode_keys([key])[1:]  # without the head of an array of one
        except JobGraphError as misfit:
            raise self._no_key(key) from misfit

    def encoded_in_window(self, key: Any, window: Any) -> bytes:
        """Encode a key and one of its windows.

        Raises:
            StateAccessError: the state has no windows, or not such ones, or no such keys.
        """
        if self.window_type is None:
            raise StateAccessError(
                f'state "{self.name}" of operator "{self.uid}" belongs to no window', hint="Ask for it without one."
            )
        encoded = self.encoded(key)
        try:
            serializer(self.window_type).encode_keys([window])
        except JobGraphError as misfit:
            raise StateAccessError(
                f'{ascii(window)[:200]} is no window of state "{self.name}" of operator "{self.uid}"',
                hint=f"Ask for one of type {self.window_type.name}.",
            ) from misfit
        return self._holders.encode_keys([(self._keys.decode_one(encoded), window)])[1:]

    def _no_key(self, key: Any) -> StateAccessError:
        return StateAccessError(
            f'{ascii(key)[:200]} is no key of state "{self.name}" of operator "{self.uid}"',
            hint=f"Ask by a key of type {self.key_type.name}.",
        )

    def encoded_map_key(self, map_key: Any) -> bytes:
        if self.map_key_type is None:
            raise StateAccessError(
                f'state "{self.name}" of operator "{self.uid}" is no map', hint="Ask for it without a map key."
            )
        try:
            return serializer(self.map_key_type).encode_keys([map_key])[1:]
        except JobGraphError as misfit:
            raise StateAccessError(
                f'{ascii(map_key)[:200]} is no map key of state "{self.name}" of operator "{self.uid}"',
                hint=f"Ask by one of type {self.map_key_type.name}.",
            ) from misfit

    def key_group_of(self, key: Any) -> int:
        """Return the key group of a key.

        Raises:
            StateAccessError: no record has such a key, which fits no column: a Decimal of too many digits.
        """
        try:
            return self._hash(key) % self.max_parallelism
        except (ValueError, ArithmeticError) as misfit:
            raise self._no_key(key) from misfit

    def subtask_of(self, key_group: int) -> int:
        return subtask_of(key_group, self.parallelism, self.max_parallelism)

    def key(self, encoded: bytes) -> Any:
        """Decode the key of a page's entry; with windows the pair of key and window."""
        return self._holders.decode_one(encoded)

    def split(self, entry_key: Any) -> tuple[Any, Any]:
        """Return key and window of a page's entry; None for a state without windows."""
        return (entry_key, None) if self.window_type is None else entry_key

    def answers(self, groups: Sequence[int], found: FoundKeys | FoundWindows) -> list[QueryAnswer]:
        epoch = Epoch(found.epoch)
        if isinstance(found, FoundWindows):
            return [self._by_window(epoch, group, each) for group, each in zip(groups, found.values, strict=True)]
        return [self._answer(epoch, group, each) for group, each in zip(groups, found.values, strict=True)]

    def _by_window(self, epoch: Epoch, group: int, windows: list[tuple[bytes, bytes]]) -> QueryAnswer:
        """Return the content of all windows of a key, as a dict by window."""
        assert self.window_type is not None
        decode = serializer(self.window_type).decode_one
        pairs = [(decode(window), self.value(content)) for window, content in windows]
        with suppress(TypeError):  # windows of other types than time may have no order
            pairs.sort(key=itemgetter(0))
        value = dict(pairs) if self._are_windows_hashable else pairs
        return QueryAnswer(epoch, self.subtask_of(group), group, found=bool(pairs), value=value if pairs else None)

    def _answer(self, epoch: Epoch, group: int, encoded: bytes | None) -> QueryAnswer:
        subtask = self.subtask_of(group)
        if encoded is None:
            return QueryAnswer(epoch, subtask, group, found=False, value=None)
        return QueryAnswer(epoch, subtask, group, found=True, value=self.value(encoded))

    def value(self, encoded: bytes) -> Any:
        """Decode the content of a key. A map whose keys cannot be looked up here becomes a list of pairs."""
        held = self._decode(encoded)
        if self.map_key_type is None:
            return self._element(held)
        pairs = [(map_key, self._element(value)) for map_key, value in held]
        return dict(pairs) if self._are_map_keys_hashable else pairs

    def _element(self, stored: Any) -> Any:
        if not self._has_ttl:
            return stored
        return [element for element, _ in stored] if self._is_list else stored[0]


def _is_hashable(of: TypeInfo | None) -> bool:
    return of is None or all(each.kind is not Kind.DATACLASS for each in fields_of(of))


def _without_time(stored: TypeInfo, kind: str) -> TypeInfo:
    """Return the type of the elements of a state with TTL, which stores them with their access times."""
    if kind == StateKind.LIST:
        element = stored.fields[0][1].fields[0][1]
        return list_of(element, list)
    return stored.fields[0][1]


def no_such_operator(uid: str, known: Sequence[str]) -> StateAccessError:
    names = ", ".join(f'"{each}"' for each in sorted(known))
    return StateAccessError(
        f'the job has no operator "{uid}" with keyed state', hint=f"It has {names}." if names else "It has none at all."
    )
